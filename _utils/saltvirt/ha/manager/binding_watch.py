"""Watch for managed guests that have become bound to their host, for example through a disk on
local storage or a device."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from xml.etree import ElementTree

from saltvirt.ha.manager import local_resources
from saltvirt.ha.manager.definitions import StoredDefinition
from saltvirt.ha.model.registry import HaGuestRecord, Registry
from saltvirt.ha.model.view import HostBinding
from saltvirt.placement.facts import Host


@dataclass(frozen=True)
class _CheckedGuest:
    digest: str
    host: Host
    binding: HostBinding | None


class BindingWatch:
    """Checks each guest again when its definition or its host changes, and a guest that is bound
    whenever its host reports its storage."""

    def __init__(self) -> None:
        self._checked: dict[str, _CheckedGuest] = {}

    def evaluate(
        self,
        definitions: Iterable[StoredDefinition],
        registry: Registry,
        placement_hosts: Mapping[str, Host],
    ) -> dict[str, HostBinding]:
        """Return the bindings by guest."""
        old, self._checked = self._checked, {}
        for definition in definitions:
            checked = old.get(definition.name)
            host = placement_hosts.get(_host(registry.guests.get(definition.name)))
            if host is not None and not _is_current(checked, definition, host):
                checked = _CheckedGuest(definition.digest, host, _binding(definition, host))
            if checked is not None:
                self._checked[definition.name] = checked
        return {name: checked.binding for name, checked in self._checked.items() if checked.binding}


def _host(record: HaGuestRecord | None) -> str:
    """Return the present or last host of the guest."""
    if record is None:
        return ""
    places = {location.host for location in record.locations}
    return places.pop() if len(places) == 1 else record.last


def _is_current(checked: _CheckedGuest | None, definition: StoredDefinition, host: Host) -> bool:
    if checked is None or (checked.digest, checked.host.name) != (definition.digest, host.name):
        return False
    return checked.binding is None or checked.host is host


def _binding(definition: StoredDefinition, host: Host) -> HostBinding | None:
    reasons = list(local_resources.reasons(ElementTree.fromstring(definition.xml), host, {}))
    return HostBinding(host.name, "; ".join(reasons)) if reasons else None
