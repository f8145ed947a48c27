"""Guests as they shall be: made, changed, started, or gone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from saltvirt.creation import Phase
from saltvirt.diff import pending
from saltvirt.errors import InvalidInput, NotFound, OperationFailed, SaltException
from saltvirt.spec import disk, guest, values
from saltvirt.spec.deploy import DeploySpec
from saltvirt.states.power import OFF, state_of
from saltvirt.states.result import answer

if TYPE_CHECKING:
    from collections.abc import Iterable

    from saltvirt.states.result import Answer, StateHost

# of virt.init's arguments, what the state itself decides
_OURS = {"start", "disk", "nic"}


def arguments() -> list[str]:
    """What ``virt.defined`` and ``virt.running`` take besides their signature."""
    return sorted({*guest.arguments(), "ha"} - _OURS)


def defined(host: StateHost, name: str, **given: Any) -> Answer:
    """See ``virt.defined``."""
    return _converge(host, name, given, start=False)


def running(host: StateHost, name: str, **given: Any) -> Answer:
    """See ``virt.running``."""
    return _converge(host, name, given, start=True)


def _converge(host: StateHost, name: str, given: dict[str, Any], start: bool) -> Answer:
    if "ha" in given:
        raise InvalidInput(
            "ha is the master's to say, not a hypervisor's: virt.deployed or virt.ha_enabled in an "
            "orchestration"
        )
    words = ("update", "live")
    how: dict[str, Any] = {word: values.boolean(given.pop(word), word) for word in words}
    how["detach"] = disk.detach(given.pop("detach"), "detach")
    given = {word: value for word, value in given.items() if value is not None}
    kept = host.kept(name)
    if name not in host.call("list_domains"):
        if kept:
            raise OperationFailed(f"{kept}: it is not made a second time")
        return _make(host, name, given, start)
    found = host.call("creation_phase", name)
    if found["phase"] == Phase.INTERRUPTED.value:
        why = kept or found["used"]
        if why:
            raise OperationFailed(
                f"the creation of {name} was interrupted, but {why}: it stays as it is; salt-run "
                f"virt.repair name={name} shows what to do"
            )
        return _make(host, name, given, start)
    if found["phase"] == Phase.CREATING.value:
        raise OperationFailed(f"{name} is being created: apply this again when that has ended")
    shown: dict[str, Any] = {}
    done: list[str] = []
    failures: list[object] = []
    notes: list[str] = []
    waits: list[str] = []
    if kept and given.pop("autostart", None):
        notes.append(f"{kept}, which starts it, not its host")
    speaks = not set(given) <= set(DeploySpec.keys()) or not isinstance(how["detach"], bool)
    if how.pop("update") and speaks:
        shown, done, failures, more, waits = _change(host, name, given, how)
        notes += more
    else:
        waits = host.call("pending_changes", name)[name]
    if start and not failures and not (kept and state_of(host, name) == "running"):
        if kept:  # it may run elsewhere
            failures.append(OperationFailed(f"{kept}, and does not run here: it is not started"))
        else:
            _start(host, name, shown, done, failures)
    said = [_sentence(done, host.test)] if done else []
    said += [pending.sentence(waits)] if waits else []
    comment = "; ".join([f"{name} {'; '.join(said) or 'is as it should be'}", *notes])
    return answer(name, {name: shown} if shown else {}, comment, host.test, failures)


def _sentence(done: list[str], test: bool) -> str:
    return f"{'would be' if test else 'was'} {' and '.join(done)}"


def _make(host: StateHost, name: str, given: dict[str, Any], start: bool) -> Answer:
    """A new guest, as ``virt.init`` makes it."""
    if not (given.get("cpu") and given.get("mem")):
        raise NotFound(f"there is no guest {name}; to create it, give cpu and mem")
    # a list without a profile is all there shall be, now and at the next apply
    for profile, own, word in (
        ("disk_profile", "disks", "disk"),
        ("nic_profile", "interfaces", "nic"),
    ):
        if own in given and profile not in given:
            given[word] = None
    made = host.call("init", name, start=start, test=host.test, unless_moved=True, **given)
    shown: dict[str, Any] = {"definition": True}
    if made["disks"]:
        shown["disks"] = {disk["target"]: _place(disk) for disk in made["disks"]}
    done = ["made"]
    if start:
        shown["started"] = True
        done.append("started")
    comment = "; ".join([f"{name} {_sentence(done, host.test)}", *made.get("warnings", [])])
    return answer(name, {name: shown}, comment, host.test)


def _place(disk: dict[str, str]) -> str:
    """Where a disk is: its path, or ``pool/volume``, which is known before it is made."""
    return f"{disk['pool']}/{disk['volume']}" if "pool" in disk else disk["path"]


def _change(
    host: StateHost, name: str, given: dict[str, Any], how: dict[str, Any]
) -> tuple[dict[str, Any], list[str], list[object], list[str], list[str]]:
    """(what changes shows, words for the comment, failures, warnings, what waits for the next
    start) of bringing it to what is given."""
    status = host.call("update", name, test=host.test, **how, **given)
    about = status.get("errors", []), status.get("warnings", []), status.get("pending", [])
    if not status["definition"]:
        return {}, [], *about
    return {"definition": differences(status["changes"])}, ["changed"], *about


def differences(changes: Iterable[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """{path: old, new, live} of the list that ``virt.update`` returns."""
    found: dict[str, dict[str, Any]] = {}
    for change in changes:
        first = found.get(change["path"], change)
        found[change["path"]] = {
            "old": first["old"],
            "new": change["new"],
            "live": first["live"] and change["live"],
        }
    return found


def _start(
    host: StateHost, name: str, shown: dict[str, Any], done: list[str], failures: list[object]
) -> None:
    """Has it run; a guest that runs is left alone."""
    state = state_of(host, name)
    if state == "running":
        return
    if state == "crashed":
        failures.append(
            OperationFailed(f"{name} has crashed and is kept as it is: virt.powered_off ends it")
        )
        return
    verb, word = ("start", "started") if state == OFF else ("resume", "resumed")
    try:
        if not host.test:
            host.call(verb, name)
    except SaltException as exc:
        failures.append(exc)
    else:
        shown[word] = True
        done.append(word)


def absent(host: StateHost, name: str, disks: object) -> Answer:
    """See ``virt.absent``."""
    which = {"disks": "made" if values.boolean(disks, "disks") else "none"}
    if name not in host.call("list_domains"):
        return answer(name, comment=f"{name} is not there")
    plan = host.call("purge", name, test=True, **which)
    if not host.test:
        host.call("purge", name, **which)
    shown: dict[str, Any] = {"undefined": True}
    if plan["delete"]:
        shown["deleted"] = plan["delete"]
    comment = f"{name} {_sentence(['removed'], host.test)}"
    if plan["keep"]:
        kept = ", ".join(f"{path} ({why})" for path, why in sorted(plan["keep"].items()))
        comment += f"; kept: {kept}"
    return answer(name, {name: shown}, comment, host.test)
