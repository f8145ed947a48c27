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
from saltvirt.ha import facts
from saltvirt.ha.facts import Beat
from saltvirt.hamaster import files
from saltvirt.operations import held
from saltvirt.wire import Fact

log = logging.getLogger(__name__)

MOST_BYTES = 1024**2
# to one host in one beat
AT_ONCE = 100


@dataclass(frozen=True)
class Definition(Fact):
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


class Definitions:
    """A file a guest."""

    def __init__(self, opts: held.Opts) -> None:
        self.folder = _folder(opts)
        self._known = {one.name: one for one in self._read()}
        self._told: dict[str, dict[str, str]] = {}
        self._boots: dict[str, int] = {}
        self._again: dict[str, str] = {}
        self._digest: tuple[Collection[str], dict[str, Definition], str, dict[str, str]]
        self._digest = (), {}, "", {}

    def _read(self) -> list[Definition]:
        found = []
        for path in sorted(self.folder.glob("*.json")):
            try:
                one = files.read(path, Definition)
            except errors.OperationFailed as exc:  # its host tells it again
                log.warning("%s", exc.text)
                continue
            if one is not None and path.name == f"{one.name}.json":
                found.append(one)
        return found

    def _path(self, name: str) -> Path:
        return self.folder / f"{names.guest(name)}.json"

    @property
    def known(self) -> Mapping[str, Definition]:
        """By the guests' names: the same dict until any of them changes."""
        return self._known

    def take(self, host: str, body: dict[str, Any]) -> bool:
        """Keeps what a host told of a guest that may run there. Returns whether it is new.

        Raises BadAnswer for what is no definition of that guest, or one of another guest of its
        name.
        """
        told = Definition.from_answer({**body, "host": host}, host)
        root = _root(told)
        known = self._known.get(told.name)
        digest = hashlib.sha256(told.xml.encode()).hexdigest()
        if known is not None and known.digest == digest:
            return False
        if known is not None and root.findtext("uuid") != _root(known).findtext("uuid"):
            raise errors.BadAnswer(
                f"{host}: the definition of {told.name} is of another guest: give it to high "
                "availability anew"
            )
        new = Definition(told.name, digest, told.xml, host, told.size)
        files.write(self._path(told.name), new)
        self._known = {**self._known, told.name: new}
        return True

    def keep_only(self, guests: Collection[str]) -> None:
        """The others are no longer of high availability."""
        for name in set(self._known) - set(guests):
            self._path(name).unlink(missing_ok=True)
            self._known = {key: one for key, one in self._known.items() if key != name}

    def untold(self, beat: Beat, guests: Collection[str]) -> list[Definition]:
        """Those that the host of that beat is to be told now: each at once, and whenever it
        changed. Then none, if it says that it keeps all that is known of these guests, those of the
        registry; else one after the other again: an agent may end before it has written down what
        it was told.
        """
        if self._boots.get(beat.host) != beat.boot:
            self.forgot(beat.host)
            self._boots[beat.host] = beat.boot
        digest, digests = self._as_told(guests)
        if beat.definitions == digest:
            self._told[beat.host] = digests
            return []
        told = self._told.get(beat.host, {})
        news = [one for one in self._known.values() if told.get(one.name) != one.digest][:AT_ONCE]
        self._told[beat.host] = {**told, **{one.name: one.digest for one in news}}
        return news or self._once_more(beat.host)

    def _as_told(self, guests: Collection[str]) -> tuple[str, dict[str, str]]:
        """(The digest, what it is of) of the definitions of those guests."""
        if self._digest[0] is not guests or self._digest[1] is not self._known:
            known = {name: one.digest for name, one in self._known.items() if name in guests}
            self._digest = guests, self._known, facts.digest(known), known
        return self._digest[2:]

    def _once_more(self, host: str) -> list[Definition]:
        """One, and in turn all of them."""
        last = self._again.get(host, "")
        following = [name for name in sorted(self._known) if name > last]
        name = next(iter(following or sorted(self._known)), None)
        if name is None:
            return []
        self._again[host] = name
        return [self._known[name]]

    def forgot(self, host: str) -> None:
        """The host may not have heard what it was told."""
        self._told.pop(host, None)


def uuid_of(opts: held.Opts, name: str) -> str | None:
    """Of the guest whose definition is kept here; None where none is, or none that can be read."""
    try:
        one = files.read(_folder(opts) / f"{names.guest(name)}.json", Definition)
        return _root(one).findtext("uuid") if one else None
    except (errors.OperationFailed, errors.BadAnswer):
        return None


def _folder(opts: held.Opts) -> Path:
    return files.folder(opts) / "definitions"


def _root(one: Definition) -> ElementTree.Element:
    """Its XML, parsed. Raises BadAnswer."""
    if len(one.xml.encode(errors="replace")) > MOST_BYTES or "<!" in one.xml:
        raise errors.BadAnswer(f"{one.host}: the definition of {one.name} is none")
    try:
        root = ElementTree.fromstring(one.xml)
    except (ElementTree.ParseError, ValueError) as exc:
        raise errors.BadAnswer(f"{one.host}: the definition of {one.name}: {exc}") from exc
    if root.tag != "domain" or root.findtext("name") != one.name:
        raise errors.BadAnswer(f"{one.host}: what it told of {one.name} is of another guest")
    return root
