"""The model of the one guest of a run: the expected content of its disks and backups. Pure."""

import hashlib
from dataclasses import dataclass, field

from tests.backup.steps import SECTOR


def digest(data):
    """The SHA-256 of some bytes."""
    return hashlib.sha256(data).hexdigest()


@dataclass
class Model:
    """disks: name of each, in the order of the guest's, to its size. held: target to what it holds.
    snapshots: name to what the disks held. kept: target's name to {backup: {disk: digest}}.
    copies: disk to what a copy of its file that was kept aside holds."""

    name: str
    host: str
    disks: dict = field(default_factory=dict)
    held: dict = field(default_factory=dict)
    runs: bool = True
    snapshots: dict = field(default_factory=dict)
    kept: dict = field(default_factory=dict)
    copies: dict = field(default_factory=dict)
    made: int = 0

    def add(self, size):
        """A new disk; its name."""
        name = f"d{len(self.disks)}"
        self.disks[name] = size
        self.held[self.targets[-1]] = bytearray(size)
        return name

    @property
    def targets(self):
        """libvirt's names of the disks."""
        return [f"vd{chr(ord('a') + number)}" for number in range(len(self.disks))]

    def target(self, at):
        """The disk at a fraction of them."""
        return self.targets[int(at * len(self.disks))]

    def disk(self, target):
        """The name of a disk."""
        return list(self.disks)[self.targets.index(target)]

    def grow(self, target, size):
        """The disk has so many bytes, the new ones zeros."""
        self.disks[self.disk(target)] = size
        self.held[target] += bytes(size - len(self.held[target]))

    def put(self, piece):
        """Writes a piece; (disk, what qemu-io is to be told)."""
        at, offset, sectors, byte = piece
        target = self.target(at)
        held = self.held[target]
        begin = int(offset * (len(held) // SECTOR)) * SECTOR
        length = min(sectors * SECTOR, len(held) - begin)
        held[begin : begin + length] = bytes([byte or 0]) * length
        how = "-z -u" if byte is None else f"-P {byte}"
        return target, f"write {how} {begin} {length}"

    def digests(self):
        """Disk to the digest of what it holds."""
        return {target: digest(held) for target, held in self.held.items()}

    def new_name(self, what):
        """A name that was not used yet."""
        self.made += 1
        return f"{what}{self.made}"
