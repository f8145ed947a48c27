"""The user's arguments for folders of the host that a guest can mount."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from saltvirt.errors import InvalidInput
from saltvirt.spec import values
from saltvirt.spec.base import Spec, key
from saltvirt.xml.devices.filesystem import Filesystem

VIRTIOFS, PLAN9 = "virtiofs", "9p"
# the length of a tag of virtiofs, and of 9p, in bytes
_TAG_LENGTH, _PLAN9_TAG_LENGTH = 36, 31


def _tag(value: Any, argument: str) -> str:
    tag = values.label(value, argument)
    if len(tag.encode()) > _TAG_LENGTH:
        raise InvalidInput(f"{argument} {value!r}: at most {_TAG_LENGTH} bytes in UTF-8")
    return tag


@dataclass
class FilesystemSpec(Spec):
    """One item of ``filesystems``."""

    NONE_LEAVES = frozenset(("source", "target", "driver"))

    source: str = key(values.path, required=True)
    target: str = key(_tag, required=True)
    driver: str | None = key(values.choice(VIRTIOFS, PLAN9))
    accessmode: str | None = key(
        values.choice("passthrough", "mapped", "squash"), xml=Filesystem.access_mode
    )
    cache: str | None = key(values.choice("none", "always"), xml=Filesystem.cache_mode)
    read_only: bool | None = key(values.boolean, xml=Filesystem.read_only)

    def check(self, argument: str) -> None:
        if self.driver == PLAN9 and len(self.target.encode()) > _PLAN9_TAG_LENGTH:
            raise InvalidInput(
                f"{argument}:target {self.target!r}: at most {_PLAN9_TAG_LENGTH} bytes with "
                "driver 9p"
            )


def parse(value: Any, argument: str) -> list[FilesystemSpec]:
    """A list of FilesystemSpec, each with another target."""
    result = values.list_of(FilesystemSpec.parse)(value, argument)
    tags = [item.target for item in result]
    for tag in tags:
        if tags.count(tag) > 1:
            raise InvalidInput(f"{argument}: the target {tag!r} is requested twice")
    return result
