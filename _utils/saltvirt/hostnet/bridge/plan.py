"""What is done to put a bridge under the host's address, and what undoes it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from saltvirt.errors import Unsupported

# a program and its arguments
Argv = tuple[str, ...]
# gives what a program printed, "" where it failed
Run = Callable[[Argv], str]
# from YAML, to YAML
Yaml = tuple[Callable[[str], Any], Callable[[Any], str]]

# a setting of a file whose value nobody but the host may know: of Wi-Fi, a tunnel, a login
_SECRET = re.compile(
    r"""(?im)^([ \t]*(?:-[ \t]+)?["']?[\w.-]*(?:passw|psk|pin\b|secret|private|phrase|key)"""
    r"""[\w.-]*["']?(?:[ \t]*[:=][ \t]*|[ \t]+))\S.*$"""
)


def shown(files: Mapping[str, str | None]) -> dict[str, str | None]:
    """Files of a plan as an answer shows them: without passwords and keys."""

    def redact(text: str) -> str:
        return _SECRET.sub(r"\1(hidden)", encoded(text).decode(errors="replace"))

    return {path: text and redact(text) for path, text in files.items()}


def encoded(text: str) -> bytes:
    """The bytes of a text that ``BridgeHost.read`` gave, or that was made of one."""
    return text.encode(errors="surrogateescape")


def already_configured(bridge: str, location: str) -> Unsupported:
    """The error for a bridge that the host's configuration has, though none is there: what is
    written for it by hand would be changed, or deleted with ours."""
    return Unsupported(
        f"{location} configures {bridge} already, though it is not there: bring it up, or remove "
        f"it "
        "from there, then apply this again"
    )


@dataclass(frozen=True)
class BridgePlan:
    """files: path to new text, None for no such file. before, apply: commands (argument
    lists) before and after they are written; undo: the way back, its first command before
    they are as they were."""

    files: dict[str, str | None]
    before: tuple[Argv, ...]
    apply: tuple[Argv, ...]
    undo: tuple[Argv, ...]


@dataclass(frozen=True)
class BridgeVlan:
    """A bridge over a VLAN of an interface, whose own addresses stay where they are."""

    bridge: str
    interface: str
    number: int

    @property
    def port(self) -> str:
        """The name of the tagged interface: the usual one where it is short enough."""
        usual = f"{self.interface}.{self.number}"
        return usual if len(usual) < 16 else f"vlan{self.number}"

    @property
    def delete_command(self) -> Argv:
        """The command that takes the tagged interface away."""
        return ("ip", "link", "delete", self.port)


@dataclass(frozen=True)
class BridgeHost:
    """How a plan looks at a host. run: a function of an argument list, gives what the program
    printed, "" where it failed. load, dump: from and to YAML. root: where its files are."""

    run: Run
    load: Callable[[str], Any] = json.loads
    dump: Callable[[Any], str] = json.dumps
    root: Path = Path("/")

    def read(self, path: str | Path) -> str:
        """The text of a file, "" where there is none; what is no UTF-8 in it stays as it is."""
        file_path = self.root / str(path).lstrip("/")
        return file_path.read_text("utf-8", errors="surrogateescape") if file_path.is_file() else ""

    def refuse_file(self, bridge: str, path: str) -> None:
        """Raise Unsupported if the file of a bridge is there already."""
        if (self.root / path.lstrip("/")).exists():
            raise already_configured(bridge, path)

    def glob(self, pattern: str) -> list[str]:
        """Paths of files, sorted, as they are named on the host."""
        paths = self.root.glob(pattern.lstrip("/"))
        return [f"/{path.relative_to(self.root)}" for path in sorted(paths) if path.is_file()]

    def link(self, interface: str) -> dict[str, Any]:
        """What ``ip`` tells of it, as a dict; not from /sys, which in a container can be another
        machine's."""
        output = self.run(("ip", "-j", "link", "show", interface))
        links: list[dict[str, Any]] = json.loads(output) if output else [{}]
        return links[0]

    def mac(self, interface: str) -> str:
        """The hardware address, "" where there is no such interface."""
        address: str = self.link(interface).get("address", "")
        return address
