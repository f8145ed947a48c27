"""All backups of a target, or one guest's: removed by rule, read back."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from dataclasses import replace

from saltvirt import errors
from saltvirt.backuphost import prune, receive, verify
from saltvirt.backuphost.target import Target
from saltvirt.backups import ident as idents
from saltvirt.backups import record
from saltvirt.backups.kept import AllReadBack, Kept, KeptBackup, KeptGuest, ReadBack
from saltvirt.backups.retention import Retention
from saltvirt.backups.stock import Backup, Stock

# the guest's name, the backup's, bytes done, bytes in all
Tell = Callable[[str, str, int, int], object]
ALL = "all"
# of more backups an answer tells only what is to be told of
MOST_TOLD = 1500


def named(target: Target, name: str | None) -> dict[str, Stock]:
    """UUID to what is there, of all guests, or of those that ``receive.whose`` finds: a guest that
    was removed and made anew has two."""
    uuids = target.guests() if name is None else receive.whose(target, name)
    return {uuid: target.stock(uuid) for uuid in uuids}


def pruned(target: Target, rules: Retention, name: str | None, test: bool) -> Kept:
    """Removes what no longer has to stay; test: only tells what. A guest of which it cannot be done
    hinders no other."""
    found = [_pruned(target, uuid, rules, test) for uuid in named(target, name)]
    if sum(len(one.backups) for one in found) > MOST_TOLD:
        found = [_short(one) for one in found]
    return Kept(tuple(found))


def _short(guest: KeptGuest) -> KeptGuest:
    """Without those that stay: Salt cuts an answer that is too long."""
    gone = tuple(one for one in guest.backups if not one.stays)
    return replace(guest, backups=gone, untold=len(guest.backups) - len(gone))


def _pruned(target: Target, uuid: str, rules: Retention, test: bool) -> KeptGuest:
    guest = KeptGuest(uuid, _name(target.stock(uuid)))
    try:
        found = prune.guest(target, uuid, rules, test)
    except errors.VirtError as exc:
        return replace(guest, trouble=exc.text)
    return replace(guest, backups=tuple(KeptBackup(one.ident, one.stays, one.why) for one in found))


def read_back(
    target: Target,
    name: str | None,
    backup: str,
    days: float | None,
    now: str,
    tell: Tell,
    most: int | None = None,
) -> AllReadBack:
    """Reads backups back, each guest's from the oldest on.

    backup: of each guest: ALL, or what ``ident.find`` takes. days: only those that were not read
    back in so many days; None: all. now: as a record has it. most: no more than so many, those
    first that were not read back for the longest time.
    """
    stocks = {uuid: stock for uuid, stock in named(target, name).items() if stock.last}
    chosen = _chosen(stocks, backup)
    wanted = [(uuid, one) for uuid, one in chosen if days is None or _is_due(one, days, now)]
    if most is not None:
        wanted = sorted(wanted, key=lambda one: _since(one[1]))[:most]
    read = (_read_back(target, uuid, one, now, tell) for uuid, one in wanted)
    found = [one for one in read if one]
    if len(found) <= MOST_TOLD:
        return AllReadBack(tuple(found))
    bad = tuple(one for one in found if one.trouble or one.wrong)
    return AllReadBack(bad, len(found) - len(bad))


def _chosen(stocks: Mapping[str, Stock], backup: str) -> list[tuple[str, Backup]]:
    """(the guest's UUID, a backup) of those that are meant. Raises as ``ident.find`` does if no
    guest has one."""
    found: list[tuple[str, Backup]] = []
    missing = None
    for uuid, stock in stocks.items():
        if backup == ALL:
            found += [(uuid, one) for one in stock]
            continue
        try:
            found.append((uuid, stock.backups[idents.find(stock.backups, backup)]))
        except errors.NotFound as exc:  # each guest has numbers of its own
            missing = exc
    if missing and not found:
        raise missing
    return found


def _since(backup: Backup) -> tuple[str, str]:
    """When it was last read back, those never read back first."""
    return (backup.verified.when if backup.verified else "", backup.ident)


def _is_due(backup: Backup, days: float, now: str) -> bool:
    if backup.verified is None:
        return True
    since = record.moment(now) - record.moment(backup.verified.when)
    # a clock that was put back is no reason not to look
    return not datetime.timedelta() <= since < datetime.timedelta(days=days)


def _read_back(target: Target, uuid: str, backup: Backup, now: str, tell: Tell) -> ReadBack | None:
    """What was found; None for one that was removed meanwhile."""
    guest = backup.record.guest if backup.record else None
    found = ReadBack(uuid, backup.ident, guest)

    def told(done: int, total: int) -> None:
        tell(guest or uuid, backup.ident, done, total)

    try:
        verified = verify.backup(target, uuid, backup.ident, now, told)
    except errors.Unsupported:
        raise
    except errors.VirtError as exc:
        if not target.folder.is_there(uuid, backup.ident):
            return None
        return replace(found, trouble=exc.text)
    stock = target.stock(uuid)
    if backup.ident not in stock.backups:
        return None
    return replace(found, verified=verified, wrong=stock.wrong(backup.ident))


def _name(stock: Stock) -> str | None:
    return stock.records[-1].guest if stock.records else None
