"""What a guest says of its backups, in its record."""

from __future__ import annotations

from saltvirt import errors
from saltvirt.backup.model import backup_schedule
from saltvirt.host.connection import libvirt, translated
from saltvirt.host.domain import lookup, metadata
from saltvirt.xml.domain.metadata import MetadataEntry


def set_schedule(conn: libvirt.virConnect, name: str, text: str, test: bool) -> str | None:
    """How the guest said that it is to be backed up; from now on it says the text. test: it does
    not. Raises NotFound, InvalidInput, Unsupported for a guest that is none of ours."""
    if backup_schedule.from_text(text) is None:
        raise errors.InvalidInput(f"{text!r} is no wish for backups")
    dom = lookup.lookup(conn, name)
    with translated(f"write how {name} is to be backed up"):
        record = metadata.of_domain(dom)
        if not record:
            raise errors.Unsupported(
                f"{name} was not made by Salt Virt: it has no record that could say how it is to "
                "be backed up"
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
