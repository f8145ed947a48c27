"""What ``virt:rights`` of the master says: who may do what to which guests, and how much is his."""

from __future__ import annotations

import fnmatch
import re
import unicodedata
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from saltvirt import settings, units
from saltvirt.errors import InvalidInput
from saltvirt.rights import verbs

EVERYBODY, GROUP = "*", "%"
_KEYS = {"who", "verbs", "guests", "labels", "owned", "images", "profiles", "everything"}
# what is not a name of a file below the master's file_roots, but steps out of it or asks for more
_STEPS = re.compile(r"(^|/)\.\.(/|$)|[?|#%\\\s\x00-\x1f\x7f]")


@dataclass(frozen=True)
class Known:
    """A guest as rights see it. owner: who deployed it; None: nobody who is limited. labels: as
    virt.label has written them down. Both are the master's own record."""

    name: str
    owner: str | None = None
    labels: tuple[str, ...] = ()


@dataclass(frozen=True)
class Amount:
    """What an owner has, or may have; None: no limit."""

    guests: int | None = None
    vcpus: int | None = None
    memory_kib: int | None = None
    disk_bytes: int | None = None

    @property
    def unlimited(self) -> bool:
        return self == Amount()


@dataclass(frozen=True)
class Grant:
    """One right. who: names of users, ``%`` and a group, or ``*``. guests: patterns of names.
    labels: patterns, of which one fits a label of the guest. owned: also those that the user has
    deployed. images, profiles: patterns of what a guest may be made of. everything: the verbs are
    theirs without any limit."""

    who: frozenset[str]
    verbs: frozenset[str]
    guests: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    owned: bool = False
    images: tuple[str, ...] = ()
    profiles: tuple[str, ...] = ("default",)
    everything: bool = False

    def has(self, user: str, guest: Known) -> bool:
        """Whether it is about the guest."""
        named = self.everything or _any_of(self.guests, guest.name)
        labelled = any(_any_of(self.labels, label) for label in guest.labels)
        return named or labelled or (self.owned and guest.owner == user)


@dataclass(frozen=True)
class Own:
    """The rights of one user."""

    user: str
    grants: tuple[Grant, ...]
    quota: Amount = Amount()

    def may(self, verb: str, guest: Known) -> bool:
        """Whether the user may do it to this guest."""
        return any(verb in one.verbs and one.has(self.user, guest) for one in self.grants)

    def sees(self, guest: Known) -> bool:
        """Whether there is anything that the user may do to it."""
        return any(one.verbs & verbs.SEEING and one.has(self.user, guest) for one in self.grants)

    def may_at_all(self, verb: str) -> bool:
        """Whether there may be a guest to which the user may do it."""
        return any(verb in one.verbs for one in self.grants)

    def everywhere(self, verb: str) -> bool:
        """Whether the verb is the user's without any limit."""
        return any(one.everything and verb in one.verbs for one in self.grants)

    def may_name(self, verb: str, name: str) -> bool:
        """Whether a guest may get this name by it."""
        return any(verb in one.verbs and _any_of(one.guests, name) for one in self.grants)

    def may_make(self, name: str, image: str, profiles: Collection[str]) -> bool:
        """Whether a guest of this name may be made of the image, with profiles of disks, NICs."""
        return not _STEPS.search(image) and any(
            "init" in one.verbs
            and _any_of(one.guests, name)
            and _any_of(one.images, image)
            and all(_any_of(one.profiles, profile) for profile in profiles)
            for one in self.grants
        )


@dataclass(frozen=True)
class Rights:
    """All of ``virt:rights``. groups: name to its users. quotas: person, or ``*``, to an Amount.
    eauth: Salt's authentication that is asked for more groups."""

    grants: tuple[Grant, ...]
    groups: dict[str, frozenset[str]]
    quotas: dict[str, Amount]
    eauth: str | None = None

    def of(self, user: str, more: Iterable[str] = ()) -> Own:
        """The rights of a user. more: names of groups that somebody else says."""
        named = {name for name, users in self.groups.items() if user in users} | set(more)
        ids = {user, EVERYBODY, *(GROUP + name for name in named)}
        quota = self.quotas.get(person(user), self.quotas.get(EVERYBODY, Amount()))
        return Own(user, tuple(one for one in self.grants if one.who & ids), quota)


def configured(opts: Mapping[str, Any]) -> bool:
    """Whether the master limits anybody: there is something, even nothing, below its key."""
    virt = opts.get("virt")
    return (isinstance(virt, Mapping) and "rights" in virt) or any(
        isinstance(key, str) and key.split(".")[:2] == ["virt", "rights"] for key in opts
    )


