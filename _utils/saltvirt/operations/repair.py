"""What interrupted operations have left behind: found first, repaired on request."""

from __future__ import annotations

import contextlib
import functools
import shlex
import time
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from saltvirt import errors, plain, units
from saltvirt.answers.guests import Leftovers
from saltvirt.answers.migration import Recovered
from saltvirt.fleet import answer, target
from saltvirt.fleet.authorization import Authorizations
from saltvirt.fleet.client import Fleet
from saltvirt.fleet.keys import KeyStore
from saltvirt.fleet.pillars import Pillars
from saltvirt.operations import (
    begun,
    ending,
    find,
    keepers,
    lock,
    migrate,
    owners,
    proof,
    purge,
    recover,
    target_leftovers,
)
from saltvirt.operations.operation import Checked, Result, failure
from saltvirt.operations.report import Report

# a guest's name to {host: state}
Places = dict[str, dict[str, str]]

HALF_MADE = "half-made"
BROKEN_OFF = "migration-broken-off"
TWICE = "two-hosts"
KEY = "key-without-guest"
PILLAR = "pillar-without-key"
PERMISSION = "permission-expired"
GIVEN_UP = "given-up"
OWNER = "owner-not-recorded"
LEFT = "left-on-target"
MADE = "disk-without-guest"
BACKUP = "backup-broken-off"
# libvirt's word for a domain that does not run
OFF = "shutdown"
CODES = (
    HALF_MADE, BROKEN_OFF, LEFT, MADE, BACKUP, TWICE, KEY, PILLAR, PERMISSION, GIVEN_UP, OWNER,
)  # fmt: skip


@dataclass(frozen=True)
class Finding:
    """One leftover.

    code: one of CODES. about: the guest. where: the host, None where there is no one. what: the
    leftover, in words. how: what repairing does, or what the person has to look at. evidence: what
    was seen. repair: callable that repairs it, None: a person must decide; do: then the commands.
    """

    code: str
    about: str
    what: str
    how: str
    evidence: str
    where: str | None = None
    repair: Callable[[], object] | None = None
    do: str = ""

    @property
    def id(self) -> str:
        """What ``virt.repair what=`` takes for this one alone."""
        return ":".join(filter(None, (self.code, self.about, self.where)))

    @property
    def command(self) -> str:
        """What repairs this one and nothing else."""
        # the name is a host's word, and a person gives this line to a shell
        what = shlex.quote(f"what={self.id}")
        return f"salt-run virt.repair apply=True {what}" if self.repair else self.do

    def data(self) -> dict[str, Any]:
        """It as plain data."""
        return {
            "code": self.code, "id": self.id, "name": self.about, "host": self.where,
            "what": self.what, "how": self.how, "evidence": self.evidence,
            "command": self.command, "repairs": self.repair is not None,
        }  # fmt: skip


class Repair:
    """Shows what interrupted operations have left, and repairs it.

    name: only what is left of this guest. what: only findings of this code, or the one of this id.
    Raises InvalidInput for one that there is not.
    """

    def __init__(
        self, fleet: Fleet, report: Report, name: str | None = None, what: str | None = None
    ) -> None:
        chosen([], what=what)
        self.fleet, self.report, self.name, self.what = fleet, report, name, what

    def check(self) -> Checked:
        """What was found, and what would be repaired."""
        findings, unreachable = self._look()
        rows = [["what", "is wrong", "repairing", "command"]]
        rows += [[f.about, f.what, f.how, f.command] for f in findings]
        rows += [[host, why, "", ""] for host, why in sorted(unreachable.items())]
        number = units.counted(len(findings), "leftover")
        comment = number if findings else "nothing is left over"
        comment += " on the hosts that answered" if unreachable else ""
        changes = {"repaired": {f.about: f.how for f in findings if f.repair}}
        more = {"table": rows, "findings": [f.data() for f in findings]}
        return Checked("repair", comment, changes, more, complete=not unreachable)

    def run(self) -> Result:
        """What was repaired, and what is left and why."""
        findings, unreachable = self._look()
        repaired, left = repair_all(findings, self.report)
        left.update({} if findings and (self.name or self.what) else unreachable)
        comment = (
            f"{len(repaired)} repaired, {len(left)} left" if left else f"{len(repaired)} repaired"
        )
        comment += "".join(f"; {about}: {why}" for about, why in sorted(left.items()))
        changes = {"repaired": repaired} if repaired else {}
        return Result("repair", comment, changes, {"left": left}, complete=not left)

    def _look(self) -> tuple[list[Finding], dict[str, str]]:
        findings, unreachable = look(self.fleet)
        return chosen(findings, self.name, self.what), unreachable


