"""Definitions of guests, with which the agent starts guests that libvirt does not have. They come
from the masters and are stored on disk, because a master sends each of them once."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote
from xml.etree import ElementTree

from saltvirt import errors, units
from saltvirt.ha.model import messages
from saltvirt.system import atomic_file

log = logging.getLogger(__name__)

_SUFFIX = ".xml"
_LONGEST = 200


@dataclass(frozen=True)
class GuestDefinition:
    """libvirt's definition of a guest. vcpus, memory_kib: as placement counts them."""

    name: str
    digest: str
    xml: str
    vcpus: int
    memory_kib: int

    def body(self) -> dict[str, Any]:
        """Return the body of a frame."""
        size = {"vcpus": self.vcpus, "memory_kib": self.memory_kib}
        return {"name": self.name, "digest": self.digest, "xml": self.xml, "size": size}


def parse(name: str, xml: str) -> GuestDefinition:
    """Parse the definition in an XML text. Raises InvalidInput."""
    try:
        tree = ElementTree.fromstring(xml)
        memory = tree.find("memory")
        amount = int(memory.text or 0) if memory is not None else 0
        unit = memory.get("unit", "KiB") if memory is not None else "KiB"
        kib = units.parse_bytes(f"{amount} {unit}") // 1024
        vcpus = int(tree.findtext("vcpu") or 1)
    except (ElementTree.ParseError, ValueError, errors.InvalidInput) as exc:
        raise errors.InvalidInput(f"the definition of {name} cannot be read: {exc}") from exc
    if tree.findtext("name") != name:
        raise errors.InvalidInput(f"the definition of {name} is that of {tree.findtext('name')}")
    return GuestDefinition(name, hashlib.sha256(xml.encode()).hexdigest(), xml, vcpus, kib)


def file_name(name: str) -> str:
    """Return the file name for a guest."""
    return quote(name, "", errors="surrogatepass")[:_LONGEST] + _SUFFIX


class DefinitionCache:
    """The definitions on disk. folder: contains nothing else. names: the managed guests; files of
    other guests are removed."""

    def __init__(self, folder: str, names: Collection[str]) -> None:
        self._folder = folder
        self._definitions: dict[str, GuestDefinition] = {}
        self._digest: tuple[Collection[str], dict[str, GuestDefinition], str] = (
            (),
            self._definitions,
            "",
        )
        os.makedirs(folder, 0o700, exist_ok=True)
        paths = {self._path(name): name for name in names}
        for file in os.listdir(folder):
            path = os.path.join(folder, file)
            if path in paths:
                self._read(path, paths[path])
            else:
                with contextlib.suppress(OSError):
                    os.unlink(path)

    @property
    def names(self) -> Collection[str]:
        """The guests whose definition is known."""
        return self._definitions.keys()

    def get(self, name: str) -> GuestDefinition | None:
        """Return the last definition that was received, or None."""
        return self._definitions.get(name)

    def digest(self, names: Collection[str]) -> str:
        """Return the digest of the stored definitions of these guests, as masters compute it."""
        if self._digest[0] is not names or self._digest[1] is not self._definitions:
            digests = {
                name: definition.digest
                for name, definition in self._definitions.items()
                if name in names
            }
            self._digest = names, self._definitions, messages.digest(digests)
        return self._digest[2]

    def put(self, definition: GuestDefinition) -> None:
        """Store a definition. Raises OSError; the definition is in the cache nevertheless."""
        path = self._path(definition.name)
        if self._definitions.get(definition.name) == definition and os.path.exists(path):
            return
        self._definitions = {**self._definitions, definition.name: definition}
        atomic_file.write(path, definition.xml.encode(), durable=False)

    def _read(self, path: str, name: str) -> None:
        try:
            with open(path, encoding="utf-8") as file:
                self._definitions[name] = parse(name, file.read())
        except (OSError, ValueError, errors.InvalidInput) as exc:
            log.warning("%s: %s", path, exc)

    def _path(self, name: str) -> str:
        return os.path.join(self._folder, file_name(name))
