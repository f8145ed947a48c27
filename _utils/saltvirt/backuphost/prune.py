"""Removes what no longer has to stay; docs/backups.md says what does.

A backup is renamed before it is deleted, and what stands on another goes first: whenever this ends,
by kill -9, too, each backup that is left is as whole as it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import nullcontext

from saltvirt import errors
from saltvirt.backuphost import receive, stands, verify
from saltvirt.backuphost.target import Target
from saltvirt.backups import retention
from saltvirt.backups.retention import Retention, Verdict
from saltvirt.backups.stock import Stock


def guest(target: Target, uuid: str, rules: Retention, test: bool = False) -> list[Verdict]:
    """What became of each backup of a guest, the newest first. test: what would, and why.

    What would be removed and was found broken is read again first: the fault may have been the
    machine's, and then it counts as a good one. Raises Busy while one is made.
    """
    read: set[str] = set()
    kept: dict[str, str] = {}
    while True:
        # where nobody can write, as in a snapshot, nobody makes a backup either
        look_only = test and target.folder.is_read_only
        with nullcontext() if look_only else target.locked(uuid, what="virt.backup_prune"):
            if not test:
                target.sweep(uuid)
            stock, held = target.stock(uuid), {**kept, **dict(_held(target, uuid))}
            verdicts = retention.judge(stock, rules, held)
            again = [] if test else sorted(_doubtful(stock, verdicts) - read)
            if not again:
                return verdicts if test else _done(target, uuid, rules, verdicts, held)
        # without the lock, as it takes long
        for one in again:
            read.add(one)
            kept |= _unreadable(target, uuid, one)


def _done(
    target: Target, uuid: str, rules: Retention, verdicts: list[Verdict], held: dict[str, str]
) -> list[Verdict]:
    """What became of each, after what does not stay was removed. Hold the lock."""
    while used := _removed(target, uuid, verdicts):
        # somebody began to read it since: that, and what it stands on, stays
        held[used] = stands.why(target, uuid, used) or retention.READ
        gone = [one for one in verdicts if not one.stays and not _is_there(target, uuid, one)]
        verdicts = retention.judge(target.stock(uuid), rules, held) + gone
        verdicts.sort(key=lambda one: one.ident, reverse=True)
    return verdicts


def _doubtful(stock: Stock, verdicts: Iterable[Verdict]) -> set[str]:
    """The backups by whose marks something is to be removed as one that is not good."""
    gone = [one.ident for one in verdicts if not one.stays and stock.wrong(one.ident)]
    below = {each for one in gone for each in {one, *stock.needs(one)}}
    marks = {one: stock.backups[one].verified for one in below}
    return {one for one, mark in marks.items() if mark and mark.broken}


def _unreadable(target: Target, uuid: str, ident: str) -> dict[str, str]:
    """Reads a backup again; (itself to why it stays) if that cannot be done now."""
    try:
        verify.backup(target, uuid, ident, receive.now(), lambda _done, _total: None)
    except errors.NotFound:
        return {}
    except errors.VirtError as exc:
        return {ident: f"it was found broken, and cannot be read again now: {exc.text}"}
    return {}


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
