"""States of the host of a guest."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

from saltvirt.errors import NotFound, VirtError
from saltvirt.migration import transport
from saltvirt.migration.options import Options
from saltvirt.states.result import answer

if TYPE_CHECKING:
    from saltvirt.states.result import Answer, StateHost


def arguments() -> list[str]:
    """The arguments of ``virt.migrated`` and ``virt.on_host`` in addition to their signature."""
    return sorted(field.name for field in fields(Options))


def migrated(host: StateHost, name: str, target: str, me: str, **options: Any) -> Answer:
    """See ``virt.migrated``. me: this host's name."""
    destination = transport.parse(target)
    if name in host.call("list_domains"):
        if destination.host == me:
            return answer(name, comment=f"{name} is on {me}")
        return _move(host, name, target, me, options)
    if destination.host == me:
        raise NotFound(f"{name} is not on {me}; apply this on the host that has it")
    if name in host.call("list_domains", connection=destination.uri):
        return answer(name, comment=f"{name} is on {destination.host}")
    raise NotFound(f"{name} is neither on {me} nor on {destination.host}")


def on_host(host: StateHost, name: str, target: str, me: str, **options: Any) -> Answer:
    """See ``virt.on_host``. me: this host's name."""
    if name in host.call("list_domains"):
        return migrated(host, name, target, me, **options)
    if transport.parse(target).host != me:
        return answer(name, comment=f"{name} is not on {me}")
    raise NotFound(f"{name} is not on {me}; apply this on the host that has it, too")


def _move(host: StateHost, name: str, target: str, me: str, options: dict[str, Any]) -> Answer:
    move_changes = {name: {"host": {"old": me, "new": transport.parse(target).host}}}
    if host.test:
        verdict = host.call("migratable", name, target, **options)
        if not verdict["migratable"]:
            raise VirtError("; ".join(verdict["reasons"]))
        return answer(name, move_changes, f"{name} would be moved to {target}", test=True)
    host.call("migrate", name, target, **options)
    return answer(name, move_changes, f"{name} was moved to {target}")
