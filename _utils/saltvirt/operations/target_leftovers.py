"""What undone migrations have made on their targets: gone when nobody on any host uses it."""

from __future__ import annotations

from collections.abc import Iterator

from saltvirt import errors
from saltvirt.answers.guests import MigrationFacts
from saltvirt.answers.removal import Cleaned, CleanPlan
from saltvirt.fleet import answer
from saltvirt.fleet.client import Fleet
from saltvirt.operations import proof

# of a host whose version has it by its earlier name
_NOT_THERE = "'virt.migrate_locations' is not available."
_RECOVER = "salt-run virt.migrate_recover"


def clean(fleet: Fleet, host: str, name: str) -> tuple[list[str], dict[str, str]]:
    """Has the host take away what migrations of the guest to it have left: ([path], {path: why it
    stays}). What other hosts may have goes only when each of them said that it does not use it.

    Raises VirtError where the host could not be asked, or could not do it.
    """
    found = fleet.one(host, "virt.migrate_clean", {"vm_": name, "test": True}, long=False)
    if not found:
        return [], {}
    unused, why = proof.elsewhere(fleet, host, CleanPlan.from_answer(found, host).shared)
    asked = {"vm_": name, "unused": unused}
    done = Cleaned.from_answer(fleet.one(host, "virt.migrate_clean", asked, long=True), host)
    return [*done.deleted], {path: why.get(path, words) for path, words in done.kept.items()}


def everywhere(fleet: Fleet, name: str) -> tuple[list[str], dict[str, str], dict[str, str]]:
    """The same of every host that says that it has some: ([path], {path: why it stays}, {host: why
    something stays there})."""
    gone: list[str] = []
    stay: dict[str, str] = {}
    left: dict[str, str] = {}
    for host, found in locations(fleet)[0].items():
        if name in found.noted:
            try:
                deleted, kept = clean(fleet, host, name)
            except errors.VirtError as exc:
                left[host] = exc.text
                continue
            gone, stay = [*gone, *deleted], {**stay, **kept}
            if kept:
                left[host] = words(kept)
    return gone, stay, left


def locations(
    fleet: Fleet, hosts: list[str] | None = None
) -> tuple[dict[str, MigrationFacts], dict[str, str]]:
    """(host to what it says of itself and its guests, host to why it did not answer). hosts: None
    for all."""
    return answer.facts(_answers(fleet, hosts or fleet.hosts()), MigrationFacts.from_answer)


def _answers(fleet: Fleet, hosts: list[str]) -> Iterator[answer.Answer]:
    """What each host answers to ``virt.migrate_locations``; one that is not updated yet, to the
    earlier name of it."""
    earlier = []
    for one in fleet.ask(hosts, "virt.migrate_locations"):
        if one.error == _NOT_THERE:
            earlier.append(one.host)
        else:
            yield one
    if earlier:
        yield from fleet.ask(earlier, "virt.migrate_census")


def words(kept: dict[str, str]) -> str:
    """Why files stay, as a sentence."""
    return "; ".join(f"{path} stays: {why}" for path, why in sorted(kept.items()))


def after_failure(fleet: Fleet, host: str, name: str) -> str:
    """What became of that which a migration that has just failed had made on its target, in words
    for the end of its message."""
    try:
        gone, kept = clean(fleet, host, name)
    except errors.VirtError as exc:
        return f"what it may have made on {host} stays: {exc.text}; {again(name)}"
    if kept:
        return f"on {host} {words(kept)}; {again(name)}"
    return f"all of it was removed from {host}" if gone else ""


def again(name: str) -> str:
    """What the person does about what stays."""
    return f"{_RECOVER} {name} looks again"


def are_named(text: str, name: str) -> bool:
    """Whether a host says in its words that something of the guest's stays on the target."""
    return f"{_RECOVER} {name}" in text
