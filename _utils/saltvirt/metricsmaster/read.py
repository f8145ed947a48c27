"""What only the master knows: who answers, who runs twice, what shared storage has promised to all;
its authorities, high availability and backups by what the runner's own verbs say of them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from typing import Any

from saltvirt import errors, settings
from saltvirt.fleet.client import Fleet
from saltvirt.metrics.family import Family, Labels, Sample, gauge, one
from saltvirt.operations import inventory
from saltvirt.placement import facts, policy

# the runner's functions, by their names
Functions = Mapping[str, Callable[..., dict[str, Any]]]


def reads(opts: dict[str, Any], functions: Functions) -> dict[str, Callable[[], list[Family]]]:
    """What is read from time to time, by its name. Raises InvalidInput."""
    found = {
        "hosts": lambda: of_hosts(opts),
        "authorities": lambda: of_authorities(_said(functions, "virt.certs", ask=False)),
    }
    if "virt.ha_status" in functions:
        found["ha"] = lambda: of_ha(_said(functions, "virt.ha_status")["ha"])
    if settings.option(settings.of_master(opts), "backup:targets"):
        found["backups"] = lambda: of_backups(_said(functions, "virt.backups"), time.time())
    return found


def _said(functions: Functions, name: str, **arguments: Any) -> dict[str, Any]:
    """The data of a function of the runner. Raises OperationFailed with its line where it has
    none."""
    data: dict[str, Any] = functions[name](**arguments)["data"]
    failed = data.get("virt")
    if isinstance(failed, dict) and failed.get("result") is False:
        raise errors.OperationFailed(f"{name}: {failed['comment']}")
    return data


def of_hosts(opts: dict[str, Any]) -> list[Family]:
    """Of all hypervisors, which are asked. Raises VirtError."""
    with Fleet(opts) as fleet:
        hosts, unreachable = inventory.gather(fleet)
    answered = {**{host.name: 1 for host in hosts}, **dict.fromkeys(unreachable, 0)}
    places: Counter[str] = Counter()
    for host in hosts:
        places.update(one.name for one in host.guests if one.state == "running")
    return [
        gauge("host_answers", "1 when a hypervisor has answered the master.",
              [Sample({"host": name}, up) for name, up in sorted(answered.items())]),
        gauge("guest_running_hosts",
              "On how many hosts a guest runs, of those that run on more than one.",
              [Sample({"guest": name}, many) for name, many in sorted(places.items()) if many > 1]),
        *_shared(hosts, policy.of_master(opts)),
    ]  # fmt: skip


def _shared(hosts: list[facts.Host], own: policy.PlacementPolicy) -> list[Family]:
    """Of storage that several hosts reach, as one of them sees it: what all have promised of it is
    in that."""
    there: dict[str, tuple[facts.Host, str]] = {}
    for host in hosts:
        for store, found in host.storage.items():
            if found.shared:
                there.setdefault(found.shared, (host, store))
    stores = [(_at(name), *place) for name, place in sorted(there.items())]
    return [
        gauge("shared_storage_free_bytes", "What is free there at the moment.",
              [Sample(at, host.storage[store].free_bytes) for at, host, store in stores]),
        gauge("shared_storage_promisable_bytes",
              "What may still be promised there; below zero when more is.",
              [Sample(at, host.free_store_bytes(own, store)) for at, host, store in stores]),
    ]  # fmt: skip


def _at(name: str) -> Labels:
    return {"storage": name}


def of_authorities(certs: dict[str, Any]) -> list[Family]:
    """certs: what ``virt.certs`` says."""
    several = sorted(certs["certificates"]["CA"].items())
    return [
        gauge("authority_up", "1 when an authority can sign.",
              [Sample({"authority": name}, int("problem" not in one)) for name, one in several]),
        gauge("authority_not_after_timestamp_seconds", "Until when its certificate holds.",
              [Sample({"authority": name}, until_s) for name, one in several
               for until_s in [_seconds(one.get("not_after"))] if until_s is not None]),
    ]  # fmt: skip


def of_ha(status: dict[str, Any]) -> list[Family]:
    """status: what ``virt.ha_status`` says."""
    if not status.get("configured"):
        return []
    engine, hosts, guests = status["engine"], status["hosts"], status["guests"]
    return [
        one("ha_armed", "1 when hosts may be fenced and guests started.", {},
            int(bool(status["armed"]))),
        one("ha_engine_up", "1 when this master's engine runs.", {}, int(bool(engine["running"]))),
        one("ha_leading", "1 when this master leads.", {}, int(bool(engine["leading"]))),
        one("ha_led", "1 when any master leads.", {},
            int(bool(engine["leading"] or engine["leader"]))),
        one("ha_problems", "What is wrong, as virt.ha_status counts it.", {},
            len(status["problems"])),
        gauge("ha_host_state", "1 for the state that a host is in.",
              [Sample({"host": name, "state": str(one["state"])}, 1)
               for name, one in sorted(hosts.items())]),
        gauge("ha_host_unplaced_guests", "Guests that would run nowhere if a host died.",
              [Sample({"host": name}, len(one["unplaced"]))
               for name, one in sorted(hosts.items())]),
        gauge("ha_guest_state", "1 for the state that a guest is in.",
              [Sample({"guest": name, "state": str(one["state"])}, 1)
               for name, one in sorted(guests.items())]),
    ]  # fmt: skip


def of_backups(said: dict[str, Any], now_s: float) -> list[Family]:
    """said: what ``virt.backups`` says. A backup of a time to come is not counted as the last: it
    would hide for so long that there is none."""
    silent = said.get("unreachable") or {}
    targets = {name: some for name, some in said.items() if isinstance(some, list)}
    answered = {**dict.fromkeys(targets, 1), **dict.fromkeys(silent, 0)}
    last: dict[tuple[str, str], float] = {}
    wrong, stored = Counter[str](), Counter[str]()
    for target, several in targets.items():
        for found in several:
            stored[target] += found.get("stored_bytes") or 0
            wrong[target] += bool(found.get("wrong"))
            when_s = _seconds(found.get("when"))
            if found.get("guest") and when_s is not None and not found.get("wrong"):
                key = found["guest"], target
                if when_s <= now_s:
                    last[key] = max(last.get(key, 0), when_s)
    return [
        gauge("backup_target_answers", "1 when a target has said what it keeps.",
              [Sample({"target": name}, up) for name, up in sorted(answered.items())]),
        gauge("backup_stored_bytes", "What all backups at a target take.",
              [Sample({"target": name}, stored[name]) for name in sorted(targets)]),
        gauge("backup_wrong", "Backups at a target that are not good.",
              [Sample({"target": name}, wrong[name]) for name in sorted(targets)]),
        gauge("backup_last_timestamp_seconds", "When the last good backup of a guest was made.",
              [Sample({"guest": guest, "target": target}, when_s)
               for (guest, target), when_s in sorted(last.items())]),
    ]  # fmt: skip


def _seconds(when: object) -> float | None:
    """Of a time as ISO 8601 has it, UTC where it does not say; None for what is none."""
    try:
        found = datetime.fromisoformat(str(when).replace("Z", "+00:00"))
        return (found if found.tzinfo else found.replace(tzinfo=timezone.utc)).timestamp()
    except (ValueError, OverflowError):
        return None
