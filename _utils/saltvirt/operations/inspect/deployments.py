"""List the deployments: the guests that each lists, and those that the hosts have."""

from __future__ import annotations

import difflib
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from saltvirt import errors, units
from saltvirt.answers.creation import Phase
from saltvirt.fleet.client import Fleet
from saltvirt.operations.cluster import inventory
from saltvirt.operations.journal import deployment_record, location_cache, times
from saltvirt.operations.journal.deployment_record import DeploymentRecord, ListedGuest
from saltvirt.placement import facts

# the status of a guest of a deployment
PRESENT, MISSING, UNKNOWN = "present", "missing", "unknown"
TO_REMOVE, RETAINED = "to_remove", "kept"
STATUSES = (PRESENT, MISSING, UNKNOWN, TO_REMOVE, RETAINED)
# a deployment without a guest is no longer listed so long after its last call
_FORGET_S = 30 * 86400

# whether the user can see the guest of this name and UUID
GuestFilter = Callable[[str, str], bool]


@dataclass
class _Deployment:
    """A deployment. record: of its last call; None if this master has none. guests: guest to its
    entry in the answer."""

    name: str
    record: DeploymentRecord | None
    guests: dict[str, dict[str, Any]] = field(default_factory=dict)

    def count(self, status: str) -> int:
        return sum(1 for guest in self.guests.values() if guest["status"] == status)

    def to_answer(self, is_limited: bool) -> dict[str, Any]:
        record = None if is_limited else self.record
        return {
            "result": record.result if record else None,
            "comment": self.comment(),
            "time": record.time if record else None,
            "user": record.user if record else None,
            "remove": record.remove if record else None,
            "counts": {status: self.count(status) for status in STATUSES},
            "guests": self.guests,
        }

    def comment(self) -> str:
        texts = {
            MISSING: "missing", UNKNOWN: "perhaps on a host that does not respond",
            TO_REMOVE: "not listed and not removed yet", RETAINED: "not listed and kept",
        }  # fmt: skip
        parts = [
            f"{text}: {', '.join(named)}"
            for status, text in texts.items()
            if (named := [name for name, g in self.guests.items() if g["status"] == status])
        ]
        count = units.pluralize(self.count(PRESENT), "guest")
        return "; ".join([f"{self.name}: {count} present", *parts])

    def row(self, is_limited: bool) -> list[Any]:
        counts = [self.count(status) for status in (PRESENT, MISSING, UNKNOWN, TO_REMOVE, RETAINED)]
        record = None if is_limited else self.record
        if record is None:
            return [self.name, *counts, None, None, None]
        result = {True: "done", False: "failed", None: "not finished"}[record.result]
        return [self.name, *counts, _shown_time(record.time), record.user, result]


def listing(fleet: Fleet, name: str | None, can_see: GuestFilter | None = None) -> dict[str, Any]:
    """Return the answer of the runner. name: of one deployment. can_see: for a user with limited
    rights, who sees only the guests that the hosts have. Raises NotFound."""
    hosts, unreachable = inventory.gather(fleet)
    records = {} if can_see else deployment_record.read_all(fleet.opts)
    by_name = _compare(fleet, hosts, unreachable, records)
    if can_see:
        by_name = _visible(by_name, hosts, can_see)
    if not unreachable:
        by_name = _without_ended(fleet, by_name)
    if name is not None:
        if name not in by_name:
            raise _missing(name, by_name, unreachable)
        by_name = {name: by_name[name]}
    table = _details(by_name[name]) if name is not None else _overview(by_name, bool(can_see))
    if unreachable:
        table["title"] += f"; no answer from {', '.join(sorted(unreachable))}"
    entry = {
        **table,
        "deployments": {
            key: deployment.to_answer(bool(can_see)) for key, deployment in by_name.items()
        },
        "unreachable": dict(sorted(unreachable.items())),
    }
    return {"deployments": entry, **({"retcode": 1} if unreachable else {})}


def _compare(
    fleet: Fleet,
    hosts: list[facts.Host],
    unreachable: Mapping[str, str],
    records: Mapping[str, DeploymentRecord],
) -> dict[str, _Deployment]:
    """Return the deployments by name, with their guests."""
    present: dict[str, list[tuple[str, facts.Guest]]] = {}
    for host in hosts:
        for guest in host.guests:
            present.setdefault(guest.name, []).append((host.name, guest))
    by_name = {name: _Deployment(name, record) for name, record in records.items()}
    for instances in present.values():
        for _, guest in instances:
            if guest.deployment:
                by_name.setdefault(guest.deployment, _Deployment(guest.deployment, None))
    for deployment in by_name.values():
        record = deployment.record
        listed = record.guests if record else {}
        created = {
            name
            for name, instances in present.items()
            if any(guest.deployment == deployment.name for _, guest in instances)
        }
        for name in sorted({*listed, *created}):
            entry = _Entry(name, deployment.name, record, present.get(name, []))
            deployment.guests[name] = entry.to_answer(fleet.opts, unreachable)
    return dict(sorted(by_name.items()))


