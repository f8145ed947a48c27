"""Protection of firmware variables against a change of firmware."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from saltvirt import errors
from saltvirt.host.storage import files

if TYPE_CHECKING:
    from saltvirt.design.caps import Caps
    from saltvirt.xml.domain.domain import Domain


def refuse_change(name: str, actual: Domain, desired: Domain, caps: Caps) -> None:
    """Raise Refused if a guest would start with another firmware on its existing variables.

    They contain the secure boot keys and boot entries of the previous firmware. actual, desired:
    its definitions before and after. caps: the capabilities of its machine type.
    """
    secure_by_itself = bool(caps.domain and caps.domain.secure_boot)
    old_kind, new_kind = (_kind(domain, secure_by_itself) for domain in (actual, desired))
    if not old_kind or not new_kind or old_kind == new_kind:
        return
    path = files.variables_of(actual.need())
    if path and os.path.exists(path):
        raise errors.Refused(
            f"boot: {name} would start with {new_kind[0]} instead of {old_kind[0]}, with the "
            f"variables of the old firmware in {path}: shut it down, move that file away and try "
            "again; it then starts with new variables, without its boot entries and its own keys"
        )


def _kind(domain: Domain, secure_by_itself: bool) -> tuple[str, ...]:
    """Return a description of the firmware and its template; empty for a BIOS."""
    system = domain.os
    if system.firmware == "efi":
        secure = secure_by_itself if system.secure is None else system.secure
        if secure and system.enrolled is False:
            return ("firmware with secure boot and no enrolled keys",)
        return ("firmware with secure boot" if secure else "firmware without secure boot",)
    if system.loader and system.loader_type == "pflash":
        return (f"firmware {system.loader}", system.nvram_template or "")
    return ()
