"""Decide which guests are managed: give them to high availability, take them from it, ignore
them."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, fields, replace
from typing import Any
from xml.etree import ElementTree

from saltvirt import errors, names, units
from saltvirt.answers.creation import Phase
from saltvirt.answers.guest_calls import (
    GET_XML,
    LIST_DISKS,
    LIST_STATES,
    SET_AUTOSTART,
    AutostartRequest,
    GuestsRequest,
    NamedGuestRequest,
)
from saltvirt.fleet.client import Fleet
from saltvirt.fleet.keys import KeyStore
from saltvirt.ha.manager import definitions, local_resources, release, status_file
from saltvirt.ha.manager.admin_request import AdminRequest
from saltvirt.ha.manager.config import WARN
from saltvirt.ha.manager.desired_state import DesiredState
from saltvirt.ha.manager.failover_simulation import FailoverSimulation
from saltvirt.ha.model import calls
from saltvirt.ha.model.messages import SHUT_DOWN
from saltvirt.ha.model.registry import IGNORED as STATE_IGNORED
from saltvirt.ha.model.registry import NEW
from saltvirt.ha.model.view import IGNORED, LIVE, RESTART, STARTED, STOPPED, GuestConfig
from saltvirt.operations.cluster import find, inventory
from saltvirt.operations.core.operation import Checked, Reasons, Result
from saltvirt.operations.journal import lock
from saltvirt.placement import facts, policy
from saltvirt.revert import UndoStack

MAX_COUNT = 1000
# a crashed guest was to run; its host may preserve it for examination
_UP_STATES = facts.ACTIVE | {"crashed"}
# less than a boot takes: a host that was heard within this time is still in the reported boot
_HEARD_S = 5
# maximum time until an agent learns that a guest is no longer managed
_RELEASE_WAIT_S = 20
_COUNTS = ("priority", "restarts", "relocates")
# a shorter time could be exceeded by a reboot of the guest
_MIN_SILENT_S, _MAX_SILENT_S = 30, 86400


@dataclass(frozen=True)
class HaOptions:
    """The options as typed; None: unchanged, or the default. state: ``started`` or ``stopped``."""

    priority: Any = None
    restarts: Any = None
    relocates: Any = None
    failback: Any = None
    state: Any = None
    group: Any = None
    agent_silent_s: Any = None

    def apply_to(self, config: GuestConfig) -> GuestConfig:
        """Return the guest's configuration with these options. Raises InvalidInput."""
        values: dict[str, Any] = {}
        for key in _COUNTS:
            if getattr(self, key) is not None:
                values[key] = _parse_count(getattr(self, key), key)
        if self.agent_silent_s is not None:
            values["agent_silent_s"] = _parse_silent_s(self.agent_silent_s)
        if self.failback is not None:
            values["failback"] = _parse_failback(self.failback)
        if self.state is not None:
            if self.state not in (STARTED, STOPPED):
                raise errors.InvalidInput(
                    f"state must be {STARTED} or {STOPPED}, not {units.short_repr(self.state)}"
                )
            values["desired_state"] = self.state
        return replace(config, **values)

    def group_to_join(self, desired: DesiredState, name: str) -> str | None:
        """Return the rule that the guest joins; None if it is in that rule, or there is no such
        rule."""
        rule = desired.rules.get(str(self.group)) if self.group is not None else None
        return str(self.group) if rule and name not in rule.guests else None

    def refuse_unknown_group(self, desired: DesiredState) -> None:
        """Raise NotFound for a group that is no rule."""
        if self.group is not None and str(self.group) not in desired.rules:
            rules = ", ".join(sorted(desired.rules)) or "none"
            raise errors.NotFound(
                f"rule {units.short_repr(self.group)} does not exist: create it with salt-run "
                f"virt.ha_rule; existing rules: {rules}"
            )


def _parse_failback(value: object) -> bool | str:
    if value in (LIVE, True, False, RESTART) and isinstance(value, (bool, str)):
        return True if value == LIVE else value
    raise errors.InvalidInput(
        f"failback must be {LIVE} (or True), {RESTART} or False, not {units.short_repr(value)}"
    )