def look(fleet: Fleet) -> tuple[list[Finding], dict[str, str]]:
    """(list of Finding, host to why it did not answer). Changes nothing.

    Keys without a guest are only looked for when every host was heard, those among them that
    ``virt:hosts`` does not match any more: the guest may be on the one that was not.
    """
    hosts = fleet.hosts()
    found: list[Finding] = []
    unreachable = proof.unmatched(fleet.opts, hosts)
    answers, silent = _asked(fleet, hosts)
    unreachable.update(silent)
    for host, data in answers.items():
        found += list(_of_host(fleet, host, data))
        found += list(_left(fleet, host, data))
        found += list(_made(fleet, host, data))
        found += list(_backups(fleet, host, data))
    guests = _guests(answers)
    half = {finding.about for finding in found if finding.code not in (LEFT, MADE, BACKUP)}
    found += list(_given_up(fleet, answers, unreachable, half))
    found += list(_unowned(fleet, guests, half))
    found += list(_twice(fleet, answers, half))
    if not unreachable:
        found += list(_keys(fleet, guests, hosts))
    found += list(_permissions(fleet))
    found += list(_pillars(fleet))
    return sorted(found, key=lambda f: (f.about, f.what)), unreachable


def _asked(fleet: Fleet, hosts: Iterable[str]) -> tuple[dict[str, Leftovers], dict[str, str]]:
    """(host to what its ``virt.leftovers`` says, host to why it did not answer)."""
    return answer.facts(fleet.ask(hosts, "virt.leftovers"), Leftovers.from_answer)


def _guests(answers: dict[str, Leftovers]) -> Places:
    """Name to {host: state}."""
    return find.by_name({host: said.guests for host, said in answers.items()})


def chosen(
    findings: Iterable[Finding], name: str | None = None, what: str | None = None
) -> list[Finding]:
    """The findings of one guest, and of one code or id. Raises InvalidInput for an unknown one."""
    if what and str(what).partition(":")[0] not in CODES:
        raise errors.InvalidInput(
            f"what={what}: no such finding; a code ({', '.join(CODES)}) or an id that "
            "salt-run virt.repair shows"
        )
    return [
        one for one in findings if name in (None, one.about) and what in (None, one.code, one.id)
    ]


def repair_all(
    findings: Iterable[Finding], report: Report
) -> tuple[dict[str, str], dict[str, str]]:
    """Repairs what can be repaired. Returns (repaired, left): finding's name to words."""
    repaired: dict[str, str] = {}
    left: dict[str, str] = {}
    for finding in findings:
        if finding.repair is None:
            commands = f" ({finding.do})" if finding.do else ""
            _add(left, finding.about, f"{finding.what}: {finding.how}{commands}")
            continue
        try:
            finding.repair()
            _add(repaired, finding.about, finding.how)
            report.step("repaired", f"{finding.about}: {finding.how}")
        except Exception as exc:
            words = failure(exc, f"the repair of {finding.about}")
            _add(left, finding.about, f"{finding.what}: {words}")
    return repaired, left


def _add(found: dict[str, str], name: str, words: str) -> None:
    """One guest can have several findings."""
    found[name] = f"{found[name]}; {words}" if name in found else words


