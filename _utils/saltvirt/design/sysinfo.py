"""SMBIOS tables and fw_cfg items of the guest."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

from saltvirt.design.put import merge, replace
from saltvirt.errors import Unsupported
from saltvirt.spec.base import REMOVE
from saltvirt.spec.sysinfo import GROUPS
from saltvirt.xml.domain.sysinfo import FW_CFG, SMBIOS, Baseboard, Sysinfo, SysinfoEntry

if TYPE_CHECKING:
    from saltvirt.design.context import Context
    from saltvirt.spec.sysinfo import SysinfoSpec
    from saltvirt.xml.domain.domain import Domain

_ALL = (*GROUPS, "oem_strings")
# group: the list of its elements
_LISTS = {"baseboard": "baseboards"}


def apply(spec: SysinfoSpec | None, domain: Domain, context: Context) -> None:
    """Apply a SysinfoSpec to a domain. What it does not name is kept."""
    if spec is None:
        return
    if not context.qemu:
        raise Unsupported(f"sysinfo: guests of {context.virt_type} have none")
    if any(getattr(spec, word) is not None for word in _ALL):
        sysinfo = _of_type(domain, SMBIOS)
        for group in GROUPS:
            _group(spec, group, sysinfo)
        if spec.oem_strings is not None:
            strings = [SysinfoEntry(text=text) for text in spec.oem_strings or ()]
            replace(sysinfo, "oem_strings", strings)
        domain.os.smbios = "sysinfo" if _has_content(sysinfo) else None
        _remove_empty(sysinfo, domain)
    if spec.fw_cfg is not None:
        sysinfo = _of_type(domain, FW_CFG)
        merge(sysinfo, "entries", spec.fw_cfg, SysinfoEntry, "name", _set_item)
        _remove_empty(sysinfo, domain)


def _of_type(domain: Domain, kind: str) -> Sysinfo:
    existing = next((item for item in domain.sysinfos if item.type == kind), None)
    return existing or domain.sysinfos.append(Sysinfo(type=kind))


def _group(spec: SysinfoSpec, name: str, sysinfo: Sysinfo) -> None:
    group = getattr(spec, name)
    if group is REMOVE:
        setattr(sysinfo, _LISTS.get(name, name), [])
    if not group:
        return
    entries = _first_board(sysinfo).entries if name == "baseboard" else getattr(sysinfo, name)
    existing = {entry.name: entry for entry in entries}
    for field in fields(group):
        value = getattr(group, field.name)
        if value is REMOVE and field.name in existing:
            entries.remove(existing[field.name])
        elif value is not None and value is not REMOVE:
            entry = existing.get(field.name) or entries.append(SysinfoEntry(name=field.name))
            entry.text = value


def _first_board(sysinfo: Sysinfo) -> Baseboard:
    boards = sysinfo.baseboards
    return boards[0] if len(boards) else boards.append(Baseboard())


def _set_item(entry: SysinfoEntry, value: str) -> None:
    if entry.text != value:
        entry.file = None
        entry.text = value


def _has_content(sysinfo: Sysinfo) -> bool:
    return any(len(getattr(sysinfo, _LISTS.get(name, name))) for name in (*_ALL, "entries"))


def _remove_empty(sysinfo: Sysinfo, domain: Domain) -> None:
    if not _has_content(sysinfo):
        domain.sysinfos.remove(sysinfo)
