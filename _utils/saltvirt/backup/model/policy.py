"""Configuration of backups: ``virt:backup`` of the master."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from saltvirt import settings, units
from saltvirt.backup.model.chains import CHAIN
from saltvirt.backup.model.retention import Retention
from saltvirt.errors import InvalidInput, NotConfigured, NotFound
from saltvirt.settings import Get

MAX_CHAIN = 100
MAX_KEPT = 10_000
_NAME = re.compile("[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
_KEY = re.compile("[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
_TARGET_KEYS = ("host", "folder", "mounted", "retention", "chain", "at_once", "bandwidth", "key",
                "compress")  # fmt: skip
# compression types of qcow2, as QEMU names them
COMPRESSIONS = ("zstd", "zlib")


@dataclass(frozen=True)
class TargetPolicy:
    """A target for backups.

    host: the minion that has the folder; None: each hypervisor uses the folder itself, on a file
    system that all of them mount. mounted: require a mount point, so that nothing is written below
    it while the file system is missing. chain: maximum length of a chain. at_once: maximum number
    of concurrent backups to this target. bandwidth_mib_s: limit for one backup; None: no limit.
    key: name of the encryption key on the target host; None: do not encrypt. compress: one of
    COMPRESSIONS; None: do not compress.
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
        """Return the minion that writes the backups of this hypervisor's guests."""
        return self.host or host


@dataclass(frozen=True)
class BackupPolicy:
    """targets: by name. default: the target to use if none is named; None: the caller has to name
    one. at_once_per_host: maximum number of concurrent backups of guests on one hypervisor."""

    targets: Mapping[str, TargetPolicy] = field(default_factory=dict)
    default: str | None = None
    at_once_per_host: int = 1

    def target(self, name: object = None) -> TargetPolicy:
        """Return the target with this name, or the default target. Raises NotFound,
        InvalidInput."""
        if not self.targets:
            raise NotConfigured("no backup target is configured: set virt:backup:targets")
        requested = self.default if name is None else name
        if requested is None:
            raise InvalidInput(
                "several targets are configured, choose one with to=: "
                f"{', '.join(sorted(self.targets))}"
            )
        if not isinstance(requested, str) or requested not in self.targets:
            available = ", ".join(sorted(self.targets))
            raise NotFound(
                f"unknown backup target {units.short_repr(requested)}; known: {available}"
            )
        return self.targets[requested]


def read(get: Get) -> BackupPolicy:
    """Read the configuration. Raises InvalidInput with the name of the setting."""
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
    """Raise InvalidInput if two targets have one folder and different retention rules."""
    folders: dict[tuple[str | None, str], TargetPolicy] = {}
    for target in targets:
        existing = folders.setdefault((target.host, posixpath.normpath(target.folder)), target)
        if existing.retention != target.retention:
            location = f"{existing.folder} of {target.host or 'each hypervisor'}"
            raise InvalidInput(
                f"virt:backup:targets: {target.name} and {existing.name} use the same folder, "
                f"{location}, with different retention rules: use the same rules, or two folders"
            )


def _target(name: object, config: object, common: Mapping[str, Any]) -> TargetPolicy:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidInput(
            f"virt:backup:targets: {units.short_repr(name)} cannot be a target's name: use "
            "letters, digits, '-', '_' and '.'"
        )
    prefix = f"backup:targets:{name}"
    if not isinstance(config, Mapping):
        raise settings.invalid(prefix, config, "a mapping")
    _refuse_unknown(prefix, config, _TARGET_KEYS)
    values = {f"virt:{prefix}:{key}": value for key, value in config.items()}
    get = lambda key, default=None: values.get(key, default)  # noqa: E731
    if not config.get("folder"):
        raise InvalidInput(f"virt:{prefix}:folder is not set")
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
            f"virt:{prefix}:key requires host: without it, every hypervisor would need the key"
        )
    return name


def compression(algorithm: object, is_encrypted: bool, label: str = "compress") -> str | None:
    """Check the compression type; None: do not compress. is_encrypted: the disks are encrypted.
    label: the setting, for messages. Raises InvalidInput."""
    if algorithm is None:
        return None
    if not isinstance(algorithm, str) or algorithm not in COMPRESSIONS:
        raise InvalidInput(
            f"{label}: {units.short_repr(algorithm)} is not one of {', '.join(COMPRESSIONS)}"
        )
    if is_encrypted:
        raise InvalidInput(
            f"{label}: cannot be combined with key, because QEMU does not compress encrypted disks"
        )
    return algorithm


def retention(config: object) -> Retention:
    """Parse the retention rules of an argument. Raises InvalidInput."""
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