def _parse_count(value: object, key: str) -> int:
    if isinstance(value, str) and units.is_number(value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_COUNT:
        raise errors.InvalidInput(
            f"{key} must be a whole number from 0 to {MAX_COUNT}, not {units.short_repr(value)}"
        )
    return value


def _parse_silent_s(value: object) -> int:
    minimum, maximum = _MIN_SILENT_S, _MAX_SILENT_S
    seconds = int(value) if isinstance(value, str) and units.is_number(value) else value
    if (
        isinstance(seconds, int)
        and not isinstance(seconds, bool)
        and seconds in (0, *range(minimum, maximum))
    ):
        return seconds
    raise errors.InvalidInput(
        f"agent_silent_s must be 0, or a whole number from {minimum} to below {maximum}, not "
        f"{units.short_repr(value)}"
    )


@dataclass(frozen=True)
class _EnablePlan:
    """config: the new configuration. old: the present one. group: the rule that the guest joins.
    autostart: the guest has autostart, which passes to HA. warning: an addition to the comment."""

    config: GuestConfig
    old: GuestConfig | None
    group: str | None
    autostart: bool = False
    warning: str = ""

    def changes(self) -> dict[str, Any]:
        new, old = _shown(self.config), _shown(self.old) if self.old else None
        changes: dict[str, Any] = {}
        if new != old:
            changes["ha"] = {"old": old, "new": new}
        if self.group:
            changes["group"] = {"old": None, "new": self.group}
        if self.autostart:
            changes["autostart"] = {"old": True, "new": False}
        return changes

    def apply_to(self, desired: DesiredState) -> DesiredState:
        name = self.config.name
        rules = dict(desired.rules)
        if self.group in rules and name not in rules[self.group].guests:
            rule = rules[self.group]
            rules[self.group] = replace(rule, guests=(*rule.guests, name))
        autostarted = desired.autostarted | {name} if self.autostart else desired.autostarted
        guests = {**desired.guests, name: self.config}
        sizes = desired.sizes if self.old else {**desired.sizes, name: self.config.size}
        return replace(desired, guests=guests, sizes=sizes, rules=rules, autostarted=autostarted)


def _shown(config: GuestConfig) -> dict[str, Any]:
    values = {item.name: getattr(config, item.name) for item in fields(config)}
    return {key: value for key, value in values.items() if key not in ("name", "size", "leased")}


def _refuse_incomplete(guest: facts.Guest, host: str) -> None:
    """Raise Incomplete for a guest whose creation has not ended."""
    if guest.phase is Phase.COMPLETE:
        return
    raise errors.Incomplete(
        f"cannot give {guest.name} to high availability: its creation on {host} is running or was "
        f"interrupted: see salt-run virt.repair name={guest.name}"
    )


class Enable:
    """Give a guest to high availability, or change its options.

    created_on: the host on which the caller, who holds the guest's lock, has just created it, with
    regard to the reserve; None: all hosts are asked.
    """

    def __init__(
        self, fleet: Fleet, name: str, options: HaOptions, created_on: str | None = None
    ) -> None:
        self.fleet, self.name, self.options, self.created_on = fleet, str(name), options, created_on
        self.request = AdminRequest(fleet, "ha_enable")

    def check(self) -> Checked:
        """Return what would be changed, or every reason why the guest can run on its host only."""
        reasons = Reasons()
        with reasons:
            name = names.guest(self.name)
            with reasons:
                lock.refuse_taken(self.fleet.opts, name)
            plan = self._plan(reasons)
            reasons.raise_first()
            changes = plan.changes()
            if not changes:
                return Checked(name, self._unchanged_text(plan), nothing=True)
            return Checked(name, self._comment(plan, "would be"), changes)
        return reasons.checked(self.name)

    def run(self) -> Result:
        """Raises NotFound, InvalidInput, OperationFailed."""
        name, operation = names.guest(self.name), "virt.ha_enable"
        guest_lock = (
            contextlib.nullcontext()
            if self.created_on
            else lock.guest(self.fleet.opts, name, operation)
        )
        with guest_lock:
            if self._has_stale_record() and name not in self.request.store.read().guests:
                release.wait_released(self.fleet.opts, name, time.sleep)
            plan = self._plan(Reasons(first=True))
            changes = plan.changes()
            if not changes:
                return Result(name, self._unchanged_text(plan))
            with UndoStack() as undo:
                if plan.autostart:
                    undo.push("autostart", self._autostart, plan.config.host, "on")
                    self._autostart(plan.config.host, "off")
                text = self._text(plan, "is")
                self.request.submit(name, text, plan.apply_to)
                undo.success()
        return Result(name, self._comment(plan, "is"), changes)

    def _comment(self, plan: _EnablePlan, verb: str) -> str:
        warning = f"; {plan.warning}" if plan.warning else ""
        return f"{self._text(plan, verb)}{warning}{self.request.notice}"

    def _autostart(self, host: str, state: str) -> None:
        SET_AUTOSTART.ask(self.fleet, host, AutostartRequest(self.name, state))

    def _text(self, plan: _EnablePlan, verb: str) -> str:
        name = plan.config.name
        if plan.old:
            return f"the high availability options of {name} {verb} changed"
        return f"{name} on {plan.config.host} {verb} given to high availability"

    def _unchanged_text(self, plan: _EnablePlan) -> str:
        return f"{plan.config.name} is already managed by high availability"

    def _plan(self, reasons: Reasons) -> _EnablePlan:
        config, desired = self.request.config, self.request.store.read()
        old = desired.guests.get(self.name)
        guest_config = old or GuestConfig(self.name)
        with reasons:
            guest_config = self.options.apply_to(guest_config)
        with reasons:
            self.options.refuse_unknown_group(desired)
        group = self.options.group_to_join(desired, self.name)
        if old is not None:
            if old.desired_state == IGNORED and guest_config.desired_state != IGNORED:
                with reasons:
                    host, _ = locate_ignored(self.fleet, self.request, self.name)
                    guest_config = replace(guest_config, host=host)
            return _EnablePlan(guest_config, old, group)
        reasons.raise_first()
        with reasons:
            self._refuse_stale()
        host, state = self._locate()
        with reasons:
            self.request.member(host)
        hosts, unreachable = inventory.gather(self.fleet, [host] if self.created_on else None)
        host_inventory = next((item for item in hosts if item.name == host), None)
        size = (
            next((item for item in host_inventory.guests if item.name == self.name), None)
            if host_inventory
            else None
        )
        if host_inventory is None or size is None:
            raise errors.ConnectionFailed(f"{host}: {unreachable.get(host, 'the guest is gone')}")
        with reasons:
            _refuse_incomplete(size, host)
        is_stopped = self.options.state is None and state not in _UP_STATES
        guest_config = replace(
            guest_config,
            host=host,
            size=size,
            desired_state=STOPPED if is_stopped else guest_config.desired_state,
        )
        self._refuse_local(reasons, host_inventory)
        warning = ""
        if not self.created_on:
            with reasons:
                placement_policy = policy.of_master(self.fleet.opts)
                warning = self._reserve(
                    FailoverSimulation(config, desired, hosts, placement_policy), guest_config
                )
        return _EnablePlan(guest_config, None, group, size.autostart, warning)

    def _has_stale_record(self) -> bool:
        """Whether the engine has a record of the guest. If the guest is not managed, the record is
        from before it was taken from HA."""
        return self.name in status_file.load(self.fleet.opts).registry.guests

    def _refuse_stale(self) -> None:
        """Raise OperationFailed for a guest that was taken from HA and whose old record remains: HA
        would start a second instance where the guest was then."""
        engine = status_file.load(self.fleet.opts)
        if self.name in engine.registry.guests:
            reason = release.pending_reason(engine, self.name)
            raise errors.OperationFailed(
                f"{self.name} was taken from high availability, but the agents have not confirmed "
                "that yet" + (f": {reason}" if reason else "")
            )

    def _locate(self) -> tuple[str, str]:
        """Return (host, state) of the guest."""
        if self.created_on is None:
            return find.locate(self.fleet, self.name)
        states = LIST_STATES.ask(self.fleet, self.created_on, GuestsRequest(self.name))
        return self.created_on, states[self.name]

    def _refuse_local(self, reasons: Reasons, host: Any) -> None:
        root = _definition(self.fleet, host.name, self.name)
        disks = LIST_DISKS.ask(self.fleet, host.name, NamedGuestRequest(self.name))
        for reason in local_resources.reasons(root, host, disks):
            with reasons:
                raise errors.InvalidInput(f"{self.name} can run on {host.name} only: {reason}")

    def _reserve(self, simulation: FailoverSimulation, guest_config: GuestConfig) -> str:
        """Return a warning if the guest violates the reserve. Raises OperationFailed if the policy
        refuses that."""
        reason = simulation.refusal(guest_config)
        if not reason:
            return ""
        message = f"{self.name} would violate virt:ha:reserve: {reason}"
        if self.request.config.reserve_policy != WARN:
            raise errors.OperationFailed(message)
        return message


def _release_pending(fleet: Fleet, name: str) -> str:
    """Return why agents still manage the guest, and what not to do until then; or nothing."""
    pending = release.wait_released(fleet.opts, name, time.sleep)
    return f"{pending}: do not move or start the guest before" if pending else ""


def _rebind_key(request: AdminRequest, name: str) -> None:
    """Bind the guest's key to the host on which HA has the guest, from the registry that a majority
    of the hosts stores: a purge or a rename there does not affect another guest. The key of an
    ignored guest follows each move."""
    record, keys = request.engine.registry.guests.get(name), KeyStore(request.fleet.opts)
    bound = keys.host_of(name)
    if record and record.host and record.state != STATE_IGNORED and bound:
        keys.rebind(name, bound, record.host)


class Disable:
    """Take a guest from high availability. It stays as it is, and gets back its autostart. missing:
    a guest that is not managed is no error."""

    def __init__(self, fleet: Fleet, name: str, missing: bool = False) -> None:
        self.fleet, self.name, self.missing = fleet, str(name), missing is True
        self.request = AdminRequest(fleet, "ha_disable")

    def check(self) -> Checked:
        """Return what would be changed."""
        reasons = Reasons()
        with reasons:
            desired = self._desired()
            if self.name not in desired.guests:
                return Checked(self.name, self._unmanaged_text(), nothing=True)
            return Checked(self.name, self._text("would be"), self._changes(desired))
        return reasons.checked(self.name)

    def run(self) -> Result:
        """Raises NotFound, OperationFailed. The result names what its host did not do."""
        name = names.guest(self.name)
        with lock.guest(self.fleet.opts, name, "virt.ha_disable"):
            desired = self._desired()
            if name not in desired.guests:
                return Result(name, self._unmanaged_text())
            text = self._text("is")
            _rebind_key(self.request, name)
            self.request.submit(name, text, lambda current: current.without(name))
            pending = _release_pending(self.fleet, name)
            if not pending and name in desired.autostarted and (reason := self._autostart()):
                pending = f"its autostart was not restored: {reason}"
        message = f"{text}; {pending}" if pending else text
        return Result(name, message, self._changes(desired), complete=not pending)

    def _autostart(self) -> str:
        """Restore autostart. Return why that failed, or nothing. The agent reverts it while it
        still manages the guest."""
        try:
            host, _ = find.locate(self.fleet, self.name)
            end_s = time.monotonic() + _RELEASE_WAIT_S
            request = calls.ManagedGuestRequest(self.name)
            while reason := calls.WHY_MANAGED.ask(self.fleet, host, request):
                if time.monotonic() > end_s:
                    return (
                        f"{host}: {reason}; run this later: salt {host} virt.set_autostart "
                        f"{self.name}"
                    )
                time.sleep(1)
            SET_AUTOSTART.ask(self.fleet, host, AutostartRequest(self.name))
        except errors.VirtError as exc:
            return exc.text
        return ""

    def _desired(self) -> DesiredState:
        desired = self.request.store.read()
        if not self.missing:
            self.request.guest(desired, self.name)
        return desired

    def _unmanaged_text(self) -> str:
        return f"{names.guest(self.name)} is not managed by high availability"

    def _text(self, verb: str) -> str:
        return (
            f"{self.name} {verb} no longer managed by high availability; the guest stays as it is"
        )

    def _changes(self, desired: DesiredState) -> dict[str, Any]:
        changes: dict[str, Any] = {"ha": {"old": _shown(desired.guests[self.name]), "new": None}}
        if self.name in desired.autostarted:
            changes["autostart"] = {"old": False, "new": True}
        return changes


def _definition(fleet: Fleet, host: str, name: str) -> ElementTree.Element:
    xml = GET_XML.ask(fleet, host, NamedGuestRequest(name))
    try:
        return ElementTree.fromstring(xml)
    except ElementTree.ParseError as exc:
        raise errors.BadAnswer(f"{host}: the definition of {name}: {exc}") from exc


def _refuse_other_uuid(fleet: Fleet, host: str, name: str) -> None:
    """Raise OperationFailed for another guest with the name of the ignored one: HA would start it
    elsewhere with the definition of the ignored one."""
    known_uuid = definitions.uuid_of(fleet.opts, name)
    if known_uuid and known_uuid != _definition(fleet, host, name).findtext("uuid"):
        raise errors.OperationFailed(
            f"{name} on {host} is not the guest that high availability manages, which had the "
            f"UUID {known_uuid}: run virt.ha_disable and virt.ha_enable"
        )


def locate_ignored(fleet: Fleet, request: AdminRequest, name: str) -> tuple[str, str]:
    """Return (host, desired state) of a guest that was ignored: its present state. The engine looks
    for it on that host. Raises NotFound if the host is no member, OperationFailed if an instance
    may remain on another host."""
    host, state = find.locate(fleet, name)
    request.member(host)
    record = request.engine.registry.guests.get(name)
    if record is not None and record.state not in (STATE_IGNORED, NEW):
        reason = request.engine.problem or "wait for the engine"
        raise errors.OperationFailed(
            f"the engine does not know yet that {name} is ignored: {reason}"
        )
    hosts = {location.host for location in record.locations} if record else set()
    if hosts and host not in hosts:
        raise errors.OperationFailed(
            f"{name} is on {host} now, but the agent of its previous host "
            f"{', '.join(sorted(hosts))} has not confirmed yet that it is gone there: run the "
            "command again in some seconds; if that host is down, run virt.ha_disable and "
            "virt.ha_enable"
        )
    _refuse_silent(request.engine, host, name)
    _refuse_other_uuid(fleet, host, name)
    return host, STARTED if state in _UP_STATES else STOPPED


def _refuse_silent(engine: status_file.EngineStatus, host: str, name: str) -> None:
    """Raise OperationFailed while the agent of the guest's host is silent, or reports that the host
    shuts down and runs nothing: masters would take that as proof about the guest."""
    host_status = engine.report.hosts.get(host)
    if host_status is None or engine.problem:
        return
    if host_status.phase == SHUT_DOWN:
        raise errors.OperationFailed(
            f"{host}, the host of {name}, is shutting down: wait until the shutdown has ended"
        )
    if not engine.hears(host, _HEARD_S):
        raise errors.OperationFailed(
            f"the agent of {host}, the host of {name}, does not respond: run the command again "
            f"when it does (salt-run virt.ha_status; systemctl status salt-virt-ha on {host})"
        )


class Ignore:
    """Have high availability ignore a guest, or manage it again."""

    def __init__(self, fleet: Fleet, name: str, off: bool = False) -> None:
        self.fleet, self.name, self.off = fleet, str(name), off
        self.request = AdminRequest(fleet, "ha_ignore")

    def check(self) -> Checked:
        """Return what would be changed."""
        reasons = Reasons()
        with reasons:
            old, new = self._states()
            if old.desired_state == new.desired_state:
                return Checked(self.name, self._text("is", "already"), nothing=True)
            changes = {"ha": {"old": old.desired_state, "new": new.desired_state}}
            return Checked(self.name, self._text("would be"), changes)
        return reasons.checked(self.name)

    def run(self) -> Result:
        """Raises NotFound, OperationFailed."""
        name = names.guest(self.name)
        with lock.guest(self.fleet.opts, name, "virt.ha_ignore"):
            old, new = self._states()
            if old.desired_state == new.desired_state:
                return Result(name, self._text("is", "already"))
            text = self._text("is")
            if not self.off:
                _rebind_key(self.request, name)
            self.request.submit(name, text, lambda desired: _with_desired(desired, new))
            pending = "" if self.off else _release_pending(self.fleet, name)
        changes = {"ha": {"old": old.desired_state, "new": new.desired_state}}
        notice = f"; {pending}" if pending else self.request.notice
        return Result(name, f"{text}{notice}", changes, complete=not pending)

    def _states(self) -> tuple[GuestConfig, GuestConfig]:
        """Return the present and the new configuration."""
        if not isinstance(self.off, bool):
            raise errors.InvalidInput(
                f"off must be True or False, not {units.short_repr(self.off)}"
            )
        desired = self.request.store.read()
        self.request.guest(desired, self.name)
        old = desired.guests[self.name]
        if not self.off:
            return old, replace(old, desired_state=IGNORED)
        if old.desired_state != IGNORED:
            return old, old
        host, desired_state = locate_ignored(self.fleet, self.request, self.name)
        return old, replace(old, desired_state=desired_state, host=host)

    def _text(self, verb: str, suffix: str = "") -> str:
        message = f"{self.name} {verb} {'no longer ignored' if self.off else 'ignored'}"
        return f"{message} by high availability {suffix}".rstrip()


def _with_desired(desired: DesiredState, new: GuestConfig) -> DesiredState:
    old = desired.guests.get(new.name)
    if old is None:
        raise errors.NotFound(f"{new.name} is no longer managed by high availability")
    changed = replace(old, desired_state=new.desired_state, host=new.host)
    return replace(desired, guests={**desired.guests, new.name: changed})
