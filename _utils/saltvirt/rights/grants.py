"""The grants, groups and quotas of ``virt:rights`` in the master's configuration."""

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
# image names that leave the master's file_roots, or contain more than a path
_STEPS = re.compile(r"(^|/)\.\.(/|$)|[?|#%\\\s\x00-\x1f\x7f]")


@dataclass(frozen=True)
class GuestIdentity:
    """The properties of a guest that grants refer to, from the master's own record.

    owner: the limited user who deployed the guest, or None. labels: as set by virt.label.
    """

    name: str
    owner: str | None = None
    labels: tuple[str, ...] = ()


@dataclass(frozen=True)
class ResourceAmount:
    """The resources that a user owns, or may own; None: no limit."""

    guests: int | None = None
    vcpus: int | None = None
    memory_kib: int | None = None
    disk_bytes: int | None = None

    @property
    def unlimited(self) -> bool:
        return self == ResourceAmount()


@dataclass(frozen=True)
class Grant:
    """One grant.

    subjects: names of users, ``%`` and a group, or ``*``. guests: patterns of names. labels:
    patterns, of which one matches a label of the guest. owned: also the guests that the user owns.
    images, profiles: patterns of what a guest may be created from. everything: the verbs apply
    without limits.
    """

    subjects: frozenset[str]
    verbs: frozenset[str]
    guests: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    owned: bool = False
    images: tuple[str, ...] = ()
    profiles: tuple[str, ...] = ("default",)
    everything: bool = False

    def covers(self, user: str, guest: GuestIdentity) -> bool:
        """Return whether the grant applies to the guest."""
        named = self.everything or _matches_any(self.guests, guest.name)
        labelled = any(_matches_any(self.labels, label) for label in guest.labels)
        return named or labelled or (self.owned and guest.owner == user)


@dataclass(frozen=True)
class UserRights:
    """The rights of one user."""

    user: str
    grants: tuple[Grant, ...]
    quota: ResourceAmount = ResourceAmount()

    def may(self, verb: str, guest: GuestIdentity) -> bool:
        """Return whether the user may apply the verb to the guest."""
        return any(verb in grant.verbs and grant.covers(self.user, guest) for grant in self.grants)

    def sees(self, guest: GuestIdentity) -> bool:
        """Return whether the user may apply any verb to the guest."""
        return any(
            grant.verbs & verbs.SEEING and grant.covers(self.user, guest) for grant in self.grants
        )

    def may_at_all(self, verb: str) -> bool:
        """Return whether the user may apply the verb to any guest."""
        return any(verb in grant.verbs for grant in self.grants)

    def everywhere(self, verb: str) -> bool:
        """Return whether the user may apply the verb without limits."""
        return any(grant.everything and verb in grant.verbs for grant in self.grants)

    def may_name(self, verb: str, name: str) -> bool:
        """Return whether the user may give a guest this name with the verb."""
        return any(
            verb in grant.verbs and _matches_any(grant.guests, name) for grant in self.grants
        )

    def may_use(self, verb: str, guest: GuestIdentity, image: str) -> bool:
        """Return whether the user may use the image with the verb, for a guest that exists."""
        return not _STEPS.search(image) and any(
            verb in grant.verbs
            and grant.covers(self.user, guest)
            and _matches_any(grant.images, image)
            for grant in self.grants
        )

    def may_make(self, name: str, image: str, profiles: Collection[str]) -> bool:
        """Return whether the user may create a guest of this name from the image and profiles."""
        return not _STEPS.search(image) and any(
            "init" in grant.verbs
            and _matches_any(grant.guests, name)
            and _matches_any(grant.images, image)
            and all(_matches_any(grant.profiles, profile) for profile in profiles)
            for grant in self.grants
        )


@dataclass(frozen=True)
class Rights:
    """All of ``virt:rights``. groups: name to its users. quotas: person, or ``*``, to an Amount.
    eauth: Salt's authentication that is asked for more groups."""

    grants: tuple[Grant, ...]
    groups: dict[str, frozenset[str]]
    quotas: dict[str, ResourceAmount]
    eauth: str | None = None

    def for_user(self, user: str, extra_groups: Iterable[str] = ()) -> UserRights:
        """Return the rights of a user. extra_groups: groups from Salt's authentication."""
        named = {name for name, users in self.groups.items() if user in users} | set(extra_groups)
        ids = {user, EVERYBODY, *(GROUP + name for name in named)}
        quota = self.quotas.get(normalize_user(user), self.quotas.get(EVERYBODY, ResourceAmount()))
        return UserRights(
            user, tuple(grant for grant in self.grants if grant.subjects & ids), quota
        )


def configured(opts: Mapping[str, Any]) -> bool:
    """Return whether the master limits users: its configuration has the key, even if empty."""
    virt = opts.get("virt")
    return (isinstance(virt, Mapping) and "rights" in virt) or any(
        isinstance(key, str) and key.split(".")[:2] == ["virt", "rights"] for key in opts
    )


