"""Build a standalone program from the parts of the library that it needs, for any Python."""

from __future__ import annotations

import ast
import hashlib
import io
import os
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

_MAIN = """\
import sys

from saltvirt.{module} import main

sys.exit(main(sys.argv[1:]))
"""
# the package's __init__.py in the archive: updates do not affect a running program
_PACKAGE = '''\
"""The part of Salt Virt that a program needs."""


def check():
    """It is never old."""
'''
# the code of decisions and messages
_RULES = ("saltvirt/ha/model/", "saltvirt/ha/agent/", "saltvirt/schema.py")
_ZIP_DATE = (1980, 1, 1, 0, 0, 0)


def build(library: str | Path, module: str) -> bytes:
    """The archive. library: folder of the package saltvirt. module: its module that has ``main``.
    The archive is reproducible."""
    home = Path(library)
    main = _MAIN.format(module=module).encode()
    files = {"__main__.py": main, "saltvirt/__init__.py": _PACKAGE.encode()}
    for path in needed(home, module):
        files[f"saltvirt/{path.relative_to(home)}"] = path.read_bytes()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in sorted(files):
            info = zipfile.ZipInfo(name, _ZIP_DATE)
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, files[name])
    return buffer.getvalue()


def digest(path: str | Path, module: str) -> str:
    """The digest of a program's rules: the files of the packages in _RULES. path: an archive of
    ``build``, or the library that it would be built from."""
    home = Path(path)
    if home.is_dir():
        files = {
            f"saltvirt/{source_file.relative_to(home)}": source_file.read_bytes()
            for source_file in needed(home, module)
        }
    else:
        with zipfile.ZipFile(home) as archive:
            files = {name: archive.read(name) for name in archive.namelist()}
    hasher = hashlib.sha256()
    for name in sorted(files):
        if name.startswith(_RULES):
            hasher.update(f"{name} {hashlib.sha256(files[name]).hexdigest()}\n".encode())
    return hasher.hexdigest()


def unpacked_folder(library: str | Path, module: str, folder: str) -> str:
    """The path of the program as a folder, in a private folder. It is created once for each state
    of the library, and contains Python's compiled files. Folders of other states are kept, because
    a process may use them."""
    path = os.path.join(folder, f"{module}-{_fingerprint(Path(library))}")
    if os.path.isdir(path):
        return path
    part = tempfile.mkdtemp(dir=folder, prefix=".new-")
    try:
        with zipfile.ZipFile(io.BytesIO(build(library, module))) as archive:
            archive.extractall(part)
        os.rename(part, path)
    except OSError:
        shutil.rmtree(part)
        if not os.path.isdir(path):  # no other process was faster
            raise
    return path


def _fingerprint(home: Path) -> str:
    """A value that changes if a file of the library changes."""
    hasher = hashlib.sha256()
    for path in sorted(home.rglob("*.py")):
        status = path.stat()
        hasher.update(f"{path} {status.st_size} {status.st_mtime_ns} {status.st_ino}\n".encode())
    return hasher.hexdigest()[:16]


def needed(home: Path, module: str) -> set[Path]:
    """The files that a module imports, directly or indirectly."""
    required: set[Path] = set()
    waiting = [*_files(home, f"saltvirt.{module}")]
    while waiting:
        path = waiting.pop()
        if path in required:
            continue
        required.add(path)
        for name in _imported(path):
            waiting += _files(home, name)
    return required


def _imported(path: Path) -> Iterator[str]:
    """The names in saltvirt that a file imports, including names within modules."""
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def _files(home: Path, name: str) -> Iterator[Path]:
    """The file of a module of saltvirt, and those of its packages."""
    top, *rest = name.split(".")
    if top != "saltvirt" or not rest:
        return
    for end in range(1, len(rest) + 1):
        module_path = home.joinpath(*rest[:end])
        for path in (module_path / "__init__.py", module_path.with_name(f"{module_path.name}.py")):
            if path.is_file():
                yield path
