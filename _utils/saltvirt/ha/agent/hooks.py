"""What high availability restricts on a hypervisor."""

from __future__ import annotations

from saltvirt import errors, sanitize
from saltvirt.host.hooks import HostHooks


class HaHostHooks(HostHooks):
    """See HostHooks."""

    def check_autostart(self, name: str) -> None:
        """See HostHooks."""
        from saltvirt.ha.agent import managed_guests  # noqa: PLC0415 - every job imports the hooks

        reason = managed_guests.describe(name)
        if reason:
            raise errors.Refused(
                f"{reason}: high availability starts it, so it cannot start with its host"
            )

    def check_network_change(self) -> None:
        """Refuse the change if this host has guests: a host that is disconnected for longer than it
        feeds its watchdog is reset, and a failed change of its address disconnects it for
        longer."""
        from saltvirt.ha.agent import install, managed_guests  # noqa: PLC0415 - as above

        host = install.member_name()
        guests = managed_guests.assigned(host) if host else []
        if guests:
            raise errors.OperationFailed(
                f"high availability has guests here ({sanitize.one_line(', '.join(guests), 100)}): "
                "if the network fails, this host is reset before the change is rolled back. "
                f"Migrate them first (salt-run virt.evacuate {host}), or pass force=True"
            )

    def port(self) -> int | None:
        """See HostHooks."""
        from saltvirt.ha.agent import install  # noqa: PLC0415 - as above

        return install.port()


HOOKS = HaHostHooks()
