"""What pip installs: ``make wheel``. The same files as a master serves, as an extension of Salt."""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.tools import api

BUILT = api.REPOSITORY / "build/wheel"
_READ = ("pyproject.toml", "setup.cfg", "README.md", "LICENSE", "src")


def build(built=BUILT):
    """Builds the wheel into a folder, from a copy, for setuptools writes beside what it reads.
    Returns its path."""
    with tempfile.TemporaryDirectory(prefix="salt-virt-wheel-") as folder:
        for pattern in _READ:
            for path in api.REPOSITORY.glob(pattern):
                _copy(path, Path(folder) / path.name)
        argv = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "-q"]
        subprocess.run([*argv, "--no-deps", "-w", str(built), folder], check=True)
    return max(Path(built).glob("salt_virt-*.whl"), key=lambda path: path.stat().st_mtime)


def _copy(path, target):
    if path.is_dir():
        shutil.copytree(path, target, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        shutil.copy(path, target)


if __name__ == "__main__":
    print(build(*sys.argv[1:2]))
