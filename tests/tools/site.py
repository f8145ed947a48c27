"""The manuals as a site: ``make site``. Every warning is an error."""

import subprocess
import sys

from tests.tools import api

BUILT = api.REPOSITORY / "build/site"


def build(built=BUILT, *more):
    """Builds the site into a folder; the exit code of Sphinx. more: of its arguments."""
    argv = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html"]
    argv += ["-c", str(api.REPOSITORY / "docs"), *more, str(api.REPOSITORY), str(built)]
    return subprocess.run(argv, check=False, cwd=api.REPOSITORY).returncode


if __name__ == "__main__":
    code = build(BUILT, *sys.argv[1:])
    print(f"{BUILT}/index.html" if not code else "the site has warnings: see above")
    sys.exit(code)
