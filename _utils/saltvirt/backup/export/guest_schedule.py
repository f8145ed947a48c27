"""Backup setting in the metadata of a guest."""

from __future__ import annotations

from saltvirt import errors
from saltvirt.backup.model import backup_schedule
from saltvirt.host.connection import libvirt, translated
from saltvirt.host.domain import lookup, metadata
from saltvirt.xml.domain.metadata import MetadataEntry


def set_schedule(conn: libvirt.virConnect, name: str, text: str, test: bool) -> str | None:
    """Change the setting; return the previous one. test: change nothing.

    Raises NotFound, InvalidInput, and Unsupported for a guest that was not created by Salt Virt.
    """
    if backup_schedule.from_text(text) is None:
        raise errors.InvalidInput(f"{text!r} is not a valid backup setting")
    dom = lookup.lookup(conn, name)
    with translated(f"write the backup setting of {name}"):
        record = metadata.of_domain(dom)
        if not record:
            raise errors.Unsupported(
                f"{name} was not created by Salt Virt: it has no record for a backup setting"
            )
        record = record.copy()
        before = next((entry for entry in record.entries if entry.key == backup_schedule.KEY), None)
        previous = before.value if before is not None else None
        if test or previous == text:
            return previous
        if before is not None:
            before.value = text
        else:
            record.entries.append(MetadataEntry(key=backup_schedule.KEY, value=text))
        metadata.write(dom, record)
    return previous
