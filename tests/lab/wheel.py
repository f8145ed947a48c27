"""A file of a PyPI package that is not installed into the tests' Python; only its content is
used."""

import contextlib
import sys
import tempfile
import zipfile
from pathlib import Path

from tests.lab.sh import run


@contextlib.contextmanager
def opened(pinned):
    """The wheel as a ZipFile. pinned: the package with version and hash, as in requirements.txt."""
    with tempfile.TemporaryDirectory() as folder:
        listed = Path(folder, "listed.txt")
        listed.write_text(f"{pinned}\n", encoding="ascii")
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "-q"]
        run([*pip, "--no-deps", "--require-hashes", "-d", folder, "-r", listed])
        (found,) = Path(folder).glob("*.whl")
        with zipfile.ZipFile(found) as archive:
            yield archive
