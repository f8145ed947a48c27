"""The user's arguments for a volume."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from saltvirt.errors import InvalidInput
from saltvirt.spec import values
from saltvirt.spec.base import Spec, key, nested
from saltvirt.spec.storage import PermissionsSpec
from saltvirt.xml.storage.volume import Volume

TYPES = ("file", "block", "dir", "network", "netdir", "ploop")


def _allocation(value: Any, argument: str) -> int:
    """A size that may be zero."""
    return 0 if str(value) in ("0", "0.0") else values.size_bytes(value, argument)


def _name(value: Any, argument: str) -> str:
    """A volume's name: a file name, on ESX with a folder."""
    text = values.label(value, argument)
    if text.startswith("/") or ".." in text.split("/"):
        raise InvalidInput(f"{argument} {value!r} is not a volume's name")
    return text


@dataclass
class BackingSpec(Spec):
    """The backing image of a volume."""

    path: str = key(values.text, xml=Volume.backing_path)
    format: str = key(values.word, xml=Volume.backing_format)

    def check(self, argument: str) -> None:
        if not (self.path and self.format):
            raise InvalidInput(
                f"{argument}: path and format are needed: a guessed format is unsafe"
            )


@dataclass
class VolumeSpec(Spec):
    """The arguments of volume_define; sizes without a unit are MiB."""

    NONE_REMOVES = False

    type: str | None = key(values.choice(*TYPES), xml=Volume.type)
    name: str = key(_name, xml=Volume.name, required=True)
    size_bytes: int = key(values.size_bytes, name="size", xml=Volume.capacity_bytes)
    allocation_bytes: int | None = key(_allocation, name="allocation", xml=Volume.allocation_bytes)
    format: str | None = key(values.word, xml=Volume.format)
    permissions: PermissionsSpec | None = key(nested(PermissionsSpec))
    backing_store: BackingSpec | None = key(nested(BackingSpec), xml=BackingSpec)
    nocow: bool | None = key(values.boolean, xml=Volume.nocow)

    def check(self, argument: str) -> None:
        if not self.size_bytes:
            raise InvalidInput(f"{argument}: size is missing")
        if (self.allocation_bytes or 0) > self.size_bytes:
            raise InvalidInput(f"{argument}: allocation is more than size")


def parse(name: object, size: object, **arguments: Any) -> VolumeSpec:
    """A VolumeSpec from the arguments of virt.volume_define. Raises InvalidInput."""
    return VolumeSpec.parse({"name": name, "size": size, **arguments}, f"volume {name}")
