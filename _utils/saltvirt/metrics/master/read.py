"""Read metrics that only the master knows: hosts that respond, guests that run twice, capacity of
shared storage; authorities, high availability and backups from the runner's own functions."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from typing import Any

from saltvirt import errors, settings
from saltvirt.fleet.client import Fleet
from saltvirt.metrics.model.family import Family, Labels, Sample, gauge, single_gauge
from saltvirt.operations.cluster import inventory
from saltvirt.placement import facts, policy

# the runner's functions by name
Functions = Mapping[str, Callable[..., dict[str, Any]]]


def reads(opts: dict[str, Any], functions: Functions) -> dict[str, Callable[[], list[Family]]]:
    """Functions that read metrics, by name. Raises InvalidInput."""
    parts = {
        "hosts": lambda: read_hosts(opts),
        "authorities": lambda: authority_metrics(_call_runner(functions, "virt.certs", ask=False)),
    }
    if "virt.ha_status" in functions:
        parts["ha"] = lambda: ha_metrics(_call_runner(functions, "virt.ha_status")["ha"])
    if settings.option(settings.of_master(opts), "backup:targets"):
        parts["backups"] = lambda: backup_metrics(
            _call_runner(functions, "virt.backups"), time.time()
        )
    return parts


def _call_runner(functions: Functions, name: str, **arguments: Any) -> dict[str, Any]:
    """The data that a runner function returns. Raises OperationFailed with its message if it
    fails."""
    data: dict[str, Any] = functions[name](**arguments)["data"]
    failed = data.get("virt")
    if isinstance(failed, dict) and failed.get("result") is False:
        raise errors.OperationFailed(f"{name}: {failed['comment']}")
    return data


def read_hosts(opts: dict[str, Any]) -> list[Family]:
    """The metrics of all hypervisors, which are queried. Raises VirtError."""
    with Fleet(opts) as fleet:
        hosts, unreachable = inventory.gather(fleet)
    answered = {**{host.name: 1 for host in hosts}, **dict.fromkeys(unreachable, 0)}
    places: Counter[str] = Counter()
    for host in hosts:
        places.update(guest.name for guest in host.guests if guest.state == "running")
    return [
        gauge("host_answers", "1 if a hypervisor has responded to the master.",
              [Sample({"host": name}, up) for name, up in sorted(answered.items())]),
        gauge("guest_running_hosts",
              "Number of hosts on which a guest runs, for guests that run on more than one.",
              [Sample({"guest": name}, host_count) for name,
              host_count in sorted(places.items()) if host_count > 1]),
        *_shared(hosts, policy.of_master(opts)),
    ]  # fmt: skip


def _shared(hosts: list[facts.Host], master_policy: policy.PlacementPolicy) -> list[Family]:
    """The metrics of storage that several hosts share, as seen by one of them: the promises of all
    hosts are included."""
    locations: dict[str, tuple[facts.Host, str]] = {}
    for host in hosts:
        for store, storage in host.storage.items():
            if storage.shared:
                locations.setdefault(storage.shared, (host, store))
    stores = [(_storage_labels(name), *location) for name, location in sorted(locations.items())]
    return [
        gauge("shared_storage_free_bytes", "Free space at the moment.",
              [Sample(labels, host.storage[store].free_bytes) for labels, host, store in stores]),
        gauge("shared_storage_promisable_bytes",
              "Space that can still be promised; negative if overcommitted.",
              [Sample(labels, host.free_store_bytes(master_policy, store)) for labels, host,
              store in stores]),
    ]  # fmt: skip


def _storage_labels(name: str) -> Labels:
    return {"storage": name}


def authority_metrics(certs: dict[str, Any]) -> list[Family]:
    """certs: the data of ``virt.certs``."""
    authorities = sorted(certs["certificates"]["CA"].items())
    return [
        gauge("authority_up", "1 if an authority can sign.",
              [Sample({"authority": name}, int("problem" not in authority)) for name,
              authority in authorities]),
        gauge("authority_not_after_timestamp_seconds", "Expiry of an authority's certificate.",
              [Sample({"authority": name}, until_s) for name, authority in authorities
               for until_s in [_seconds(authority.get("not_after"))] if until_s is not None]),
    ]  # fmt: skip


def ha_metrics(status: dict[str, Any]) -> list[Family]:
    """status: the data of ``virt.ha_status``."""
    if not status.get("configured"):
        return []
    engine, hosts, guests = status["engine"], status["hosts"], status["guests"]
    return [
        single_gauge("ha_armed", "1 if hosts may be fenced and guests restarted.", {},
            int(bool(status["armed"]))),
        single_gauge("ha_engine_up", "1 if this master's engine runs.", {},
        int(bool(engine["running"]))),
        single_gauge("ha_leading", "1 if this master leads.", {}, int(bool(engine["leading"]))),
        single_gauge("ha_led", "1 if any master leads.", {},
            int(bool(engine["leading"] or engine["leader"]))),
        single_gauge("ha_problems", "Number of problems that virt.ha_status reports.", {},
            len(status["problems"])),
        gauge("ha_host_state", "1 for a host's current state.",
              [Sample({"host": name, "state": str(entry["state"])}, 1)
               for name, entry in sorted(hosts.items())]),
        gauge("ha_host_unplaced_guests", "Guests that could not be restarted if a host failed.",
              [Sample({"host": name}, len(entry["unplaced"]))
               for name, entry in sorted(hosts.items())]),
        gauge("ha_guest_state", "1 for a guest's current state.",
              [Sample({"guest": name, "state": str(entry["state"])}, 1)
               for name, entry in sorted(guests.items())]),
    ]  # fmt: skip


def backup_metrics(response: dict[str, Any], now_s: float) -> list[Family]:
    """response: the data of ``virt.backups``. A backup with a time in the future does not count as
    the last one: it would hide for a long time that there is none."""
    silent = response.get("unreachable") or {}
    targets = {
        name: backups_there
        for name, backups_there in response.items()
        if isinstance(backups_there, list)
    }
    answered = {**dict.fromkeys(targets, 1), **dict.fromkeys(silent, 0)}
    last: dict[tuple[str, str], float] = {}
    faulty, stored = Counter[str](), Counter[str]()
    for target, backups in targets.items():
        for backup in backups:
            stored[target] += backup.get("stored_bytes") or 0
            faulty[target] += bool(backup.get("problem"))
            when_s = _seconds(backup.get("taken_at"))
            if backup.get("guest") and when_s is not None and not backup.get("problem"):
                key = backup["guest"], target
                if when_s <= now_s:
                    last[key] = max(last.get(key, 0), when_s)
    return [
        gauge("backup_target_answers", "1 if a target has responded.",
              [Sample({"target": name}, up) for name, up in sorted(answered.items())]),
        gauge("backup_stored_bytes", "Size of all backups at a target.",
              [Sample({"target": name}, stored[name]) for name in sorted(targets)]),
        gauge("backup_invalid", "Invalid backups at a target.",
              [Sample({"target": name}, faulty[name]) for name in sorted(targets)]),
        gauge("backup_last_timestamp_seconds", "Time of a guest's last valid backup.",
              [Sample({"guest": guest, "target": target}, when_s)
               for (guest, target), when_s in sorted(last.items())]),
    ]  # fmt: skip


def _seconds(timestamp: object) -> float | None:
    """Seconds since 1970 of an ISO 8601 time, UTC by default; None for any other text."""
    try:
        moment = datetime.fromisoformat(str(timestamp).replace("Z", "+00:00"))
        return (moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)).timestamp()
    except (ValueError, OverflowError):
        return None
