"""The one place that all verbs of the runner pass: is whoever asks allowed to? See docs/rights.md.

Those who have the master (fleet.asker) are not limited. For a user who was authenticated
``virt:rights`` holds: what is not granted there is denied, and a guest to which the user may do
nothing is not there: all hosts are asked what they have, whatever the name is, and one answer is
made of what the user sees in it.
"""

from __future__ import annotations

import contextlib
import inspect
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from saltvirt import confidential, errors, names, plain, settings, units
from saltvirt.fleet import asker
from saltvirt.fleet.client import Fleet
from saltvirt.operations import begun, inventory, owners
from saltvirt.placement import facts
from saltvirt.rights import grants, verbs
from saltvirt.rights.grants import Amount, Known

TAG = "salt/virt/rights/denied"
# what an answer or an event says of other guests, and what stands in its place: who is at work,
# whose a disk is, what nobody can be proven to use, for whom there is room, who is of a group
_OTHERS = (
    (re.compile(r"\bof [^;]*?(?=, process \d)", re.DOTALL), "of a guest"),
    (
        re.compile(r"\b(used by|needed by|is a disk of) .*", re.DOTALL),
        rf"\1 {confidential.SOMEBODY}",
    ),
    (re.compile(r"\b(nobody uses it:) .*", re.DOTALL), rf"\1 {confidential.REASONS}"),
    (re.compile(r"\b(virt:ha:reserve:) [^;]*"), rf"\1 {confidential.ROOM}"),
    (re.compile(r"\balready has \S+ of group\b"), f"already has {confidential.SOMEBODY} of group"),
)
# what virt.query has of a host beside its guests
_OF_HOST = ("freecpu", "freemem", "node_info")
# names of snapshots and targets, as users may give them: they become parts of names of files
_TEXTS = {"snapshot", "names", "to"}
_TEXT = re.compile("[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
# arguments of virt.init that are a number or a text for users, never a description; and True or
# False
_NUMBERS = ("cpu", "mem", "image", "nic", "disk")
_SWITCHES = ("seed", "install", "start", "enable_vnc", "enable_qcow")

Answer = dict[str, Any]

log = logging.getLogger(__name__)


def answer(
    function: Callable[..., Answer], given: inspect.BoundArguments, injected: object
) -> Answer:
    """What a function of the runner gives back, when whoever asks may call it so.

    injected: what Salt has put into ``__user__``. Raises Denied, NotFound, and as the function
    does.
    """
    opts = function.__globals__.get("__opts__") or {}
    if not grants.configured(opts):
        return function(*given.args, **given.kwargs)
    verb = function.__name__
    try:
        user = asker.of(opts, injected)
    except errors.Denied as exc:
        with Fleet(opts) as fleet:
            _tell(fleet, "", verb, "", exc)
        raise
    if user is None:
        return function(*given.args, **given.kwargs)
    return _Limited(opts, user, function, given).answer()


def may_still(opts: dict[str, Any], user: str, verb: str, name: str, uuid: str) -> bool:
    """Whether a user who was allowed a verb of this guest is so now: by ``virt:rights``, which this
    process has read, and by its owner as he is now. Raises InvalidInput, BadAnswer."""
    if not grants.configured(opts):
        return True
    rights = grants.read(opts)
    own = rights.of(user, asker.groups(opts, rights.eauth, user))
    return own.everywhere(verb) or own.may(verb, _known(opts, name, uuid))


def may_ever(opts: dict[str, Any], user: str | None, verb: str) -> bool:
    """Whether there may be a guest to which the user may do it. Raises Denied."""
    own = _limits(opts, user)
    return own is None or own.may_at_all(verb)


def may_all(opts: dict[str, Any], user: str | None, verb: str) -> bool:
    """Whether a verb is the user's without any limit. Raises Denied."""
    own = _limits(opts, user)
    return own is None or own.everywhere(verb)


def seen_by(
    opts: dict[str, Any],
    user: str | None,
    told: Answer,
    hosts: list[facts.Host],
    unreachable: dict[str, str],
) -> Answer:
    """What virt.query has told, of the guests that the user may query. hosts, unreachable: what
    they have, as inventory.gather says. Raises Denied, BadAnswer."""
    own = _limits(opts, user)
    if own is None or own.everywhere("query"):
        return told
    return _narrow(own, "query", told, _cloud(opts, hosts, unreachable))


def makes(opts: dict[str, Any], user: str | None, name: str) -> bool:
    """Whether a guest of this name is being made for the user."""
    return user is not None and owners.maker(opts, name) == user


def _limits(opts: dict[str, Any], user: str | None) -> grants.Own | None:
    """The user's rights; None: whoever it is is not limited."""
    return None if user is None or not grants.configured(opts) else _own(opts, user)


def _own(opts: Mapping[str, Any], user: str) -> grants.Own:
    try:
        rights = grants.read(opts)
    except errors.InvalidInput as exc:
        raise errors.Denied(
            "nothing is allowed to anybody: the master's virt:rights has an error; salt-run "
            "virt.owners shows it to its operator"
        ) from exc
    return rights.of(user, asker.groups(opts, rights.eauth, user))


def _known(opts: dict[str, Any], name: str, uuid: str) -> Known:
    """A guest with what is written down of it. Raises BadAnswer."""
    written = owners.of(opts, uuid)
    return Known(name, written.owner, written.labels)


def asked_by(opts: Mapping[str, Any]) -> str | None:
    """Who asks for what is run here; None: somebody who has the master, or nobody is limited, and
    it is not known who."""
    try:
        return asker.of(opts)
    except errors.Denied:
        if grants.configured(opts):
            raise
        return None


def _tell(fleet: Fleet, user: str, verb: str, about: str, why: errors.VirtError) -> None:
    told = {"user": user, "verb": verb, "guest": about, "message": why.text}
    fleet.tell(TAG, {word: plain.line(text) for word, text in told.items()})


@dataclass(frozen=True)
class _Guest:
    """A guest where a host has it."""

    known: Known
    facts: facts.Guest


@dataclass(frozen=True)
class _Cloud:
    """What all hosts have said. hosts: host to its guests by name."""

    hosts: dict[str, dict[str, _Guest]]
    unreachable: tuple[str, ...]

    def of(self, name: str) -> list[Known]:
        """The guest, on each host that has it."""
        return [guests[name].known for guests in self.hosts.values() if name in guests]

    def uuids(self) -> list[str | None]:
        """Those of all guests, as owners knows them."""
        every = (one.facts.uuid for guests in self.hosts.values() for one in guests.values())
        return [owners.known_by(uuid) for uuid in every]

    def missing(self, name: str) -> errors.NotFound:
        """The error for a guest that is not there, or is not to be seen."""
        text = f"no guest {name!r} on any hypervisor"
        if self.unreachable:
            text += f" that answered (not: {', '.join(self.unreachable)})"
        return errors.NotFound(text)


class _Limited:
    """One call by a user who has rights, and no others."""

    def __init__(
        self,
        opts: Mapping[str, Any],
        user: str,
        function: Callable[..., Answer],
        given: inspect.BoundArguments,
    ) -> None:
        self.opts, self.user, self.verb = dict(opts), user, function.__name__
        self._function, self._given = function, given

    def answer(self) -> Answer:
        """As the function, or Denied, NotFound, and an event of it."""
        with Fleet(self.opts) as fleet, contextlib.ExitStack() as stack:
            try:
                self._own = _own(self.opts, self.user)
                call = self._admitted(fleet, stack)
            except errors.VirtError as exc:
                _tell(fleet, self.user, self.verb, self._about(), exc)
                raise
            fleet.rest()
            with confidential.collected() as parts:
                try:
                    found: Answer = self._cut(call(), parts)
                    return found
                except errors.VirtError as exc:
                    raise type(exc)(without_others(self._cut(exc.text, parts))) from exc
                except Exception as exc:  # what it says may be of somebody else's guest
                    log.exception("virt.%s", self.verb)
                    raise errors.OperationFailed(
                        "internal error: the master's log has a traceback; please report it"
                    ) from exc

    def _cut(self, told: Any, parts: list[confidential.Part]) -> Any:
        """An answer without what tells of guests of others; who may call the verb of every guest
        sees all of them."""
        return told if self._own.everywhere(self.verb) else confidential.cut(told, parts)

    def _about(self) -> str:
        name = self._given.arguments.get("name") or self._given.arguments.get("host") or ""
        return name if isinstance(name, str) else units.shown(name)

    def _denied(self, why: str = "") -> errors.Denied:
        return errors.Denied(f"{self.user} may not call virt.{self.verb}{why}")

    def _admitted(self, fleet: Fleet, stack: contextlib.ExitStack) -> Callable[[], Answer]:
        """What to call. Raises Denied, NotFound, InvalidInput, OperationFailed."""
        if not self._own.may_at_all(self.verb):
            raise self._denied()
        self._refuse_connection()
        rule = verbs.RULES[self.verb]
        everywhere = self._own.everywhere(self.verb)
        if everywhere and rule.scope != verbs.MAKING:
            return self._call
        if rule.scope == verbs.CLOUD:
            raise self._denied()
        if not everywhere:
            self._refuse_others(rule)
        if rule.scope == verbs.NONE:
            return self._call
        if rule.scope == verbs.MAKING:
            return self._making(fleet, stack, everywhere)
        seen = self._look(fleet)
        if rule.scope == verbs.LISTING:
            return lambda: _narrow(self._own, self.verb, self._call(), seen)
        name = self._name("name", names.there)
        self._admit(seen, name)
        if "new" in self._given.arguments:
            self._admit_name(seen, self._name("new", names.guest))
        return lambda: without_others(self._call())

    def _call(self) -> Answer:
        return self._function(*self._given.args, **self._given.kwargs)

    def _refuse_connection(self) -> None:
        """Raises Denied for an argument that chooses a host's libvirt: its address can name a
        program (``qemu+ext:///system?command=…``), which the host runs as root."""
        arguments = self._given.arguments
        parts = [arguments, *(value for value in arguments.values() if isinstance(value, dict))]
        for word in settings.CONNECTION:
            if any(word in part for part in parts):
                raise self._denied(f" with {word}")

    def _refuse_others(self, rule: verbs.Rule) -> None:
        """Raises Denied for an argument that is not for users."""
        given, extra = self._given.arguments, {}
        for parameter in self._given.signature.parameters.values():
            if parameter.kind is parameter.VAR_KEYWORD and parameter.name in given:
                extra = settings.given(given[parameter.name])
                given = {word: one for word, one in given.items() if word != parameter.name}
                self._given.arguments[parameter.name] = extra
        for word in sorted({*given, *extra} - rule.takes):
            raise self._denied(f" with {plain.line(word)}")
        for word in sorted(_TEXTS & given.keys()):
            value = given[word]
            for one in value if isinstance(value, (list, tuple)) else [value]:
                if not _TEXT.fullmatch(str(one)):
                    raise self._denied(f" with {word}={units.shown(one)}")

    def _name(self, word: str, fits: Callable[[object], str]) -> str:
        """The name that was given, which from here on is what the function gets."""
        name = self._given.arguments[word] = fits(str(self._given.arguments[word]))
        return name

    def _look(self, fleet: Fleet, guest: dict[str, Any] | None = None) -> _Cloud:
        """What all hosts have, whatever was asked for."""
        self._hosts, unreachable = inventory.gather(fleet, guest=guest, patient=guest is not None)
        return _cloud(self.opts, self._hosts, unreachable)

    def _admit(self, seen: _Cloud, name: str) -> None:
        """Raises NotFound where the user does not see it on each host that has it, Denied where
        this verb is not the user's."""
        found = seen.of(name)
        if not found or not all(map(self._own.sees, found)):
            raise seen.missing(name)
        if not all(self._own.may(self.verb, one) for one in found):
            raise self._denied(f" of {name}")

    def _admit_name(self, seen: _Cloud, name: str) -> None:
        """Raises Denied where no guest of the user may be called so, AlreadyExists where it is
        somebody else's."""
        if not self._own.may_name(self.verb, name):
            raise self._denied(f" for a guest {name}")
        if not all(map(self._own.sees, seen.of(name))):
            raise errors.AlreadyExists(f"the name {name} is not free")

    def _making(
        self, fleet: Fleet, stack: contextlib.ExitStack, everywhere: bool
    ) -> Callable[[], Answer]:
        """The call that makes guests, within the quota; they are the user's afterwards."""
        whole = self._whole()
        if not everywhere:
            self._refuse_what(whole)
        with owners.one_at_a_time(self.opts):
            under_way = owners.being_made(self.opts)
            seen = self._look(fleet, self._as_asked(whole))
            if not everywhere:
                for name in whole["name"]:
                    self._admit_name(seen, name)
            each = self._takes(seen)
            self._refuse_more(seen, under_way, each, len(whole["name"]))
            mine = {
                name: owners.Making(self.user, each.vcpus or 0, each.memory_kib or 0,
                                    each.disk_bytes or 0)
                for name in whole["name"]
            }  # fmt: skip
            if any(name in under_way for name in mine):
                raise errors.AlreadyExists("one of the names is not free: it is being made")
            stack.enter_context(owners.making(self.opts, mine))
        return lambda: self._made(fleet, seen, list(mine))

    def _whole(self) -> dict[str, Any]:
        """The arguments of virt.init by name, what it adds itself among them."""
        self._given.apply_defaults()
        found = dict(self._given.arguments)
        found.update(settings.given(found.pop("kwargs", {})))
        several = names.several(found["name"])
        found["name"] = [names.guest(str(found["name"]))] if several is None else several
        return found

    def _refuse_what(self, whole: dict[str, Any]) -> None:
        """Raises Denied for guests that the user may not have made."""
        for words, kinds in (_NUMBERS, (str, int, float)), (_SWITCHES, (bool,)):
            for word in words:
                if not isinstance(whole[word], kinds):
                    raise self._denied(f" with {word}={units.shown(whole[word])}")
        image, profiles = str(whole["image"]), [str(whole["nic"]), str(whole["disk"])]
        for name in whole["name"]:
            if not self._own.may_name(self.verb, name):
                raise self._denied(f" for a guest {name}")
            if not self._own.may_make(name, image, profiles):
                made_of = f"{image} with disk={profiles[1]} nic={profiles[0]}"
                raise self._denied(f" for a guest {name} of {made_of}")

    def _as_asked(self, whole: dict[str, Any]) -> dict[str, Any]:
        """The arguments by which hosts say what one of them takes."""
        words = ("cpu", "mem", "image", "hypervisor", "nic", "disk", "disks", "enable_qcow", "seed")
        return {"name": whole["name"][0], **{word: whole[word] for word in words if word in whole}}

    def _takes(self, seen: _Cloud) -> Amount:
        """The most that one guest takes of any host. Raises Refused where none can say."""
        found = [
            (needs.vcpus, max(needs.memory_kib, needs.max_memory_kib),
             needs.disk_bytes + sum(needs.pools.values()) + sum(d.size_bytes for d in needs.disks))
            for needs in (host.needs for host in self._hosts) if needs and not needs.problem
        ]  # fmt: skip
        if self._own.quota.unlimited:
            return Amount()
        if not found:
            raise errors.Refused("no host can say what the guest would take")
        return Amount(1, *(max(column) for column in zip(*found, strict=True)))

    def _refuse_more(
        self, seen: _Cloud, under_way: dict[str, owners.Making], each: Amount, count: int
    ) -> None:
        """Raises Denied for more than the quota."""
        if self._own.quota.unlimited:
            return
        if seen.unreachable:
            raise errors.Refused(
                f"what {self.user} has is not known while hosts do not answer: "
                f"{', '.join(seen.unreachable)}"
            )
        has = {
            one.facts.uuid: Amount(
                1, one.facts.vcpus, max(one.facts.memory_kib, one.facts.max_memory_kib),
                sum(disk.size_bytes for disk in one.facts.disks),
            )
            for guests in seen.hosts.values() for one in guests.values()
            if self._is_mine(one.known.owner)
        }  # fmt: skip
        owned = {
            name for guests in seen.hosts.values() for name, one in guests.items()
            if self._is_mine(one.known.owner)
        }  # fmt: skip
        coming = [
            one.amount() for name, one in {**self._unrecorded(seen), **under_way}.items()
            if self._is_mine(one.owner) and name not in owned
        ]  # fmt: skip
        used = _sum([*has.values(), *coming])
        why = grants.over(self._own.quota, used, _sum([each] * count))
        if why:
            raise errors.Denied(f"the quota of {self.user} does not allow it: {why}")

    def _unrecorded(self, seen: _Cloud) -> dict[str, owners.Making]:
        """Name to Making, of the guests that were made for users who are not recorded as their
        owners. All hosts have answered: what is no such guest any more is forgotten."""
        found = owners.unrecorded(self.opts)
        for name in [*found]:
            there = seen.of(name)
            if not there or any(one.owner is not None for one in there):
                owners.forget_unrecorded(self.opts, name)
                del found[name]
        return found

    def _is_mine(self, owner: str | None) -> bool:
        """Whether it counts: by another spelling of the user's name, too."""
        return owner is not None and grants.person(owner) == grants.person(self.user)

    def _made(self, fleet: Fleet, before: _Cloud, wanted: list[str]) -> Answer:
        """Calls the function. What it has made under names that were free is the user's."""
        try:
            told = self._call()
        except errors.VirtError:
            self._keep_unsure(before, wanted)
            raise
        made = {
            name: str(told[name].get("host")) for name in wanted
            if not before.of(name) and (told.get(name) or {}).get("result") is True
        }  # fmt: skip
        self._keep_unsure(before, [name for name in wanted if name not in made])
        there = self._look(fleet) if made else before
        for name, host in made.items():
            guest = there.hosts.get(host, {}).get(name)
            is_new = guest and self._is_new(guest.facts.uuid, before, there)
            if not (guest and is_new and self._is_given(guest.facts.uuid, name)):
                log.warning("%s on %s is nobody's: no new UUID of it is known", name, host)
                self._keep_unrecorded(name)
                comment = f"{told[name].get('comment')}; the master could not record that it is "
                comment += f"yours: its operator can, by salt-run virt.own {name} {self.user}"
                told[name] = {**told[name], "comment": comment}
        found: Answer = without_others(told)
        return found

    def _keep_unsure(self, before: _Cloud, failed: list[str]) -> None:
        """Of what failed, guests that may exist all the same count: their hosts were asked to make
        them, and it is not known what became of that."""
        for name in failed:
            if not before.of(name) and begun.of(self.opts, name):
                self._keep_unrecorded(name)

    def _keep_unrecorded(self, name: str) -> None:
        """The guest counts in the quota until its operator says whose it is."""
        try:
            owners.keep_unrecorded(self.opts, name)
        except OSError:
            log.exception("that %s is of %s", name, self.user)

    def _is_given(self, uuid: str, name: str) -> bool:
        """Whether the guest is written down as the user's."""
        try:
            owners.give(self.opts, uuid, name, self.user)
        except (OSError, errors.VirtError):
            log.exception("the owner of %s", name)
            return False
        return True

    def _is_new(self, uuid: str, before: _Cloud, there: _Cloud) -> bool:
        """Whether it can be that of a guest that was just made. Its host says it: by that of
        another one this would be the user's, too."""
        mine = owners.known_by(uuid)
        if mine is None or mine in before.uuids() or there.uuids().count(mine) != 1:
            return False
        return owners.of(self.opts, uuid) == owners.Owner("")


def _cloud(opts: dict[str, Any], hosts: list[facts.Host], unreachable: dict[str, str]) -> _Cloud:
    """What the hosts have, with what is written down of each guest. Raises BadAnswer."""
    found = {
        host.name: {one.name: _Guest(_known(opts, one.name, one.uuid), one) for one in host.guests}
        for host in hosts
    }
    return _Cloud(found, tuple(sorted(unreachable)))


def _narrow(own: grants.Own, verb: str, told: Answer, seen: _Cloud) -> Answer:
    """What a listing has of the guests that the user may see."""
    may = {
        host: {name for name, one in guests.items() if own.may(verb, one.known)}
        for host, guests in seen.hosts.items()
    }
    return {
        host: about if host == "retcode" else _of_host(about, may.get(host, set()))
        for host, about in told.items()
    }


def _sum(amounts: list[Amount]) -> Amount:
    return Amount(*(
        sum(getattr(one, what) or 0 for one in amounts)
        for what in ("guests", "vcpus", "memory_kib", "disk_bytes")
    ))  # fmt: skip


def _of_host(about: Any, may: set[str]) -> Any:
    """What one host has in virt.list, or in virt.query, of the guests with these names."""
    if not isinstance(about, dict) or "error" in about:
        return {"error": "it does not answer as it should"}
    if "vm_info" in about:
        guests = {name: one for name, one in about["vm_info"].items() if name in may}
        return {**{word: about[word] for word in _OF_HOST if word in about}, "vm_info": guests}
    states = {
        state: [name for name in found if name in may]
        for state, found in about.items()
        if isinstance(found, list)
    }
    return {state: found for state, found in states.items() if found}


def without_others(told: Any) -> Any:
    """An answer, or an event, without what its words say of other guests."""
    if isinstance(told, dict):
        return {word: without_others(one) for word, one in told.items()}
    if isinstance(told, (list, tuple)):
        return [without_others(one) for one in told]
    if isinstance(told, str):
        for pattern, instead in _OTHERS:
            told = pattern.sub(instead, told)
    return told