def _of_host(fleet: Fleet, host: str, data: Leftovers) -> Iterator[Finding]:
    for name in data.unfinished:
        if name in data.used:
            yield _used(host, name, data.used[name])
            continue
        yield Finding(
            HALF_MADE, name,
            f"partially created on {host} by an interrupted init",
            f"removed from {host}",
            f"its record on {host} names the process that created it, and that process has ended",
            host,
            functools.partial(_leftover, fleet, host, name),
        )  # fmt: skip
    for name, about in data.migrations.items():
        if about.at_work:
            continue
        yield Finding(
            BROKEN_OFF, name,
            f"its migration from {host} was broken off",
            f"a person decides: {about.wrong}"
            if about.wrong
            else "both hosts are asked, and the migration is completed or undone",
            f"{host} has a journal of its migration to {about.target or 'another host'}, and no "
            "process is working on it",
            host,
            None if about.wrong else functools.partial(_take_away, fleet, host, name),
        )  # fmt: skip


def _used(host: str, name: str, why: str) -> Finding:
    """Of a guest whose creation was interrupted, and which was started since."""
    given = shlex.quote(f"vm_={name}")
    return Finding(
        HALF_MADE, name,
        f"its creation on {host} was interrupted, but {why}",
        "a person decides: it may hold data, and lack its host name and its key; keep it as it is, "
        "or remove it with its disks",
        f"its record on {host} names the process that created it, and that process has ended; "
        f"libvirt there says that {why}",
        host,
        do=f"one of: salt {host} virt.mark_complete {given}; "
        f"salt-run virt.purge {shlex.quote(f'name={name}')} force=True",
    )  # fmt: skip


def _backups(fleet: Fleet, host: str, data: Leftovers) -> Iterator[Finding]:
    for name in data.backups:
        yield Finding(
            BACKUP, name,
            f"a backup of it on {host} was broken off",
            f"ended on {host}, and what the guest overwrote meanwhile is removed there",
            f"{host} has a record of what the backup began, and no process is working on it",
            host,
            functools.partial(fleet.one, host, "virt.backup_sweep", long=True),
        )  # fmt: skip


def _left(fleet: Fleet, host: str, data: Leftovers) -> Iterator[Finding]:
    for name, _, on in (key.rpartition("@") for key in data.left):
        yield Finding(
            LEFT, name,
            f"{on} may hold files of a migration from {host} that was ended without it",
            f"removed from {on}",
            f"{host} has a record of what was created on {on}, which did not answer then",
            on,
            functools.partial(_take_away, fleet, host, name),
        )  # fmt: skip
    for name in data.noted:
        yield Finding(
            LEFT, name,
            f"{host} has files of a migration of it to {host} that was undone",
            f"removed from {host}",
            f"{host} has a record of what was created there, and it was not removed",
            host,
            functools.partial(_take_away, fleet, None, name),
        )  # fmt: skip


def _made(fleet: Fleet, host: str, data: Leftovers) -> Iterator[Finding]:
    for name, about in data.made.items():
        paths, unsure = about.disks, about.unsure
        look = "; ".join(f"{path}: {why}" for path, why in unsure.items())
        yield Finding(
            MADE, name,
            f"{', '.join([*paths, *unsure])} on {host} was being created for it by "
            f"{about.what}, which was interrupted; no guest has it",
            f"removed from {host}" if paths else f"a person decides: {look}",
            f"{host} has a record of it, and the process that was creating it has ended",
            host,
            functools.partial(_remove_made, fleet, host, name) if paths else None,
            do=f"salt {host} virt.remove_made {shlex.quote(name)} test=True",
        )  # fmt: skip


def _remove_made(fleet: Fleet, host: str, name: str) -> None:
    with _alone(fleet, name):
        purge.made(fleet, host, name)


