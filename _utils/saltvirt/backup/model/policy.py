"""What the operator configured of backups: ``virt:backup`` of the master."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from saltvirt import settings, units
from saltvirt.backup.model.chains import CHAIN
from saltvirt.backup.model.retention import Retention
from saltvirt.errors import InvalidInput, NotFound
from saltvirt.settings import Get

MAX_CHAIN = 100
MAX_KEPT = 10_000
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
        requested = self.default if name is None else name
        if requested is None:
            raise InvalidInput(f"say to which target: {', '.join(sorted(self.targets))}")
        if not isinstance(requested, str) or requested not in self.targets:
            available = ", ".join(sorted(self.targets))
            raise NotFound(
                f"there is no target {units.short_repr(requested)} for backups; known: {available}"
            )
        return self.targets[requested]


def read(get: Get) -> BackupPolicy:
    """What is configured. Raises InvalidInput, which names the setting."""
    common = {
        "retention": _retention("backup:retention", settings.mapping(get, "backup:retention")),
        "chain": settings.integer(get, "backup:chain", CHAIN, MAX_CHAIN),
        "at_once": settings.integer(get, "backup:at_once_per_target", 4),
        "bandwidth": settings.integer(get, "backup:bandwidth", None),
    }
    configured = settings.mapping(get, "backup:targets")
    targets = {name: _target(name, config, common) for name, config in configured.items()}
    _refuse_one_folder(targets.values())
    default = settings.text(get, "backup:target")
    if default is not None and default not in targets:
        expected = f"one of {', '.join(targets)}" if targets else "one of virt:backup:targets"
        raise settings.invalid("backup:target", default, expected)
    if default is None and len(targets) == 1:
        [default] = targets
    return BackupPolicy(targets, default, settings.integer(get, "backup:at_once_per_host", 1))


def _refuse_one_folder(targets: Iterable[TargetPolicy]) -> None:
    """Raises InvalidInput for two that keep different backups of the same ones."""
    folders: dict[tuple[str | None, str], TargetPolicy] = {}
    for target in targets:
        existing = folders.setdefault((target.host, posixpath.normpath(target.folder)), target)
        if existing.retention != target.retention:
            location = f"{existing.folder} of {target.host or 'each hypervisor'}"
            raise InvalidInput(
                f"virt:backup:targets: {target.name} and {existing.name} are one folder, "
                f"{location}, and "
                "have different rules of what is kept: what those of one keep those of the other "
                "would remove"
            )


def _target(name: object, config: object, common: Mapping[str, Any]) -> TargetPolicy:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidInput(
            f"virt:backup:targets: {units.short_repr(name)} cannot be a target's name: use "
            f"letters, "
            "digits, '-', '_' and '.'"
        )
    prefix = f"backup:targets:{name}"
    if not isinstance(config, Mapping):
        raise settings.invalid(prefix, config, "a mapping")
    _refuse_unknown(prefix, config, _TARGET_KEYS)
    values = {f"virt:{prefix}:{key}": value for key, value in config.items()}
    get = lambda key, default=None: values.get(key, default)  # noqa: E731
    if not config.get("folder"):
        raise InvalidInput(f"virt:{prefix}:folder is missing")
    folder = settings.folder(get, f"{prefix}:folder", "")
    return TargetPolicy(
        name=name,
        host=settings.text(get, f"{prefix}:host"),
        folder=folder,
        mounted=settings.boolean(get, f"{prefix}:mounted", False),
        retention=_retention(f"{prefix}:retention", config["retention"])
        if "retention" in config
        else common["retention"],
        chain=settings.integer(get, f"{prefix}:chain", common["chain"], MAX_CHAIN),
        at_once=settings.integer(get, f"{prefix}:at_once", common["at_once"]),
        bandwidth_mib_s=settings.integer(get, f"{prefix}:bandwidth", common["bandwidth"]),
        key=_key(get, prefix),
        compress=compression(
            config.get("compress"), config.get("key") is not None, f"virt:{prefix}:compress"
        ),
    )


def _key(get: Get, prefix: str) -> str | None:
    name = settings.text(get, f"{prefix}:key")
    if name is None:
        return None
    if not _KEY.fullmatch(name):
        raise settings.invalid(f"{prefix}:key", name, "letters, digits, '-' and '_'")
    if settings.text(get, f"{prefix}:host") is None:
        raise InvalidInput(
            f"virt:{prefix}:key needs host: without one each hypervisor would have to keep the key"
        )
    return name


def compression(algorithm: object, is_encrypted: bool, label: str = "compress") -> str | None:
    """How the disks of backups are to be compressed; None: not. is_encrypted: they are encrypted.
    where:
    what was told so. Raises InvalidInput."""
    if algorithm is None:
        return None
    if not isinstance(algorithm, str) or algorithm not in COMPRESSIONS:
        raise InvalidInput(
            f"{label}: {units.short_repr(algorithm)} is not one of {', '.join(COMPRESSIONS)}"
        )
    if is_encrypted:
        raise InvalidInput(f"{label}: QEMU compresses no disk that it encrypts: leave key out")
    return algorithm


def retention(config: object) -> Retention:
    """What was given as an argument. Raises InvalidInput."""
    return _retention("backup:retention", config)


def _retention(prefix: str, config: object) -> Retention:
    if not isinstance(config, Mapping):
        raise settings.invalid(prefix, config, "a mapping")
    rules = [rule.name for rule in fields(Retention)]
    _refuse_unknown(prefix, config, rules)
    counts = {}
    for key, value in config.items():
        fits = isinstance(value, int) and not isinstance(value, bool)
        if not fits or not 0 <= value <= MAX_KEPT:
            raise settings.invalid(f"{prefix}:{key}", value, f"a whole number from 0 to {MAX_KEPT}")
        counts[key] = value
    return Retention(**counts)


def _refuse_unknown(prefix: str, config: Mapping[Any, Any], keys: Any) -> None:
    for key in config:
        if key not in keys:
            raise InvalidInput(
                f"virt:{prefix}: unknown setting {units.short_repr(key)}; known: {', '.join(keys)}"
            )
