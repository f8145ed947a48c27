"""The definitions of guests of high availability, kept where they outlive a host, by content."""

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
# to one host in one beat
MAX_PER_BEAT = 100


@dataclass(frozen=True)
class StoredDefinition(Message):
    """A guest's definition. digest: of the XML; host: who told it. size: what it takes of a host,
    as its agent told."""

    name: str
    digest: str
    xml: str
    host: str = ""
    size: Any = None

    def body(self) -> dict[str, Any]:
        """As agents are told."""
        return {"name": self.name, "digest": self.digest, "xml": self.xml, "size": self.size}


class DefinitionStore:
    """A file a guest."""

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
            except errors.OperationFailed as exc:  # its host tells it again
                log.warning("%s", exc.text)
                continue
            if definition is not None and path.name == f"{definition.name}.json":
                definitions.append(definition)
        return definitions

    def _path(self, name: str) -> Path:
        return self.folder / f"{names.guest(name)}.json"

    @property
    def by_name(self) -> Mapping[str, StoredDefinition]:
        """By the guests' names: the same dict until any of them changes."""
        return self._definitions

    def put(self, host: str, body: dict[str, Any]) -> bool:
        """Keeps what a host told of a guest that may run there. Returns whether it is new.

        Raises BadAnswer for what is no definition of that guest, or one of another guest of its
        name.
        """
        definition = StoredDefinition.from_answer({**body, "host": host}, host)
        root = _root(definition)
        current = self._definitions.get(definition.name)
        digest = hashlib.sha256(definition.xml.encode()).hexdigest()
        if current is not None and current.digest == digest:
            return False
        if current is not None and root.findtext("uuid") != _root(current).findtext("uuid"):
            raise errors.BadAnswer(
                f"{host}: the definition of {definition.name} is of another guest: give it to high "
                "availability anew"
            )
        new = StoredDefinition(definition.name, digest, definition.xml, host, definition.size)
        files.write(self._path(definition.name), new)
        self._definitions = {**self._definitions, definition.name: new}
        return True

    def retain_only(self, guests: Collection[str]) -> None:
        """The others are no longer of high availability."""
        for name in set(self._definitions) - set(guests):
            self._path(name).unlink(missing_ok=True)
            self._definitions = {
                key: definition for key, definition in self._definitions.items() if key != name
            }

    def unsent(self, beat: Heartbeat, guests: Collection[str]) -> list[StoredDefinition]:
        """Those that the host of that beat is to be told now: each at once, and whenever it
        changed. Then none, if it says that it keeps all that is known of these guests, those of the
        registry; else one after the other again: an agent may end before it has written down what
        it was told.
        """
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
        """(The digest, what it is of) of the definitions of those guests."""
        if self._digest[0] is not guests or self._digest[1] is not self._definitions:
            digests = {
                name: definition.digest
                for name, definition in self._definitions.items()
                if name in guests
            }
            self._digest = guests, self._definitions, messages.digest(digests), digests
        return self._digest[2:]

    def _resend_next(self, host: str) -> list[StoredDefinition]:
        """One, and in turn all of them."""
        last = self._last_resent.get(host, "")
        following = [name for name in sorted(self._definitions) if name > last]
        name = next(iter(following or sorted(self._definitions)), None)
        if name is None:
            return []
        self._last_resent[host] = name
        return [self._definitions[name]]

    def forget_host(self, host: str) -> None:
        """The host may not have heard what it was told."""
        self._sent.pop(host, None)


def uuid_of(opts: file_lock.Opts, name: str) -> str | None:
    """Of the guest whose definition is kept here; None where none is, or none that can be read."""
    try:
        definition = files.read(_folder(opts) / f"{names.guest(name)}.json", StoredDefinition)
        return _root(definition).findtext("uuid") if definition else None
    except (errors.OperationFailed, errors.BadAnswer):
        return None


def _folder(opts: file_lock.Opts) -> Path:
    return files.folder(opts) / "definitions"


def _root(definition: StoredDefinition) -> ElementTree.Element:
    """Its XML, parsed. Raises BadAnswer."""
    if len(definition.xml.encode(errors="replace")) > MAX_BYTES or "<!" in definition.xml:
        raise errors.BadAnswer(f"{definition.host}: the definition of {definition.name} is none")
    try:
        root = ElementTree.fromstring(definition.xml)
    except (ElementTree.ParseError, ValueError) as exc:
        raise errors.BadAnswer(
            f"{definition.host}: the definition of {definition.name}: {exc}"
        ) from exc
    if root.tag != "domain" or root.findtext("name") != definition.name:
        raise errors.BadAnswer(
            f"{definition.host}: what it told of {definition.name} is of another guest"
        )
    return root
