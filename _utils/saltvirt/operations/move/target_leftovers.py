"""Remove what undone migrations created on their targets, if no host uses it."""

from __future__ import annotations

from saltvirt import errors
from saltvirt.answers.guests import MigrationFacts
from saltvirt.answers.removal import CleanPlan, CleanupResult
from saltvirt.fleet import answer
from saltvirt.fleet.client import Fleet
from saltvirt.operations.cluster import shared_storage_check

_RECOVER = "salt-run virt.migrate_recover"


def clean(fleet: Fleet, host: str, name: str) -> tuple[list[str], dict[str, str]]:
    """Let the host remove what migrations of the guest to it have left; return ([path], {path: why
    it stays}). What other hosts can reach is only deleted if each of them answers that it does not
    use it.

    Raises VirtError if the host did not answer, or failed.
    """
    plan_data = fleet.call(host, "virt.migrate_clean", {"vm_": name, "test": True}, long=False)
    if not plan_data:
        return [], {}
    unused, reasons = shared_storage_check.unused_elsewhere(
        fleet, host, CleanPlan.from_answer(plan_data, host).shared
    )
    arguments = {"vm_": name, "unused": unused}
    done = CleanupResult.from_answer(
        fleet.call(host, "virt.migrate_clean", arguments, long=True), host
    )
    return [*done.deleted], {path: reasons.get(path, reason) for path, reason in done.kept.items()}


def clean_everywhere(fleet: Fleet, name: str) -> tuple[list[str], dict[str, str], dict[str, str]]:
    """Do the same on every host that reports leftovers; return ([path], {path: why it stays},
    {host: why files stay there})."""
    all_deleted: list[str] = []
    all_retained: dict[str, str] = {}
    host_reasons: dict[str, str] = {}
    for host, host_facts in locations(fleet)[0].items():
        if name in host_facts.target_leftovers:
            try:
                deleted, retained = clean(fleet, host, name)
            except errors.VirtError as exc:
                host_reasons[host] = exc.text
                continue
            all_deleted, all_retained = [*all_deleted, *deleted], {**all_retained, **retained}
            if retained:
                host_reasons[host] = retained_text(retained)
    return all_deleted, all_retained, host_reasons


def locations(
    fleet: Fleet, hosts: list[str] | None = None
) -> tuple[dict[str, MigrationFacts], dict[str, str]]:
    """Return (host to the facts of itself and its guests, host to why it did not answer). hosts:
    None for all."""
    answers = fleet.ask(hosts or fleet.hosts(), "virt.migrate_locations")
    return answer.facts(answers, MigrationFacts.from_answer)


def retained_text(retained: dict[str, str]) -> str:
    """Return why files stay, as a sentence."""
    return "; ".join(f"{path} stays: {reason}" for path, reason in sorted(retained.items()))


def after_failure(fleet: Fleet, host: str, name: str) -> str:
    """Return what happened to files that a failed migration created on its target, for the end of
    its message."""
    try:
        deleted, retained = clean(fleet, host, name)
    except errors.VirtError as exc:
        return f"what it may have created on {host} stays: {exc.text}; {retry_hint(name)}"
    if retained:
        return f"on {host} {retained_text(retained)}; {retry_hint(name)}"
    return f"all of it was removed from {host}" if deleted else ""


def retry_hint(name: str) -> str:
    """Return what to do about files that stay."""
    return f"run {_RECOVER} {name} again"


def are_named(text: str, name: str) -> bool:
    """Return whether a host's message says that files of the guest stay on the target."""
    return f"{_RECOVER} {name}" in text
