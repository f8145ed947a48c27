"""Build the manuals as a site: ``make site``. Every warning is an error.

Sphinx reads a copy of the pages, in which the generated references are beside the committed ones:
the tree itself gets no generated file.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.tools import api, docs

BUILT = api.REPOSITORY / "build/site"
_PAGES = ("*.md", "tests/*.md", "tests/*/*.md", "docs/**/*.*")


def build(built=BUILT, *more):
    """Build the site into a folder, with more arguments of Sphinx. Return Sphinx's exit code."""
    with tempfile.TemporaryDirectory(prefix="salt-virt-site-") as folder:
        sources(Path(folder))
        argv = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html"]
        argv += ["-d", str(Path(built) / ".doctrees"), "-c", str(docs.DOCS), *more]
        return subprocess.run([*argv, folder, str(built)], check=False).returncode


def sources(folder):
    """Fill a folder with the pages, links to what they link to, and the generated references."""
    tree = api.REPOSITORY
    for path in (path for pattern in _PAGES for path in tree.glob(pattern) if path.is_file()):
        (folder / path.relative_to(tree)).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, folder / path.relative_to(tree))
    for path in [*tree.glob("[_a-zA-Z]*"), *tree.glob("tests/*")]:
        link = folder / path.relative_to(tree)
        if not link.exists() and path.name != "build":
            link.symlink_to(path)
    for name, text in docs.references().items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    code = build(BUILT, *sys.argv[1:])
    print(f"{BUILT}/index.html" if not code else "the site has warnings: see above")
    sys.exit(code)