@dataclass
class _Entry:
    """A guest of a deployment. instances: its hosts, with its facts."""

    name: str
    deployment: str
    record: DeploymentRecord | None
    instances: list[tuple[str, facts.Guest]]

    def to_answer(self, opts: dict[str, Any], unreachable: Mapping[str, str]) -> dict[str, Any]:
        listed = self.record.guests.get(self.name) if self.record else None
        status = self._status(unreachable)
        return {
            "status": status,
            "listed": listed is not None if self.record else None,
            "created_by_deployment": self._is_created(),
            **(self._facts() if self.instances else _as_listed(listed)),
            "image": listed.image if listed else None,
            "reason": self._reason(opts, status, listed, unreachable),
        }

    def _status(self, unreachable: Mapping[str, str]) -> str:
        if not self.instances:
            return UNKNOWN if unreachable else MISSING
        if self.record is None or self.name in self.record.guests:
            return PRESENT
        return TO_REMOVE if self.record.remove else RETAINED

    def _is_created(self) -> bool:
        return any(guest.deployment == self.deployment for _, guest in self.instances)

    def _facts(self) -> dict[str, Any]:
        guest = self.instances[0][1]
        phases = {instance.phase for _, instance in self.instances} - {Phase.COMPLETE}
        return {
            "host": ", ".join(host for host, _ in self.instances),
            "state": phases.pop().value if phases else guest.state,
            "cpu": guest.vcpus,
            "memory_mib": guest.memory_kib // 1024,
            "size_bytes": sum(disk.size_bytes for disk in guest.disks),
        }

    def _reason(
        self,
        opts: dict[str, Any],
        status: str,
        listed: ListedGuest | None,
        unreachable: Mapping[str, str],
    ) -> str | None:
        if len(self.instances) > 1:
            return "it is on more than one host"
        if status == UNKNOWN:
            last = location_cache.last_seen(opts, self.name, unreachable)
            return f"last seen on {last[0]}, which does not respond ({last[1]})" if last else (
                f"no answer from {', '.join(sorted(unreachable))}"
            )  # fmt: skip
        if self.record is None:
            return None
        if status == PRESENT:
            return None if self._is_created() else "not created by this deployment"
        error = listed.error if listed else self.record.errors.get(self.name)
        if status == RETAINED:
            return "no longer listed; kept without remove=True"
        return error or (None if listed else "no longer listed")


def _as_listed(listed: ListedGuest | None) -> dict[str, Any]:
    """Return the keys of a guest that no host has, as the deployment lists it."""
    return {
        "host": None,
        "state": None,
        "cpu": listed.vcpus if listed else None,
        "memory_mib": listed.memory_kib // 1024 if listed else None,
        "size_bytes": listed.size_bytes if listed else None,
    }


def _visible(
    by_name: Mapping[str, _Deployment], hosts: list[facts.Host], can_see: GuestFilter
) -> dict[str, _Deployment]:
    """Return the deployments with the guests that the user can see on each host that has them."""
    hidden = {
        guest.name for host in hosts for guest in host.guests if not can_see(guest.name, guest.uuid)
    }
    visible = {}
    for name, deployment in by_name.items():
        guests = {key: guest for key, guest in deployment.guests.items() if key not in hidden}
        if guests:
            visible[name] = _Deployment(name, None, guests)
    return visible


def _without_ended(fleet: Fleet, by_name: Mapping[str, _Deployment]) -> dict[str, _Deployment]:
    """Return the deployments without those that have had no guest for a long time, and remove the
    records of these."""
    remaining = {}
    for name, deployment in by_name.items():
        is_empty = all(guest["status"] == MISSING for guest in deployment.guests.values())
        if is_empty and deployment.record and _age_s(deployment.record.time) > _FORGET_S:
            deployment_record.forget(fleet.opts, deployment.record)
        else:
            remaining[name] = deployment
    return remaining


def _age_s(recorded: str) -> float:
    try:
        return time.time() - times.seconds(recorded)
    except ValueError:
        return 0


def _missing(
    name: str, by_name: Mapping[str, _Deployment], unreachable: Mapping[str, str]
) -> errors.NotFound:
    near = difflib.get_close_matches(name, by_name, n=1)
    text = f"no deployment {units.short_repr(name)}"
    if near:
        text += f"; did you mean {near[0]!r}?"
    if unreachable:
        text += f"; no answer from {', '.join(sorted(unreachable))}"
    return errors.NotFound(text)


def _overview(by_name: Mapping[str, _Deployment], is_limited: bool) -> dict[str, Any]:
    head = ["deployment", "present", "missing", "unknown", "to remove", "kept",
            "last call (UTC)", "user", "result"]  # fmt: skip
    return {
        "title": units.pluralize(len(by_name), "deployment") if by_name else "no deployments",
        "table": [head, *(deployment.row(is_limited) for deployment in by_name.values())],
        "columns": {"user": {"drop": 1}},
    }


def _details(deployment: _Deployment) -> dict[str, Any]:
    rows = [*_guest_rows(deployment)]
    record = deployment.record
    title = deployment.comment()
    if record:
        title += f" (last call: {_shown_time(record.time)} UTC by {record.user})"
    head = ["guest", "status", "host", "state", "CPUs", "memory", "disks", "image", "reason"]
    columns = {"image": {"drop": 1}, "reason": {"under": True}}
    return {"title": title, "table": [head, *rows], "columns": columns}


def _guest_rows(deployment: _Deployment) -> Iterator[list[Any]]:
    for name, guest in deployment.guests.items():
        memory_mib, size_bytes = guest["memory_mib"], guest["size_bytes"]
        yield [
            name, guest["status"].replace("_", " "), guest["host"], guest["state"], guest["cpu"],
            None if memory_mib is None else {"bytes": memory_mib << 20},
            {"bytes": size_bytes} if size_bytes else None, guest["image"], guest["reason"],
        ]  # fmt: skip


def _shown_time(recorded: str) -> str:
    """Return a recorded time, without seconds."""
    return recorded.replace("T", " ")[:16]