def _take_away(fleet: Fleet, source: str | None, name: str) -> None:
    """Ends migrations of the guest from the source, if there is one, and cleans their targets.
    Raises OperationFailed where something stays."""
    with _alone(fleet, name):
        found = Recovered()
        if source:
            found = ending.ended(fleet, source, name, migrate.locations(fleet).hosts)
            if found.outcome == migrate.MOVED:
                recover.rebind_key(fleet, name, source)
        gone, stay, left = target_leftovers.everywhere(fleet, name)
    words = [f"{on}: {why}" for on, why in {**found.left_on, **left}.items()]
    if found.outcome != migrate.MOVED:  # a target that was handed it may be silent
        known = {*gone, *stay}
        kept = {path: why for path, why in found.kept.items() if path not in known}
        words += [target_leftovers.words(kept)] if kept else []
    if words:
        raise errors.OperationFailed("; ".join(words))


def _given_up(
    fleet: Fleet, answers: dict[str, Leftovers], unreachable: dict[str, str], half: Container[str]
) -> Iterator[Finding]:
    """Guests that a host was told to make, by an operation whose end this master did not see."""
    for name, begin in begun.all_of(fleet.opts).items():
        host, what = begin.host, begin.what
        there = answers.get(host)
        state = there.guests.get(name) if there else None
        if name in half or state == "running" or _at_work(fleet, name):
            continue
        if (state is None and host not in unreachable) or begun.by_another(name, begin, there):
            continue
        since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(begin.since))
        where = (
            f"{host} does not answer now: {unreachable[host]}"
            if state is None
            else f"it is {state}"
        )
        yield Finding(
            GIVEN_UP, name,
            f"created on {host} by {what}, which was given up or killed; {where}",
            "a person decides: look whether it is that one, as somebody else may have created it "
            "since; then start it, or purge it",
            f"{host} was asked to create it at {since}; this master did not see the end of that",
            host,
            do=f"salt-run virt.vm_info {name}",
        )  # fmt: skip


def _unowned(fleet: Fleet, guests: Container[str], half: Container[str]) -> Iterator[Finding]:
    """Guests that were made for users who are not recorded as their owners."""
    for name, one in owners.unrecorded(fleet.opts).items():
        if name not in guests or name in half or _at_work(fleet, name):
            continue
        yield Finding(
            OWNER, name,
            f"created for {plain.line(one.owner)}, and the master did not record the owner",
            "a person decides: look whether it is that one, as somebody else may have created it "
            "since; until its owner is recorded it counts in the quota of that user",
            "that user called virt.init; its process ended before the owner was recorded, the host "
            "did not answer, or the master could not write",
            do=shlex.join(["salt-run", "virt.own", name, one.owner]),
        )  # fmt: skip


def _twice(fleet: Fleet, answers: dict[str, Leftovers], half: Container[str]) -> Iterator[Finding]:
    """Guests of two hosts that nobody works on. A guest that is just moved is on both for a while,
    so they are asked once more."""
    found = _apart(answers, half)
    if not found:
        return
    hosts = {host for places in found.values() for host in places}
    again, _ = _asked(fleet, sorted(hosts))
    for name, places in _apart(again, half).items():
        if name not in found or _at_work(fleet, name):
            continue
        shown = ", ".join(f"{host} ({state})" for host, state in sorted(places.items()))
        off = [host for host, state in sorted(places.items()) if state == OFF]
        ways = [f"salt {host} virt.undefine {shlex.quote(f'vm_={name}')}" for host in off]
        looks = [f"salt {host} virt.vm_info {shlex.quote(f'vm_={name}')}" for host in places]
        one_of = "one of: " if len(ways) > 1 else ""
        yield Finding(
            TWICE, name,
            f"is on more than one host: {shown}",
            "decide which one is right; on the other stop it and undefine it, which leaves "
            "its disks: both may use the same ones",
            "each of these hosts lists a domain of this name, and none has an operation or a "
            "migration of it at work",
            do=f"{one_of}{'; '.join(ways)}" if ways else "; ".join(sorted(looks)),
        )  # fmt: skip


