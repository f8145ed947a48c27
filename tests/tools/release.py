"""Prepare a release: set the version, write the fragments into a section of the changelog.

``make release VERSION=1.2.0``; commit and tag the result.
"""

import re
import subprocess
import sys
from pathlib import Path

from tests.tools import api

VERSION = "_utils/saltvirt/__init__.py"
_LINE = re.compile(r'^__version__ = "([^"]+)"$', re.MULTILINE)
_NUMBER = re.compile(r"[0-9]+\.[0-9]+\.[0-9]+(rc[0-9]+)?")


def version(tree=api.REPOSITORY):
    """Return the project's version, from the only file that has it."""
    return _LINE.search((Path(tree) / VERSION).read_text(encoding="utf-8"))[1]


def release(new, tree=api.REPOSITORY):
    """Set the version of a tree and write its fragments into its CHANGELOG.md.

    Return None, or the reason for which nothing was changed.
    """
    tree = Path(tree)
    if not _NUMBER.fullmatch(new):
        return f"{new!r} is no version such as 1.2.0 or 1.2.0rc1"
    if f"\n## {new} " in (tree / "CHANGELOG.md").read_text(encoding="utf-8"):
        return f"CHANGELOG.md has {new} already"
    towncrier("build", "--yes", "--version", new, tree=tree)
    path = tree / VERSION
    text = _LINE.sub(f'__version__ = "{new}"', path.read_text(encoding="utf-8"))
    path.write_text(text, encoding="utf-8")
    return None


def towncrier(*arguments, tree=api.REPOSITORY):
    """Run towncrier in a tree."""
    subprocess.run([sys.executable, "-m", "towncrier", *arguments], cwd=tree, check=True)


if __name__ == "__main__":
    if sys.argv[1:] == ["--draft"]:
        towncrier("build", "--draft", "--version", f"{version()} and later")
    else:
        sys.exit(release(*sys.argv[1:]))
