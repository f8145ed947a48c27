"""Which names a guest may have.

A guest's name is its minion id, its host name and a part of file names, so it keeps
to what all three allow: RFC 1123 host names, in lower or upper case.
"""

from __future__ import annotations

import re

from saltvirt.errors import InvalidInput

_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9])?"
_UNFIT = re.compile(r"[/\x00-\x1f\x7f]")
_GUEST = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
# checkpoints that backups make begin with it
CHECKPOINT = "salt-virt."
MAX_LENGTH = 200  # file names end at 255 bytes and we append disk names and suffixes


def guest(name: object) -> str:
    """The name, when a guest may have it.

    Raises InvalidInput for anything else: empty, with ``/``, ``..``, spaces, quotes,
    control characters, leading dashes or dots.
    """
    text = str(name)
    if not _GUEST.fullmatch(text) or len(text) > MAX_LENGTH:
        raise InvalidInput(
            f"{text!r} cannot be a guest's name: use letters, digits, '-', '_' and '.', "
            f"begin and end with a letter or digit, at most {MAX_LENGTH} characters"
        )
    return text


def guest_list(value: object) -> list[str] | None:
    """The names where several were given: a list, or a text with commas. None for a single one.

    Raises InvalidInput for one that no guest may have, and for one that is there twice.
    """
    items = value.split(",") if isinstance(value, str) and "," in value else value
    if not isinstance(items, list):
        return None
    unique_names: list[str] = []
    for item in items:
        # YAML reads a name of digits as a number
        if isinstance(item, bool) or not isinstance(item, (str, int)):
            raise InvalidInput(f"{item!r} cannot be a guest's name: give a list of names")
        name = guest(str(item).strip())
        if name in unique_names:
            raise InvalidInput(f"{name} is named twice")
        unique_names.append(name)
    if not unique_names:
        raise InvalidInput("the list of names is empty")
    return unique_names


def existing_guest(name: object) -> str:
    """The name of a guest that is there, whoever gave it: libvirt takes more than we do.

    Raises InvalidInput for what libvirt does not take either, and for ``.`` and ``..``.
    """
    text = str(name)
    if not text.strip() or text in (".", "..") or _UNFIT.search(text):
        raise InvalidInput(f"{text!r} cannot be a guest's name")
    return text
