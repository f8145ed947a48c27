"""The HaProvider that the verbs for creating and placing guests use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from functools import cached_property
from typing import Any
from xml.etree import ElementTree

from saltvirt import errors, units
from saltvirt.fleet import secret
from saltvirt.fleet.client import Fleet
from saltvirt.ha.manager import config, inventory_poller, status_file
from saltvirt.ha.manager import local_resources as suits
from saltvirt.ha.manager.admin_request import AdminRequest, refuse_unless_leading
from saltvirt.ha.manager.desired_state import DesiredState, DesiredStateStore
from saltvirt.ha.manager.enable import Disable, Enable, HaOptions
from saltvirt.ha.manager.failover_simulation import FailoverSimulation
from saltvirt.ha.model.host_capacity import HostCapacity
from saltvirt.ha.model.registry import UP
from saltvirt.ha.model.reserve import Reserve
from saltvirt.ha.model.view import STARTED, GuestConfig, GuestRule
from saltvirt.operations.core.operation import Operation
from saltvirt.placement import choose, facts, policy
from saltvirt.placement.calls import PLAN_GUEST, CreateRequest
from saltvirt.spec.base import unknown
from saltvirt.system import file_lock

_KEYS = tuple(item.name for item in fields(HaOptions))


class ClusterHaProvider:
    """An HaProvider whose options are those of ``virt.ha_enable``."""

    def __init__(self, opts: file_lock.Opts) -> None:
        self._opts = opts
        self._store = DesiredStateStore(opts)

    @cached_property
    def _config(self) -> config.HaConfig:
        return config.of_master(self._opts)

    @property
    def has_reserve(self) -> bool:
        """See HaProvider."""
        return bool(self._config.policy.reserve)

    def parse_options(self, value: Any, start: bool | None = None) -> HaOptions | bool | None:
        """See HaProvider."""
        if value is None or value is False:
            return None if value is None else False
        if value is not True and not isinstance(value, Mapping):
            raise errors.InvalidInput(
                f"ha must be True, False or a mapping of {', '.join(_KEYS)}, "
                f"not {units.short_repr(value)}"
            )
        values = {} if value is True else dict(value)
        for key in values:
            if key not in _KEYS:
                raise unknown(str(key), _KEYS, "ha")
        options = HaOptions(**values)
        _ = self._config
        options.apply_to(GuestConfig("-"))
        options.refuse_unknown_group(self._store.read())
        if None not in (options.state, start) and (options.state == STARTED) is not start:
            raise errors.InvalidInput(
                f"ha: state {options.state} contradicts start={start}: high availability would "
                "undo it"
            )
        return options

    def refuse_name(self, name: str) -> None:
        """See HaProvider."""
        if name in self._store.read().guests:
            raise errors.AlreadyExists(
                f"{name} is the name of a guest of high availability: run salt-run "
                f"virt.ha_disable {name} if that guest no longer exists"
            )

    def rejected_hosts(
        self, name: str, options: HaOptions, hosts: Sequence[facts.Host]
    ) -> dict[str, choose.Reason]:
        """See HaProvider."""
        if len(self._config.masters) > 1:  # else it could not be given
            refuse_unless_leading(status_file.load(self._opts), self._config.name)
        simulation, desired = self._simulation(hosts)
        view = simulation.view
        view = replace(
            view,
            guests={**view.guests, name: options.apply_to(GuestConfig(name))},
            rules=_rules(desired, name, options),
        )
        capacity = HostCapacity(view, simulation.registry, 0)
        conflicts: dict[str, choose.Reason] = {}
        for host in hosts:
            if host.name not in self._config.members:
                conflicts[host.name] = (
                    "ha",
                    "is not a member of high availability (virt:ha:members)",
                )
            elif reason := capacity.conflict(name, host.name):
                conflicts[host.name] = ("ha", reason)
        return conflicts

    def local_resources(
        self, fleet: Fleet, name: str, host: facts.Host, request: CreateRequest
    ) -> list[str]:
        """See HaProvider."""
        definition = replace(secret.without(request), test=True, definition=True)
        planned = PLAN_GUEST.ask(fleet, host.name, definition)
        disks = {target: {"backing file": {"file": path}} for target, path in planned.bases.items()}
        try:
            if "<!" in planned.definition:
                raise ValueError("the XML has a document type")
            root = ElementTree.fromstring(planned.definition)
        except (ElementTree.ParseError, ValueError) as exc:
            raise errors.BadAnswer(f"{host.name}: the definition of {name}: {exc}") from exc
        return [*suits.reasons(root, host, disks)]

    def plan_change(
        self, fleet: Fleet, name: str, options: HaOptions | bool, created_on: str | None = None
    ) -> Operation | None:
        """See HaProvider."""
        desired = self._store.read()
        old = desired.guests.get(name)
        if not isinstance(options, HaOptions):
            return Disable(fleet, name) if old else None
        if old and options.apply_to(old) == old and not options.group_to_join(desired, name):
            return None
        return Enable(fleet, name, options, created_on)

    def refresh(self) -> None:
        """See HaProvider."""
        path = inventory_poller.refresh_path(self._opts)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.touch(mode=0o600)

    def pending_arrivals(self, host: str) -> str:
        """See HaProvider."""
        engine = status_file.load(self._opts)
        if host not in self._config.members or engine.problem or not engine.report.leading:
            return ""
        if engine.registry.host(host).state == UP:
            return f"the engine virt_ha does not know yet that {host} is in maintenance"
        guests = engine.registry.guests
        coming = [name for name, record in sorted(guests.items()) if record.target == host]
        return f"migrating to the host: {', '.join(coming)}" if coming else ""

    def idle_reason(self) -> str:
        """See HaProvider."""
        engine, several = status_file.load(self._opts), len(self._config.masters) > 1
        if engine.registry.armed or (several and not engine.report.leading):
            return ""
        return status_file.DISARMED

    def forget(self, fleet: Fleet, name: str) -> None:
        """See HaProvider."""
        if name in self._store.read().guests:
            text = f"{name} is no longer managed by high availability: its creation failed"
            AdminRequest(fleet, "init").submit(name, text, lambda desired: desired.without(name))

    def capacity_reserve(self, hosts: Sequence[facts.Host]) -> HaCapacityReserve | None:
        """See HaProvider."""
        if not self.has_reserve:
            return None
        simulation, desired = self._simulation(hosts)
        return HaCapacityReserve(
            simulation.account(), desired, self._config.reserve_policy == config.WARN
        )

    def capacity(
        self,
        hosts: Sequence[facts.Host],
        request: facts.PlacementRequest,
        max_guests: Mapping[str, int],
    ) -> dict[str, Any] | None:
        """See HaProvider."""
        if not self.has_reserve:
            return None
        reserve = self._simulation(hosts)[0].account()
        guests = {host.name: facts.as_guest(request.for_host(host)) for host in hosts}
        return {
            "hosts": self._config.policy.reserve,
            "policy": self._config.reserve_policy,
            "fit": reserve.fits(guests, max_guests),
            "short": [loss.text() for loss in reserve.shortfalls],
        }

    def _simulation(self, hosts: Sequence[facts.Host]) -> tuple[FailoverSimulation, DesiredState]:
        desired = self._store.read()
        placement_policy = policy.of_master(self._opts)
        return FailoverSimulation(self._config, desired, [*hosts], placement_policy), desired


class HaCapacityReserve:
    """See CapacityReserve."""

    def __init__(self, reserve: Reserve, desired: DesiredState, warns: bool) -> None:
        self._reserve, self._desired, self.warns = reserve, desired, warns

    def refusal(self, host: str, guest: facts.Guest, options: HaOptions | None = None) -> str:
        """See CapacityReserve."""
        return self._reserve.refusal(host, guest, *self._config_and_rules(guest, options))

    def take(self, host: str, guest: facts.Guest, options: HaOptions | None = None) -> None:
        """See CapacityReserve."""
        self._reserve.take(host, guest, *self._config_and_rules(guest, options))

    def _config_and_rules(
        self, guest: facts.Guest, options: HaOptions | None
    ) -> tuple[GuestConfig | None, tuple[GuestRule, ...] | None]:
        if not options:
            return None, None
        return options.apply_to(GuestConfig(guest.name)), _rules(self._desired, guest.name, options)


def _rules(desired: DesiredState, name: str, options: HaOptions) -> tuple[GuestRule, ...]:
    """Return all rules, with the guest in the group that it joins."""
    joined = options.group_to_join(desired, name)
    return tuple(
        replace(rule, guests=(*rule.guests, name)) if key == joined else rule
        for key, rule in desired.rules.items()
    )
