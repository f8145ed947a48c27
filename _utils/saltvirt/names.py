"""Names of guests.

A guest's name is its minion id, its host name and part of file names, so it must be a valid host
name of RFC 1123, in lower or upper case.
"""

from __future__ import annotations

import re

from saltvirt.errors import InvalidInput

_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9])?"
_UNFIT = re.compile(r"[/\x00-\x1f\x7f]")
_GUEST = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
# prefix of the checkpoints of backups
CHECKPOINT = "salt-virt."
# key of the exit code in answers of the runner, beside the names of guests
EXIT_CODE = "retcode"
MAX_LENGTH = 200  # file names are limited to 255 bytes, and disk names and suffixes are appended


def guest(name: object) -> str:
    """The name, if it is valid for a guest.

    Raises InvalidInput for anything else: empty, with ``/``, ``..``, spaces, quotes,
    control characters, leading dashes or dots.
    """
    text = str(name)
    _refuse_reserved(text)
    if not _GUEST.fullmatch(text) or len(text) > MAX_LENGTH:
        raise InvalidInput(
            f"{text!r} cannot be a guest's name: use letters, digits, '-', '_' and '.', "
            f"begin and end with a letter or digit, at most {MAX_LENGTH} characters"
        )
    return text


def _refuse_reserved(text: str) -> None:
    """Raise InvalidInput for a name that has another meaning in answers of the runner."""
    if text == EXIT_CODE:
        raise InvalidInput(f"{text!r} cannot be a guest's name: Salt reads it as an exit code")


def guest_list(value: object) -> list[str] | None:
    """The names if several are given: a list, or text with commas. None for a single name.

    Raises InvalidInput for invalid and duplicate names.
    """
    items = value.split(",") if isinstance(value, str) and "," in value else value
    if not isinstance(items, list):
        return None
    unique_names: list[str] = []
    for item in items:
        # YAML parses a name of digits as a number
        if isinstance(item, bool) or not isinstance(item, (str, int)):
            raise InvalidInput(f"{item!r} cannot be a guest's name: give a list of names")
        name = guest(str(item).strip())
        if name in unique_names:
            raise InvalidInput(f"{name} is given twice")
        unique_names.append(name)
    if not unique_names:
        raise InvalidInput("the list of names is empty")
    return unique_names


def existing_guest(name: object) -> str:
    """The name of an existing guest, which may be any name that libvirt accepts.

    Raises InvalidInput for names that libvirt does not accept, and for ``.`` and ``..``.
    """
    text = str(name)
    _refuse_reserved(text)
    if not text.strip() or text in (".", "..") or _UNFIT.search(text):
        raise InvalidInput(f"{text!r} cannot be a guest's name")
    return text
