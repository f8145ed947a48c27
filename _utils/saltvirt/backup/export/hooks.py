"""What backups restrict on a hypervisor: guests in a live restore, and replaced guests."""

from __future__ import annotations

from collections.abc import Iterator

from saltvirt import errors
from saltvirt.backup.export import live_restores, replaced_guest
from saltvirt.host.hooks import HostHooks, RetainedGuest


class BackupHostHooks(HostHooks):
    """See HostHooks."""

    def check_operation(self, operation: str, name: str) -> None:
        """See HostHooks."""
        live_restores.refuse(operation, name)

    def check_start(self, name: str) -> None:
        """See HostHooks."""
        live_restores.may_start(name)

    def check_rename(self, name: str, uuid: str) -> None:
        """See HostHooks."""
        replaced = replaced_guest.load(uuid)
        if replaced:  # the names of its files distinguish the two guests
            raise errors.Refused(
                f"the guest that {replaced.backup} replaced is still kept: virt.backup_confirm "
                f"{name} deletes it, virt.backup_undo {name} restores it; then rename {name}"
            )

    def incomplete_reason(self, name: str) -> str | None:
        """See HostHooks."""
        restore = live_restores.load(name)
        if restore is None:
            return None
        return (
            f"the guest still runs from the backup {restore.backup_id}: salt-run "
            f"virt.backup_instant {name} waits until all its blocks are copied"
        )

    def retained_guests(self, uuid: str | None = None) -> Iterator[RetainedGuest]:
        """See HostHooks."""
        for guest in replaced_guest.load_all() if uuid is None else [replaced_guest.load(uuid)]:
            if guest:
                yield RetainedGuest(
                    guest.uuid,
                    f"{guest.name} before it was replaced by {guest.backup}",
                    f"needed by {guest.name} as it was before {guest.backup} replaced it: "
                    f"virt.backup_confirm {guest.name} host=HOST deletes it",
                    guest.tree,
                )

    def interrupted_guests(self) -> list[str]:
        """See HostHooks."""
        from saltvirt.backup.export import request  # noqa: PLC0415 - every job imports the hooks

        return request.interrupted_guests()


HOOKS = BackupHostHooks()
