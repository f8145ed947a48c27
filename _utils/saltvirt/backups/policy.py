"""What the operator configured of backups: ``virt:backup`` of the master."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from saltvirt import settings, units
from saltvirt.backups.chains import CHAIN
from saltvirt.backups.retention import Retention
from saltvirt.errors import InvalidInput, NotFound
from saltvirt.settings import Get

MOST_CHAIN = 100
MOST_KEPT = 10_000
_NAME = re.compile("[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
_KEY = re.compile("[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
_TARGET_KEYS = ("host", "folder", "mounted", "retention", "chain", "at_once", "bandwidth", "key",
                "compress")  # fmt: skip
# of a qcow2, as QEMU calls them
COMPRESSIONS = ("zstd", "zlib")


@dataclass(frozen=True)
class TargetPolicy:
    """A place for backups.

    host: the minion that has the folder; None: each guest's own hypervisor, as where all of them
    mount the same file system. mounted: the folder has to be a mount point, so that
    nothing is written below it while its file system is missing. chain: so many backups at most
    stand on each other. at_once: so many backups at most are written there at a time.
    bandwidth_mib_s: of one backup; None: as fast as it goes. key: the name of that with which its
    machine encrypts the disks; None: it does not. compress: how it compresses them, one of
    COMPRESSIONS; None: it does not.
    """

    name: str
    host: str | None
    folder: str
    mounted: bool = False
    retention: Retention = field(default_factory=Retention)
    chain: int = CHAIN
    at_once: int = 4
    bandwidth_mib_s: int | None = None
    key: str | None = None
    compress: str | None = None

    def machine(self, host: str) -> str:
        """The minion that writes the backups of a hypervisor's guests there."""
        return self.host or host


@dataclass(frozen=True)
class BackupPolicy:
    """targets: by name. default: the one that is meant where none is named; None: one has to be.
    at_once_per_host: so many guests of a hypervisor at most are backed up at a time."""

    targets: Mapping[str, TargetPolicy] = field(default_factory=dict)
    default: str | None = None
    at_once_per_host: int = 1

    def target(self, name: object = None) -> TargetPolicy:
        """The target of that name, or the one that is meant without.

        Raises NotFound, InvalidInput.
        """
        if not self.targets:
            raise InvalidInput("no target for backups is configured: set virt:backup:targets")
        wanted = self.default if name is None else name
        if wanted is None:
            raise InvalidInput(f"say to which target: {', '.join(sorted(self.targets))}")
        if not isinstance(wanted, str) or wanted not in self.targets:
            known = ", ".join(sorted(self.targets))
            raise NotFound(f"there is no target {units.shown(wanted)} for backups; known: {known}")
        return self.targets[wanted]


def read(get: Get) -> BackupPolicy:
    """What is configured. Raises InvalidInput, which names the setting."""
    common = {
        "retention": _retention("backup:retention", settings.mapping(get, "backup:retention")),
        "chain": settings.integer(get, "backup:chain", CHAIN, MOST_CHAIN),
        "at_once": settings.integer(get, "backup:at_once_per_target", 4),
        "bandwidth": settings.integer(get, "backup:bandwidth", None),
    }
    told = settings.mapping(get, "backup:targets")
    targets = {name: _target(name, one, common) for name, one in told.items()}
    _refuse_one_folder(targets.values())
    default = settings.text(get, "backup:target")
    if default is not None and default not in targets:
        known = f"one of {', '.join(targets)}" if targets else "one of virt:backup:targets"
        raise settings.wrong("backup:target", default, known)
    if default is None and len(targets) == 1:
        [default] = targets
    return BackupPolicy(targets, default, settings.integer(get, "backup:at_once_per_host", 1))


def _refuse_one_folder(targets: Iterable[TargetPolicy]) -> None:
    """Raises InvalidInput for two that keep different backups of the same ones."""
    known: dict[tuple[str | None, str], TargetPolicy] = {}
    for one in targets:
        other = known.setdefault((one.host, posixpath.normpath(one.folder)), one)
        if other.retention != one.retention:
            where = f"{other.folder} of {one.host or 'each hypervisor'}"
            raise InvalidInput(
                f"virt:backup:targets: {one.name} and {other.name} are one folder, {where}, and "
                "have different rules of what is kept: what those of one keep those of the other "
                "would remove"
            )


def _target(name: object, told: object, common: Mapping[str, Any]) -> TargetPolicy:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidInput(
            f"virt:backup:targets: {units.shown(name)} cannot be a target's name: use letters, "
            "digits, '-', '_' and '.'"
        )
    where = f"backup:targets:{name}"
    if not isinstance(told, Mapping):
        raise settings.wrong(where, told, "a mapping")
    _known(where, told, _TARGET_KEYS)
    given = {f"virt:{where}:{key}": value for key, value in told.items()}
    get = lambda key, default=None: given.get(key, default)  # noqa: E731
    if not told.get("folder"):
        raise InvalidInput(f"virt:{where}:folder is missing")
    folder = settings.folder(get, f"{where}:folder", "")
    return TargetPolicy(
        name=name,
        host=settings.text(get, f"{where}:host"),
        folder=folder,
        mounted=settings.boolean(get, f"{where}:mounted", False),
        retention=_retention(f"{where}:retention", told["retention"])
        if "retention" in told
        else common["retention"],
        chain=settings.integer(get, f"{where}:chain", common["chain"], MOST_CHAIN),
        at_once=settings.integer(get, f"{where}:at_once", common["at_once"]),
        bandwidth_mib_s=settings.integer(get, f"{where}:bandwidth", common["bandwidth"]),
        key=_key(get, where),
        compress=compression(
            told.get("compress"), told.get("key") is not None, f"virt:{where}:compress"
        ),
    )


def _key(get: Get, where: str) -> str | None:
    name = settings.text(get, f"{where}:key")
    if name is None:
        return None
    if not _KEY.fullmatch(name):
        raise settings.wrong(f"{where}:key", name, "letters, digits, '-' and '_'")
    if settings.text(get, f"{where}:host") is None:
        raise InvalidInput(
            f"virt:{where}:key needs host: without one each hypervisor would have to keep the key"
        )
    return name


def compression(told: object, sealed: bool, where: str = "compress") -> str | None:
    """How the disks of backups are to be compressed; None: not. sealed: they are encrypted. where:
    what was told so. Raises InvalidInput."""
    if told is None:
        return None
    if not isinstance(told, str) or told not in COMPRESSIONS:
        raise InvalidInput(f"{where}: {units.shown(told)} is not one of {', '.join(COMPRESSIONS)}")
    if sealed:
        raise InvalidInput(f"{where}: QEMU compresses no disk that it encrypts: leave key out")
    return told


def retention(told: object) -> Retention:
    """What was given as an argument. Raises InvalidInput."""
    return _retention("backup:retention", told)


def _retention(where: str, told: object) -> Retention:
    if not isinstance(told, Mapping):
        raise settings.wrong(where, told, "a mapping")
    rules = [one.name for one in fields(Retention)]
    _known(where, told, rules)
    found = {}
    for key, value in told.items():
        fits = isinstance(value, int) and not isinstance(value, bool)
        if not fits or not 0 <= value <= MOST_KEPT:
            raise settings.wrong(f"{where}:{key}", value, f"a whole number from 0 to {MOST_KEPT}")
        found[key] = value
    return Retention(**found)


def _known(where: str, told: Mapping[Any, Any], keys: Any) -> None:
    for key in told:
        if key not in keys:
            raise InvalidInput(
                f"virt:{where}: unknown setting {units.shown(key)}; known: {', '.join(keys)}"
            )