@contextlib.contextmanager
def _alone(fleet: Fleet, name: str) -> Iterator[None]:
    """Holds the guest's lock. Raises OperationFailed for one that is kept on this master: it may be
    nowhere at the moment, and be started any time."""
    with lock.guest(fleet.opts, name, "virt.repair"):
        keepers.refuse(fleet.opts, name)
        yield


def _at_work(fleet: Fleet, name: str) -> str | None:
    """Which operation of this master is at work on it, None for none: as on all that has a name
    which a host made up."""
    with contextlib.suppress(errors.InvalidInput):
        return lock.at_work(fleet.opts, name)
    return None


def _apart(answers: dict[str, Leftovers], half: Container[str]) -> Places:
    """Name to {host: state} of those that are on several hosts and are not on their way."""
    busy = {name for said in answers.values() for name in (*said.migrations, *said.at_work)}
    return {
        name: places
        for name, places in _guests(answers).items()
        if len(places) > 1 and name not in half and name not in busy
    }


def _leftover(fleet: Fleet, host: str, name: str) -> None:
    with _alone(fleet, name):
        purge.leftover(fleet, host, name)


def _keys(fleet: Fleet, guests: Container[str], hosts: Container[str]) -> Iterator[Finding]:
    keys = KeyStore(fleet.opts)
    for name in keys.ours():
        if name in guests or keepers.who(fleet.opts, name):
            continue
        host = keys.host_of(name)
        # of a master with syndics nobody knows that each host was asked
        sure = host in hosts and not fleet.opts.get("order_masters")
        evidence = f"this master accepted the key for a guest of {host or 'a host not recorded'}"
        yield Finding(
            KEY, name,
            "the master trusts its key, and no host has such a guest",
            "key deleted" if sure
            else "look whether a machine uses it, wherever that is now; a person who knows that it "
            "is gone for good removes its key from the master",
            f"{evidence}; every host that virt:hosts matches answered, none has it",
            repair=functools.partial(_delete_key, fleet, name) if sure else None,
            do=f"salt {name} test.ping",
        )  # fmt: skip


def _delete_key(fleet: Fleet, name: str) -> None:
    """Deletes the key, when the guest is still nowhere, no operation is at work on it, and no
    minion uses it."""
    with _alone(fleet, name):
        hosts = fleet.hosts()
        now = find.locations(fleet, hosts)
        unreachable = {**now.unreachable, **proof.unmatched(fleet.opts, hosts)}
        if unreachable:
            why = "; ".join(f"{host}: {reason}" for host, reason in sorted(unreachable.items()))
            raise errors.OperationFailed(f"its key stays: not every host answered: {why}")
        if name in now.guests:
            places = ", ".join(sorted(now.guests[name]))
            raise errors.OperationFailed(f"its key stays: it is on {places} now")
        # the master does not see the connection of one behind NAT
        if name in target.connected(fleet.opts, [name]) or _answers(fleet, name):
            raise errors.OperationFailed("its key stays: a minion uses it")
        KeyStore(fleet.opts).delete(name)


def _answers(fleet: Fleet, name: str) -> bool:
    """Whether a minion of the id answers. Anybody can say so in its name: then the key stays."""
    return any(one.ok for one in fleet.ask([name], "test.ping", signed=False))


def _pillars(fleet: Fleet) -> Iterator[Finding]:
    pillars = Pillars(fleet.opts)
    for name in pillars.orphans(KeyStore(fleet.opts).accepted):
        yield Finding(
            PILLAR, name,
            "the master keeps a pillar for it, and its key is gone",
            "pillar removed",
            "a pillar was given to virt.init, and the key that it is bound to is not accepted",
            repair=functools.partial(pillars.remove, name),
        )  # fmt: skip


def _permissions(fleet: Fleet) -> Iterator[Finding]:
    permissions = Authorizations(fleet.opts)
    for host, name in permissions.expired():
        yield Finding(
            PERMISSION, name,
            f"a permission for {host} to hand in its key has expired",
            "permission removed",
            "virt.authorize or an init allowed it, and its time is over",
            host,
            functools.partial(permissions.revoke, host, name),
        )  # fmt: skip
