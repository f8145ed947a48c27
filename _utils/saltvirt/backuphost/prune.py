"""Removes what no longer has to stay; docs/backups.md says what does.

A backup is renamed before it is deleted, and what stands on another goes first: whenever this ends,
by kill -9, too, each backup that is left is as whole as it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from saltvirt.backuphost import stands
from saltvirt.backuphost.target import Target
from saltvirt.backups import retention
from saltvirt.backups.retention import Retention, Verdict


def guest(target: Target, uuid: str, rules: Retention, test: bool = False) -> list[Verdict]:
    """What became of each backup of a guest, the newest first. test: what would, and why.

    Raises Busy while one is made.
    """
    with target.locked(uuid):
        if not test:
            target.sweep(uuid)
        held = dict(_held(target, uuid))
        verdicts = retention.judge(target.stock(uuid), rules, held)
        while not test and (used := _removed(target, uuid, verdicts)):
            # somebody began to read it since: that, and what it stands on, stays
            held[used] = stands.why(target, uuid, used) or retention.READ
            gone = [one for one in verdicts if not one.stays and not _is_there(target, uuid, one)]
            verdicts = retention.judge(target.stock(uuid), rules, held) + gone
            verdicts.sort(key=lambda one: one.ident, reverse=True)
    return verdicts


def _held(target: Target, uuid: str) -> Iterator[tuple[str, str]]:
    """(a backup, why it stays whatever the rules say)."""
    for one in target.stock(uuid).backups:
        why = stands.why(target, uuid, one)
        if why or target.is_used(uuid, one):
            yield one, why or retention.READ


def _removed(target: Target, uuid: str, verdicts: Iterable[Verdict]) -> str | None:
    """Removes what does not stay; the first that could not be, as somebody reads it."""
    for one in verdicts:
        if not one.stays and _is_there(target, uuid, one) and not target.remove(uuid, one.ident):
            return one.ident
    return None


def _is_there(target: Target, uuid: str, one: Verdict) -> bool:
    return target.folder.is_there(uuid, one.ident)
