"""Guests that somebody on this master keeps as they are wanted: what moves, starts or stops them
otherwise would be undone, or would run them twice.

A file a guest, with what to do instead. Nobody who keeps none has such a folder.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from saltvirt import errors, names
from saltvirt.fleet import private
from saltvirt.operations import held

_LONGEST = 1000


def _folder(opts: held.Opts) -> Path:
    return Path(opts["cachedir"]) / "virt" / "keepers"


def refuse(opts: held.Opts, name: str) -> None:
    """Raises OperationFailed, with what to do instead, for a guest that is kept."""
    try:
        with open(_folder(opts) / names.guest(name), encoding="utf-8", errors="replace") as file:
            words = file.read(_LONGEST)
    except (FileNotFoundError, NotADirectoryError):
        return
    raise errors.OperationFailed(f"{name} is kept by {words}")


def keep(opts: held.Opts, words: Mapping[str, str]) -> None:
    """These are kept, and no others. words: guest to who keeps it, and what to do instead."""
    folder = _folder(opts)
    there = {path.name for path in folder.glob("[!.]*")}
    for name, text in words.items():
        path = folder / names.guest(name)
        if name not in there or path.read_text(encoding="utf-8", errors="replace") != text:
            private.write(str(path), text)
    for name in there - set(words):
        (folder / name).unlink(missing_ok=True)
