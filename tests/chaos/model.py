"""The model of the guests, from the operations and their results; pure. A guest is ``alive``
(created, and not removed), ``gone`` (reported as removed) or ``unsure`` (an operation failed or was
killed, or two overlapped)."""

from dataclasses import dataclass, field

MAKES = ("init", "deployed", "clone", "rename", "backup_new", "backup_again")
RESTORES = ("backup_new", "backup_again")
REMOVES = ("purge", "rename")
BEGUN = "/var/cache/salt/master/virt/begun/"


@dataclass
class Guest:
    """floor: records that its disk must have. named: paths that a purge said would stay. strayed:
    it was moved by its host, so its key is still bound to another. may_stay: files of the master:
    the permission that the operator gave for its key, and who was told to make it and never heard
    of again. saved: records that its latest backup has; saving: that one which is being made will
    have; aside: that its disks had before a backup took their place."""

    name: str
    status: str = "unsure"
    disk: str = "local"
    lun: int | None = None
    seeded: bool = False
    floor: int = 0
    snapshots: dict = field(default_factory=dict)
    named: str = ""
    strayed: bool = False
    may_stay: set = field(default_factory=set)
    definitions_folder: int | None = None
    saving: int = 0
    aside: int | None = None


def makes(op):
    """The names that an operation makes."""
    if op["verb"] == "deployed":
        return list(op["names"])
    return [op.get("new", op.get("name"))] if op["verb"] in MAKES else []


def removes(op):
    """The names that an operation takes away."""
    return [op["name"]] if op["verb"] in REMOVES else []


class Model:
    """guests: name to Guest, those that are gone, too."""

    def __init__(self):
        self.guests = {}

    def of(self, *statuses):
        """The guests in one of these states, by name."""
        return [g for _, g in sorted(self.guests.items()) if g.status in statuses]

    def prepare(self, ops, faults=()):
        """Before the operations of a step begin: what can only be known now."""
        for op in ops:
            for name in makes(op):
                guest = self.guests.setdefault(name, Guest(name))
                if op["verb"] in RESTORES and guest.status != "alive":
                    of = self.guests.get(op["name"])
                    guest.disk, guest.lun, guest.seeded = "local", None, False
                    guest.floor = (of and of.definitions_folder) or 0
                elif guest.status != "alive":
                    before = (
                        self.guests.get(op["name"]) if op["verb"] in ("clone", "rename") else None
                    )
                    guest.disk = before.disk if before else op.get("disk", "local")
                    guest.lun = before.lun if before else op.get("lun")
                    guest.floor = before.floor if before else 0
                    guest.seeded = bool(before.seeded if before else op.get("seeded"))
                    self._hands_in(guest, op, faults)
            if op["verb"] == "snapshot" and op["name"] in self.guests:
                guest = self.guests[op["name"]]
                guest.snapshots.setdefault(op["snapshot"], guest.floor)
            if op["verb"] == "revert" and op["name"] in self.guests:
                guest = self.guests[op["name"]]
                guest.floor = min(guest.floor, guest.snapshots.get(op["snapshot"], 0))
            self._takes_place(op)
        for op in ops:
            if op["verb"] == "backup" and op["name"] in self.guests:
                guest = self.guests[op["name"]]
                guest.saving = guest.floor

    def _takes_place(self, op):
        """Of a guest and its backup: whichever it is in the end, it has what both have."""
        guest = self.guests.get(op.get("name"))
        if guest and op["verb"] == "backup_over":
            guest.aside = guest.floor if guest.aside is None else min(guest.aside, guest.floor)
            guest.floor = min(
                guest.floor,
                guest.floor if guest.definitions_folder is None else guest.definitions_folder,
            )
        if guest and op["verb"] == "backup_undo" and guest.aside is not None:
            guest.floor = min(guest.floor, guest.aside)

    def _backed(self, done):
        guest = self.guests.get(done.op.get("name"))
        if guest and done.op["verb"] == "backup":
            known = guest.definitions_folder is not None and not done.ok
            guest.definitions_folder = (
                min(guest.definitions_folder, guest.saving) if known else guest.saving
            )
        if guest and done.ok and done.op["verb"] in ("backup_confirm", "backup_undo"):
            guest.aside = None

    @staticmethod
    def _hands_in(guest, op, faults):
        """A host that makes a guest by itself hands its key in, if it can: without it the guest
        is whole, too."""
        if op["verb"] == "init" and op.get("seeded") and op["via"] != "runner":
            guest.seeded = not faults
            guest.may_stay.add(f"/etc/salt/pki/master/virtkeys/{op['host']}/{guest.name}")

    def end(self, done):
        """After all operations of a step ended. done: list of Done."""
        made, removed, asked = {}, {}, set()
        for one in done:
            self._backed(one)
            for name in makes(one.op):
                made.setdefault(name, []).append(one)
            for name in removes(one.op):
                removed.setdefault(name, []).append(one)
            asked.update(makes(one.op), removes(one.op))
            if one.op["verb"] == "migrate" and one.op["via"] != "runner":
                self.guests.setdefault(one.op["name"], Guest(one.op["name"])).strayed = True
        for name in sorted(asked):
            self._settle(name, made.get(name, []), removed.get(name, []))

    def _settle(self, name, made, removed):
        guest = self.guests.setdefault(name, Guest(name))
        guest.named += "".join(one.out for one in removed)
        if any(one.killed and (one.op["verb"], one.op["via"]) != ("purge", "runner")
               for one in removed):  # fmt: skip
            guest.may_stay.add(f"/srv/gluster/{name}_system")  # what stays was told to nobody
        if any(not one.ok for one in made):
            guest.may_stay.add(BEGUN + name)
        elif any(one.ok and one.op["via"] == "runner" for one in removed):
            guest.may_stay.discard(BEGUN + name)
        there = guest.status == "alive"
        if made and removed:
            guest.status = "unsure"
        elif any(one.ok for one in removed):
            guest.status = "gone"
        elif removed:
            # one that failed before it changed anything leaves it whole: looked at later
            guest.status = "unsure" if there else guest.status
        elif any(one.ok for one in made):
            guest.status = "alive"
        elif made and not there:
            guest.status = "unsure"
