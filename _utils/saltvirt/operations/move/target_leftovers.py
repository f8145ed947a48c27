"""Remove what undone migrations created on their targets, if no host uses it."""

from __future__ import annotations

from saltvirt import errors
from saltvirt.answers.guest_calls import HostRequest
from saltvirt.answers.guests import MigrationFacts
from saltvirt.answers.removal import CleanPlan
from saltvirt.fleet.client import Fleet
from saltvirt.migration.calls import (
    CLEAN_UP,
    LOCATIONS,
    PLAN_CLEANUP,
    CleanPlanRequest,
    CleanRequest,
)
from saltvirt.operations.cluster import shared_storage_check

_RECOVER = "salt-run virt.migrate_recover"


def clean(fleet: Fleet, host: str, name: str) -> tuple[list[str], dict[str, str]]:
    """Let the host remove what migrations of the guest to it have left; return ([path], {path: why
    it stays}). What other hosts can reach is only deleted if each of them answers that it does not
    use it.

    Raises VirtError if the host did not answer, or failed.
    """
    plan = PLAN_CLEANUP.ask(fleet, host, CleanPlanRequest(name))
    if plan == CleanPlan():
        return [], {}
    unused, reasons = shared_storage_check.unused_elsewhere(fleet, host, plan.shared)
    done = CLEAN_UP.ask(fleet, host, CleanRequest(name, tuple(unused)))
    return [*done.deleted], {
        path: reasons.get(path, reason) for path, reason in done.retained.items()
    }


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
    return LOCATIONS.gather(fleet, hosts or fleet.hosts(), HostRequest())


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
