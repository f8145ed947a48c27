"""The expected guest after each verb: pure."""

import itertools
from copy import deepcopy
from dataclasses import dataclass, field

STORAGES = ("overlay", "copy", "raw", "volume", "shared-file", "shared-volume")
BOARDS = (("bios", "pc"), ("bios", "q35"), ("uefi", "q35"), ("uefi", "pc"))
COMBINATIONS = tuple(
    (storage, *board) for storage, board in itertools.product(STORAGES, BOARDS)
)  # fmt: skip
# folder and pool that each storage puts its disks into, as a disk's `pool` says it
POOLS = {"volume": "pond", "shared-file": "/srv/gluster/files", "shared-volume": "data"}
SYSTEM_MIB, DATA_MIB = 64, 16
MEMORY_MIB = {"bios": 128, "uefi": 192}
BRIDGE = "br0"
SAVED = ("cpus", "memory_mib", "disks", "records", "interfaces", "boot_dev")


@dataclass
class Snapshot:
    """A snapshot: the records of each disk when it was taken, and whether the guest ran."""

    name: str
    external: bool
    running: bool
    disks: dict


@dataclass
class Guest:
    """A guest as its user thinks of it.

    disks: name to size in MiB. records: name to the numbers on that disk. interfaces: names.
    snapshots: oldest first. backups: what the guest was at each, oldest first. detached: paths of
    the files of disks that were detached, which stay also if they are attached again, to size and
    numbers of the disk.
    """

    name: str
    storage: str
    firmware: str
    machine: str
    host: str
    cpus: int = 1
    memory_mib: int = 0
    running: bool = True
    disks: dict = field(default_factory=lambda: {"system": SYSTEM_MIB})
    records: dict = field(default_factory=lambda: {"system": []})
    interfaces: list = field(default_factory=lambda: ["eth0"])
    snapshots: list = field(default_factory=list)
    backups: list = field(default_factory=list)
    detached: dict = field(default_factory=dict)
    boot_dev: str | None = None

    def __post_init__(self):
        self.memory_mib = self.memory_mib or MEMORY_MIB[self.firmware]

    @property
    def external(self):
        """Whether snapshots of this guest are layers: internal ones need qcow2 files and BIOS."""
        return self.firmware == "uefi" or self.storage == "raw"

    def disk_options(self):
        """Options of a new disk of the guest, beside its name and size."""
        options = {"format": "raw"} if self.storage == "raw" else {}
        return options | ({"pool": POOLS[self.storage]} if self.storage in POOLS else {})

    def disk_list(self):
        """The guest's disks as `disks=` takes them."""
        options = self.disk_options()
        return [{"name": name, "size": size, **options} for name, size in self.disks.items()]

    def interface_list(self):
        """The guest's interfaces as `interfaces=` takes them."""
        return [{"name": name, "type": "bridge", "source": BRIDGE} for name in self.interfaces]

    def definition(self):
        """All that a user writes of the guest into an SLS or types for `virt.update`."""
        words = {
            "cpu": self.cpus, "mem": self.memory_mib,
            "disks": self.disk_list(), "interfaces": self.interface_list(),
        }  # fmt: skip
        return {**words, "boot_dev": self.boot_dev} if self.boot_dev else words

    def definitions_folder(self):
        """What a backup has of the guest: its definition and records."""
        return {name: deepcopy(getattr(self, name)) for name in SAVED}

    def restore(self, saved):
        """Become the guest of a backup."""
        for name, value in deepcopy(saved).items():
            setattr(self, name, value)

    @property
    def lacks_layers(self):
        """Whether a disk is detached of which a snapshot has a layer."""
        return any(each.external and {*each.disks} - {*self.disks} for each in self.snapshots)

    def write(self, number):
        """Record that a number was appended to each disk."""
        for numbers in self.records.values():
            numbers.append(number)

    def take(self, name, external):
        """Add a snapshot of this moment."""
        self.snapshots.append(Snapshot(name, external, self.running, deepcopy(self.records)))

    def revert(self, snapshot):
        """Go back to a snapshot; disks that it does not have keep their records."""
        self.records |= deepcopy(snapshot.disks)

    def add_disk(self, name, size_mib, numbers=()):
        """Give the guest a disk, if it has none of that name."""
        if name not in self.disks:
            self.disks[name], self.records[name] = size_mib, list(numbers)

    def add_detached(self, name, paths):
        """Give the guest a disk that it had, with these files. They stay when it is removed."""
        self.add_disk(name, *self.detached[paths[0]])

    def remove_disk(self, name):
        """Take a disk away, if the guest has it."""
        self.disks.pop(name, None)
        self.records.pop(name, None)