def read(opts: Mapping[str, Any]) -> Rights:
    """Read the Rights. Raises InvalidInput, which names the setting."""
    get = settings.of_master(opts)
    grants = settings.option(get, "rights:grants", [])
    if not isinstance(grants, (list, tuple)):
        raise settings.invalid("rights:grants", grants, "a list")
    return Rights(
        tuple(_grant(grant, f"rights:grants:{number}") for number, grant in enumerate(grants)),
        {
            _name(name, "rights:groups"): frozenset(_text_list(users, f"rights:groups:{name}"))
            for name, users in settings.mapping(get, "rights:groups").items()
        },
        {
            normalize_user(_name(name, "rights:quotas")): _amount(about, f"rights:quotas:{name}")
            for name, about in settings.mapping(get, "rights:quotas").items()
        },
        settings.text(get, "rights:eauth"),
    )


def _grant(value: object, setting: str) -> Grant:
    about = _section(value, setting, _KEYS)
    verb_names = _text_list(about.get("verbs"), f"{setting}:verbs")
    everything = _boolean(about, "everything", setting)
    verb_set: set[str] = set()
    for word in verb_names:
        if word == "*" and everything:
            verb_set |= verbs.RULES.keys()
        elif word in verbs.SETS:
            verb_set |= verbs.SETS[word]
        elif word in verbs.RULES:
            verb_set.add(word)
        else:
            choices = ", ".join([*verbs.SETS, *sorted(verbs.RULES)])
            raise InvalidInput(
                f"virt:{setting}:verbs: {units.short_repr(word)} is none of {choices}"
            )
    cloud = sorted(verb for verb in verb_set if verbs.RULES[verb].scope == verbs.CLOUD)
    if cloud and not everything:
        raise InvalidInput(
            f"virt:{setting}:verbs: {cloud[0]} acts on the whole cloud: grant it with everything: "
            "True, to operators only"
        )
    if not about.get("who"):
        raise settings.invalid(f"{setting}:who", about.get("who"), "a list of users")
    return Grant(
        frozenset(_text_list(about["who"], f"{setting}:who")),
        frozenset(verb_set),
        _text_list(about.get("guests"), f"{setting}:guests"),
        _text_list(about.get("labels"), f"{setting}:labels"),
        _boolean(about, "owned", setting),
        _text_list(about.get("images"), f"{setting}:images"),
        _text_list(about.get("profiles", ["default"]), f"{setting}:profiles"),
        everything,
    )


def _amount(value: object, setting: str) -> ResourceAmount:
    about = _section(value, setting, {"guests", "vcpus", "memory", "disk"})
    count = {word: _count(about[word], f"{setting}:{word}") for word in ("guests", "vcpus")
             if about.get(word) is not None}  # fmt: skip
    size = {word: units.parse_bytes(about[word], argument=f"virt:{setting}:{word}")
            for word in ("memory", "disk") if about.get(word) is not None}  # fmt: skip
    memory = size.get("memory")
    return ResourceAmount(
        count.get("guests"), count.get("vcpus"),
        None if memory is None else memory // 1024, size.get("disk"),
    )  # fmt: skip


def _count(value: object, setting: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise settings.invalid(setting, value, "a whole number from 0")
    return value


def _section(value: object, setting: str, allowed_keys: set[str]) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise settings.invalid(setting, value, "a mapping")
    for key in value:
        if key not in allowed_keys:
            choices = ", ".join(sorted(allowed_keys))
            raise InvalidInput(
                f"virt:{setting}: unknown setting {units.short_repr(key)}; known: {choices}"
            )
    return value


def _text_list(value: object, setting: str) -> tuple[str, ...]:
    """Return a tuple of texts from a list or a single text; YAML may have read a number."""
    several = value if isinstance(value, (list, tuple)) else [] if value is None else [value]
    return tuple(_name(item, setting) for item in several)


def _name(value: object, setting: str) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        value = units.short_repr(value)
    if not isinstance(value, str) or not value or not value.isprintable():
        raise settings.invalid(setting, value, "texts of one line")
    return value


def _boolean(about: Mapping[str, Any], word: str, setting: str) -> bool:
    value = about.get(word, False)
    if not isinstance(value, bool):
        raise settings.invalid(f"{setting}:{word}", value, "True or False")
    return value


def _matches_any(patterns: Iterable[str], text: str) -> bool:
    return any(fnmatch.fnmatchcase(text, pattern) for pattern in patterns)


def normalize_user(user: str) -> str:
    """Return the same text for all spellings that a directory may accept for one user.

    A user who logs in as ``anna `` instead of ``Anna`` does not get a second quota.
    """
    return " ".join(unicodedata.normalize("NFKC", user).casefold().split())


def quota_excess(
    quota: ResourceAmount, used: ResourceAmount, request: ResourceAmount
) -> str | None:
    """Return which limit of the quota would be exceeded, or None.

    used, request: without None.
    """
    for field, word, shown in (
        ("guests", "guests", str), ("vcpus", "vCPUs", str),
        ("memory_kib", "memory", lambda kib: units.human_bytes(kib * 1024)),
        ("disk_bytes", "disk", units.human_bytes),
    ):  # fmt: skip
        limit, current, addition = (getattr(amount, field) for amount in (quota, used, request))
        if limit is not None and current + addition > limit:
            return (
                f"{word}: {shown(current)} of {shown(limit)} used, {shown(addition)} more requested"
            )
    return None
