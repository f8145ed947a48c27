"""The definitions of managed guests, stored on the master so that they survive a host."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from saltvirt import errors, names
from saltvirt.ha.manager import files
from saltvirt.ha.model import messages
from saltvirt.ha.model.messages import Heartbeat
from saltvirt.schema import Message
from saltvirt.system import file_lock

log = logging.getLogger(__name__)

MAX_BYTES = 1024**2
# definitions that are sent to a host with one heartbeat
MAX_PER_BEAT = 100


@dataclass(frozen=True)
class StoredDefinition(Message):
    """A guest's definition. digest: of the XML; host: the sender. size: the capacity that the guest
    needs, as its agent reported."""

    name: str
    digest: str
    xml: str
    host: str = ""
    size: Any = None

    def body(self) -> dict[str, Any]:
        """Return the body of a frame for agents."""
        return {"name": self.name, "digest": self.digest, "xml": self.xml, "size": self.size}


class DefinitionStore:
    """The definitions, one file per guest."""

    def __init__(self, opts: file_lock.Opts) -> None:
        self.folder = _folder(opts)
        self._definitions = {definition.name: definition for definition in self._read()}
        self._sent: dict[str, dict[str, str]] = {}
        self._boots: dict[str, int] = {}
        self._last_resent: dict[str, str] = {}
        self._digest: tuple[Collection[str], dict[str, StoredDefinition], str, dict[str, str]]
        self._digest = (), {}, "", {}

    def _read(self) -> list[StoredDefinition]:
        definitions = []
        for path in sorted(self.folder.glob("*.json")):
            try:
                definition = files.read(path, StoredDefinition)
            except errors.OperationFailed as exc:  # its host sends it again
                log.warning("%s", exc.text)
                continue
            if definition is not None and path.name == f"{definition.name}.json":
                definitions.append(definition)
        return definitions

    def _path(self, name: str) -> Path:
        return self.folder / f"{names.guest(name)}.json"

    @property
    def by_name(self) -> Mapping[str, StoredDefinition]:
        """The definitions by guest: the same dict until one of them changes."""
        return self._definitions

    def put(self, host: str, body: dict[str, Any]) -> bool:
        """Store the definition that a host sent about a guest that may run there. Return whether it
        is new.

        Raises BadAnswer if it is no definition of that guest, or of another guest with its name.
        """
        definition = StoredDefinition.from_answer({**body, "host": host}, host)
        root = _root(definition)
        current = self._definitions.get(definition.name)
        digest = hashlib.sha256(definition.xml.encode()).hexdigest()
        if current is not None and current.digest == digest:
            return False
        if current is not None and root.findtext("uuid") != _root(current).findtext("uuid"):
            raise errors.BadAnswer(
                f"{host}: the definition of {definition.name} is that of another guest: run "
                "virt.ha_disable and virt.ha_enable for it"
            )
        new = StoredDefinition(definition.name, digest, definition.xml, host, definition.size)
        files.write(self._path(definition.name), new)
        self._definitions = {**self._definitions, definition.name: new}
        return True

    def retain_only(self, guests: Collection[str]) -> None:
        """Remove the definitions of guests that are no longer managed."""
        for name in set(self._definitions) - set(guests):
            self._path(name).unlink(missing_ok=True)
            self._definitions = {
                key: definition for key, definition in self._definitions.items() if key != name
            }

    def unsent(self, beat: Heartbeat, guests: Collection[str]) -> list[StoredDefinition]:
        """Return the definitions to send to the host of that heartbeat now: each one at once, and
        again when it changes. After that none, if the host reports that it has all definitions of
        these guests, those of the registry. Otherwise one after the other again, because an agent
        may end before it has stored what it received."""
        if self._boots.get(beat.host) != beat.boot:
            self.forget_host(beat.host)
            self._boots[beat.host] = beat.boot
        digest, digests = self._digests_for(guests)
        if beat.definitions == digest:
            self._sent[beat.host] = digests
            return []
        sent = self._sent.get(beat.host, {})
        changed = [
            definition
            for definition in self._definitions.values()
            if sent.get(definition.name) != definition.digest
        ][:MAX_PER_BEAT]
        self._sent[beat.host] = {
            **sent,
            **{definition.name: definition.digest for definition in changed},
        }
        return changed or self._resend_next(beat.host)

    def _digests_for(self, guests: Collection[str]) -> tuple[str, dict[str, str]]:
        """Return the common digest, and the digests, of the definitions of those guests."""
        if self._digest[0] is not guests or self._digest[1] is not self._definitions:
            digests = {
                name: definition.digest
                for name, definition in self._definitions.items()
                if name in guests
            }
            self._digest = guests, self._definitions, messages.digest(digests), digests
        return self._digest[2:]

    def _resend_next(self, host: str) -> list[StoredDefinition]:
        """Return the next definition in turn."""
        last = self._last_resent.get(host, "")
        following = [name for name in sorted(self._definitions) if name > last]
        name = next(iter(following or sorted(self._definitions)), None)
        if name is None:
            return []
        self._last_resent[host] = name
        return [self._definitions[name]]

    def forget_host(self, host: str) -> None:
        """Forget what was sent to a host, because it may not have arrived."""
        self._sent.pop(host, None)


def uuid_of(opts: file_lock.Opts, name: str) -> str | None:
    """Return the UUID of the guest in the stored definition; None if there is none, or if it cannot
    be read."""
    try:
        definition = files.read(_folder(opts) / f"{names.guest(name)}.json", StoredDefinition)
        return _root(definition).findtext("uuid") if definition else None
    except (errors.OperationFailed, errors.BadAnswer):
        return None


def _folder(opts: file_lock.Opts) -> Path:
    return files.folder(opts) / "definitions"


def _root(definition: StoredDefinition) -> ElementTree.Element:
    """Parse the XML. Raises BadAnswer."""
    if len(definition.xml.encode(errors="replace")) > MAX_BYTES or "<!" in definition.xml:
        raise errors.BadAnswer(f"{definition.host}: the definition of {definition.name} is invalid")
    try:
        root = ElementTree.fromstring(definition.xml)
    except (ElementTree.ParseError, ValueError) as exc:
        raise errors.BadAnswer(
            f"{definition.host}: the definition of {definition.name}: {exc}"
        ) from exc
    if root.tag != "domain" or root.findtext("name") != definition.name:
        raise errors.BadAnswer(
            f"{definition.host}: the definition of {definition.name} is that of another guest"
        )
    return root