def read(opts: Mapping[str, Any]) -> Rights:
    """The Rights. Raises InvalidInput, which names the setting."""
    get = settings.of_master(opts)
    grants = settings.option(get, "rights:grants", [])
    if not isinstance(grants, (list, tuple)):
        raise settings.wrong("rights:grants", grants, "a list")
    return Rights(
        tuple(_grant(one, f"rights:grants:{number}") for number, one in enumerate(grants)),
        {
            _name(name, "rights:groups"): frozenset(_words(users, f"rights:groups:{name}"))
            for name, users in settings.mapping(get, "rights:groups").items()
        },
        {
            person(_name(name, "rights:quotas")): _amount(about, f"rights:quotas:{name}")
            for name, about in settings.mapping(get, "rights:quotas").items()
        },
        settings.text(get, "rights:eauth"),
    )


def _grant(value: object, where: str) -> Grant:
    about = _section(value, where, _KEYS)
    asked = _words(about.get("verbs"), f"{where}:verbs")
    everything = _boolean(about, "everything", where)
    found: set[str] = set()
    for word in asked:
        if word == "*" and everything:
            found |= verbs.RULES.keys()
        elif word in verbs.SETS:
            found |= verbs.SETS[word]
        elif word in verbs.RULES:
            found.add(word)
        else:
            known = ", ".join([*verbs.SETS, *sorted(verbs.RULES)])
            raise InvalidInput(f"virt:{where}:verbs: {units.shown(word)} is none of {known}")
    cloud = sorted(verb for verb in found if verbs.RULES[verb].scope == verbs.CLOUD)
    if cloud and not everything:
        raise InvalidInput(
            f"virt:{where}:verbs: {cloud[0]} acts on the whole cloud: grant it with everything: "
            "True, to those who answer for all guests"
        )
    if not about.get("who"):
        raise settings.wrong(f"{where}:who", about.get("who"), "a list of users")
    return Grant(
        frozenset(_words(about["who"], f"{where}:who")),
        frozenset(found),
        _words(about.get("guests"), f"{where}:guests"),
        _words(about.get("labels"), f"{where}:labels"),
        _boolean(about, "owned", where),
        _words(about.get("images"), f"{where}:images"),
        _words(about.get("profiles", ["default"]), f"{where}:profiles"),
        everything,
    )


def _amount(value: object, where: str) -> Amount:
    about = _section(value, where, {"guests", "vcpus", "memory", "disk"})
    count = {word: _count(about[word], f"{where}:{word}") for word in ("guests", "vcpus")
             if about.get(word) is not None}  # fmt: skip
    size = {word: units.parse_bytes(about[word], what=f"virt:{where}:{word}")
            for word in ("memory", "disk") if about.get(word) is not None}  # fmt: skip
    memory = size.get("memory")
    return Amount(
        count.get("guests"), count.get("vcpus"),
        None if memory is None else memory // 1024, size.get("disk"),
    )  # fmt: skip


def _count(value: object, where: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise settings.wrong(where, value, "a whole number from 0")
    return value


def _section(value: object, where: str, known: set[str]) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise settings.wrong(where, value, "a mapping")
    for key in value:
        if key not in known:
            words = ", ".join(sorted(known))
            raise InvalidInput(f"virt:{where}: unknown setting {units.shown(key)}; known: {words}")
    return value


def _words(value: object, where: str) -> tuple[str, ...]:
    """A tuple of texts, of a list or of one; a number is one as YAML reads it."""
    several = value if isinstance(value, (list, tuple)) else [] if value is None else [value]
    return tuple(_name(one, where) for one in several)


def _name(value: object, where: str) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        value = units.shown(value)
    if not isinstance(value, str) or not value or not value.isprintable():
        raise settings.wrong(where, value, "texts of one line")
    return value


def _boolean(about: Mapping[str, Any], word: str, where: str) -> bool:
    value = about.get(word, False)
    if not isinstance(value, bool):
        raise settings.wrong(f"{where}:{word}", value, "True or False")
    return value


def _any_of(patterns: Iterable[str], text: str) -> bool:
    return any(fnmatch.fnmatchcase(text, pattern) for pattern in patterns)


def person(user: str) -> str:
    """The same for all spellings that a directory may take for one user, such as ``Anna`` and
    ``anna ``: who logs in by another one has no second quota."""
    return " ".join(unicodedata.normalize("NFKC", user).casefold().split())


def over(quota: Amount, used: Amount, asked: Amount) -> str | None:
    """What would be more than the quota, in words, or None. used, asked: without any None."""
    for what, word, shown in (
        ("guests", "guests", str), ("vcpus", "vCPUs", str),
        ("memory_kib", "memory", lambda kib: units.human_bytes(kib * 1024)),
        ("disk_bytes", "disk", units.human_bytes),
    ):  # fmt: skip
        most, has, more = (getattr(one, what) for one in (quota, used, asked))
        if most is not None and has + more > most:
            return f"{word}: {shown(has)} of {shown(most)} are used, {shown(more)} more wanted"
    return None
