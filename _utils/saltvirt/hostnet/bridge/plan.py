"""What is done to put a bridge under the host's address, and what undoes it."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class BridgePlan:
    """files: path to new text, None for no such file. before, apply: commands (argument
    lists) before and after they are written; undo: the way back, its first command before
    they are as they were."""

    files: dict
    before: tuple
    apply: tuple
    undo: tuple


@dataclass(frozen=True)
class Vlan:
    """A bridge over a VLAN of an interface, whose own addresses stay where they are."""

    bridge: str
    interface: str
    number: int

    @property
    def port(self):
        """The name of the tagged interface: the usual one where it is short enough."""
        usual = f"{self.interface}.{self.number}"
        return usual if len(usual) < 16 else f"vlan{self.number}"

    @property
    def gone(self):
        """The command that takes the tagged interface away."""
        return ("ip", "link", "delete", self.port)


@dataclass(frozen=True)
class BridgeHost:
    """How a plan looks at a host. run: a function of an argument list, gives what the program
    printed, "" where it failed. load, dump: from and to YAML. root: where its files are."""

    run: Any
    load: Any
    dump: Any
    root: Path = Path("/")

    def read(self, path):
        """The text of a file, "" where there is none."""
        found = self.root / str(path).lstrip("/")
        return found.read_text(encoding="utf-8") if found.is_file() else ""

    def glob(self, pattern):
        """Paths of files, sorted, as they are named on the host."""
        found = self.root.glob(pattern.lstrip("/"))
        return [f"/{path.relative_to(self.root)}" for path in sorted(found) if path.is_file()]

    def link(self, interface):
        """What ``ip`` tells of it, as a dict; not from /sys, which in a container can be another
        machine's."""
        output = self.run(("ip", "-j", "link", "show", interface))
        return json.loads(output)[0] if output else {}

    def mac(self, interface):
        """The hardware address, "" where there is no such interface."""
        return self.link(interface).get("address", "")
