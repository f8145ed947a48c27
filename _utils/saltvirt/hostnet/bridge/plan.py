"""The files and commands that create a bridge, and those that undo it."""

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
# returns the output of a program, "" if it fails
Run = Callable[[Argv], str]
# (parse YAML, write YAML)
Yaml = tuple[Callable[[str], Any], Callable[[Any], str]]

# settings with a secret value: of Wi-Fi, a tunnel, a login
_SECRET = re.compile(
    r"""(?im)^([ \t]*(?:-[ \t]+)?["']?[\w.-]*(?:passw|psk|pin\b|secret|private|phrase|key)"""
    r"""[\w.-]*["']?(?:[ \t]*[:=][ \t]*|[ \t]+))\S.*$"""
)


def shown(files: Mapping[str, str | None]) -> dict[str, str | None]:
    """The files of a plan for display, without passwords and keys."""

    def redact(text: str) -> str:
        return _SECRET.sub(r"\1(hidden)", encoded(text).decode(errors="replace"))

    return {path: text and redact(text) for path, text in files.items()}


def encoded(text: str) -> bytes:
    """The bytes of a text that ``BridgeHost.read`` returned or that is derived from one."""
    return text.encode(errors="surrogateescape")


def already_configured(bridge: str, location: str) -> Unsupported:
    """The error for a bridge that is configured but does not exist: its configuration would be
    changed, or deleted with that of Salt Virt."""
    return Unsupported(
        f"{location} already configures {bridge}, but the bridge is not up: bring it up, "
        "or remove its configuration, then apply this again"
    )


@dataclass(frozen=True)
class BridgePlan:
    """files: path to the new text, or None to remove the file. before, apply: commands (argument
    lists) before and after the files are written; undo: the rollback, whose first command runs
    before the files are restored."""

    files: dict[str, str | None]
    before: tuple[Argv, ...]
    apply: tuple[Argv, ...]
    undo: tuple[Argv, ...]


@dataclass(frozen=True)
class BridgeVlan:
    """A bridge on a VLAN of an interface, whose own addresses stay."""

    bridge: str
    interface: str
    number: int

    @property
    def port(self) -> str:
        """The name of the tagged interface: the usual one if it is short enough."""
        usual = f"{self.interface}.{self.number}"
        return usual if len(usual) < 16 else f"vlan{self.number}"

    @property
    def delete_command(self) -> Argv:
        """The command that deletes the tagged interface."""
        return ("ip", "link", "delete", self.port)


@dataclass(frozen=True)
class BridgeHost:
    """Access of a plan to the host. run: runs an argument list and returns its output, or "" if it
    fails. load, dump: from and to YAML. root: of its files."""

    run: Run
    load: Callable[[str], Any] = json.loads
    dump: Callable[[Any], str] = json.dumps
    root: Path = Path("/")

    def read(self, path: str | Path) -> str:
        """The text of a file, "" if it does not exist. Bytes that are not UTF-8 are preserved."""
        file_path = self.root / str(path).lstrip("/")
        return file_path.read_text("utf-8", errors="surrogateescape") if file_path.is_file() else ""

    def refuse_file(self, bridge: str, path: str) -> None:
        """Raise Unsupported if the file of a bridge exists."""
        if (self.root / path.lstrip("/")).exists():
            raise already_configured(bridge, path)

    def glob(self, pattern: str) -> list[str]:
        """Paths of files on the host, sorted."""
        paths = self.root.glob(pattern.lstrip("/"))
        return [f"/{path.relative_to(self.root)}" for path in sorted(paths) if path.is_file()]

    def link(self, interface: str) -> dict[str, Any]:
        """The output of ``ip`` as a dict. /sys is not used, because in a container it may be
        another machine's."""
        output = self.run(("ip", "-j", "link", "show", interface))
        links: list[dict[str, Any]] = json.loads(output) if output else [{}]
        return links[0]

    def mac(self, interface: str) -> str:
        """The hardware address, "" if the interface does not exist."""
        address: str = self.link(interface).get("address", "")
        return address
