"""States of guests: created, updated, started, or absent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from saltvirt.answers.creation import Phase
from saltvirt.diff import pending
from saltvirt.errors import InvalidInput, NotFound, OperationFailed, SaltException
from saltvirt.spec import disk, guest, values
from saltvirt.spec.deploy import DeploySpec
from saltvirt.states.power import OFF, state_of
from saltvirt.states.result import answer

if TYPE_CHECKING:
    from collections.abc import Iterable

    from saltvirt.states.result import Answer, StateHost

# arguments of virt.init that the state itself sets
_STATE_ARGUMENTS = {"start", "disk", "nic"}


def arguments() -> list[str]:
    """The arguments of ``virt.defined`` and ``virt.running`` in addition to their signature."""
    return sorted({*guest.arguments(), "ha"} - _STATE_ARGUMENTS)


def defined(host: StateHost, name: str, **options: Any) -> Answer:
    """See ``virt.defined``."""
    return _converge(host, name, options, start=False)


def running(host: StateHost, name: str, **options: Any) -> Answer:
    """See ``virt.running``."""
    return _converge(host, name, options, start=True)


def _converge(host: StateHost, name: str, options: dict[str, Any], start: bool) -> Answer:
    if "ha" in options:
        raise InvalidInput(
            "ha can only be set by the master: use virt.deployed or virt.ha_enabled in an "
            "orchestration"
        )
    flags = ("update", "live")
    update_options: dict[str, Any] = {
        word: values.boolean(options.pop(word), word) for word in flags
    }
    update_options["detach"] = disk.detach(options.pop("detach"), "detach")
    options = {word: value for word, value in options.items() if value is not None}
    ha_reason = host.ha_reason(name)
    if name not in host.call("list_domains"):
        if ha_reason:
            raise OperationFailed(f"{ha_reason}: it is not created again")
        return _make(host, name, options, start)
    creation = host.call("creation_phase", name)
    if creation["phase"] == Phase.INTERRUPTED.value:
        reason = ha_reason or creation["used"]
        if reason:
            raise OperationFailed(
                f"the creation of {name} was interrupted, but {reason}: it stays as it is; "
                f"salt-run virt.repair name={name} shows what to do"
            )
        return _make(host, name, options, start)
    if creation["phase"] == Phase.CREATING.value:
        raise OperationFailed(f"{name} is being created: apply the state again afterwards")
    guest_changes: dict[str, Any] = {}
    actions: list[str] = []
    failures: list[object] = []
    notes: list[str] = []
    pending_texts: list[str] = []
    if ha_reason and options.pop("autostart", None):
        notes.append(f"{ha_reason}, which starts it, not its host")
    speaks = not set(options) <= set(DeploySpec.keys()) or not isinstance(
        update_options["detach"], bool
    )
    if update_options.pop("update") and speaks:
        guest_changes, actions, failures, update_notes, pending_texts = _change(
            host, name, options, update_options
        )
        notes += update_notes
    else:
        pending_texts = host.call("pending_changes", name)[name]
    if start and not failures and not (ha_reason and state_of(host, name) == "running"):
        if ha_reason:  # the guest may run elsewhere
            failures.append(
                OperationFailed(f"{ha_reason}, and it is not running here: it is not started")
            )
        else:
            _start(host, name, guest_changes, actions, failures)
    sentences = [_sentence(actions, host.test)] if actions else []
    sentences += [pending.sentence(pending_texts)] if pending_texts else []
    comment = "; ".join([f"{name} {'; '.join(sentences) or 'is in the desired state'}", *notes])
    return answer(
        name, {name: guest_changes} if guest_changes else {}, comment, host.test, failures
    )


def _sentence(actions: list[str], test: bool) -> str:
    return f"{'would be' if test else 'was'} {' and '.join(actions)}"


def _make(host: StateHost, name: str, options: dict[str, Any], start: bool) -> Answer:
    """Create a guest, as ``virt.init`` does."""
    if not (options.get("cpu") and options.get("mem")):
        raise NotFound(f"{name} does not exist; give cpu and mem to create it")
    # a list without a profile is complete, now and at the next apply
    for profile, device_list, word in (
        ("disk_profile", "disks", "disk"),
        ("nic_profile", "interfaces", "nic"),
    ):
        if device_list in options and profile not in options:
            options[word] = None
    created = host.call("init", name, start=start, test=host.test, unless_moved=True, **options)
    guest_changes: dict[str, Any] = {"definition": True}
    if created["disks"]:
        guest_changes["disks"] = {disk["target"]: _location(disk) for disk in created["disks"]}
    actions = ["created"]
    if start:
        guest_changes["started"] = True
        actions.append("started")
    comment = "; ".join([f"{name} {_sentence(actions, host.test)}", *created.get("warnings", [])])
    return answer(name, {name: guest_changes}, comment, host.test)


def _location(disk: dict[str, str]) -> str:
    """The location of a disk: its path, or ``pool/volume``, which is known before it is created."""
    return f"{disk['pool']}/{disk['volume']}" if "pool" in disk else disk["path"]


def _change(
    host: StateHost, name: str, options: dict[str, Any], update_options: dict[str, Any]
) -> tuple[dict[str, Any], list[str], list[object], list[str], list[str]]:
    """Update a guest. Returns (changes, actions for the comment, failures, warnings, pending
    changes)."""
    status = host.call("update", name, test=host.test, **update_options, **options)
    messages = status.get("errors", []), status.get("warnings", []), status.get("pending", [])
    if not status["definition"]:
        return {}, [], *messages
    return {"definition": differences(status["changes"])}, ["changed"], *messages


def differences(changes: Iterable[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """{path: old, new, live} of the changes of ``virt.update``."""
    merged: dict[str, dict[str, Any]] = {}
    for change in changes:
        first = merged.get(change["path"], change)
        merged[change["path"]] = {
            "old": first["old"],
            "new": change["new"],
            "live": first["live"] and change["live"],
        }
    return merged


def _start(
    host: StateHost,
    name: str,
    guest_changes: dict[str, Any],
    actions: list[str],
    failures: list[object],
) -> None:
    """Start the guest, unless it is running."""
    state = state_of(host, name)
    if state == "running":
        return
    if state == "crashed":
        failures.append(
            OperationFailed(f"{name} has crashed and is preserved: virt.powered_off powers it off")
        )
        return
    verb, word = ("start", "started") if state == OFF else ("resume", "resumed")
    try:
        if not host.test:
            host.call(verb, name)
    except SaltException as exc:
        failures.append(exc)
    else:
        guest_changes[word] = True
        actions.append(word)


def absent(host: StateHost, name: str, disks: object) -> Answer:
    """See ``virt.absent``."""
    purge_options = {"disks": "made" if values.boolean(disks, "disks") else "none"}
    if name not in host.call("list_domains"):
        return answer(name, comment=f"{name} does not exist")
    plan = host.call("purge", name, test=True, **purge_options)
    if not host.test:
        host.call("purge", name, **purge_options)
    guest_changes: dict[str, Any] = {"undefined": True}
    if plan["delete"]:
        guest_changes["deleted"] = plan["delete"]
    comment = f"{name} {_sentence(['removed'], host.test)}"
    if plan["keep"]:
        retained = ", ".join(f"{path} ({reason})" for path, reason in sorted(plan["keep"].items()))
        comment += f"; kept: {retained}"
    return answer(name, {name: guest_changes}, comment, host.test)
