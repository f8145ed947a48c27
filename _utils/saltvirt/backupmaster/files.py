"""Single files of a backup: the machine that has the target reads them, and keeps what is taken
out. No content passes the master."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from saltvirt import settings, units
from saltvirt.backupmaster import keep
from saltvirt.backups import files, ident, policy
from saltvirt.backups.files import FileGot, FilesSeen
from saltvirt.fleet.client import Fleet
from saltvirt.operations.operation import Checked, Result
from saltvirt.operations.report import Report


@dataclass(frozen=True)
class FilesRequest:
    """name: of the guest that was backed up, or its UUID. path: in the guest. backup: its name, its
    number, or ``latest``. to: the target; None: the default. filesystem: the one that is looked
    into; None: what the guest's system mounts."""

    name: str
    path: str
    backup: str = ident.LATEST
    to: str | None = None
    filesystem: str | None = None


class Look:
    """What is in a folder of a guest. Nothing is changed by it."""

    def __init__(self, fleet: Fleet, request: FilesRequest, report: Report) -> None:
        self.fleet, self.request, self.report = fleet, request, report

    def run(self) -> Result:
        """Raises InvalidInput, NotFound, and what the machine says."""
        machine, said = _asked(self.fleet, self.request, self.report, "virt.backup_ls", {})
        found = FilesSeen.from_answer(said, machine)
        path = files.asked(self.request.path)
        count = len(found.files) + found.more
        names = units.counted(count, "name")
        comment = f"{path} of {found.guest} has {names} in {found.ident}"
        if found.more:
            comment += f"; {len(found.files)} are shown"
        for point, why in found.missing.items():
            comment += f"; {point} is missing: {why}"
        told = [one.to_answer() for one in found.files]
        more = {
            "host": machine, "backup": found.ident, "files": told,
            "filesystems": found.filesystems, "missing": found.missing,
            "table": files.rows(found.files),
        }  # fmt: skip
        return Result(self.request.name, comment, {}, more, complete=not found.missing)


class Get:
    """Takes a file out. dest: its path on the machine of the target; None: a new one. most_bytes:
    nothing larger."""

    def __init__(
        self,
        fleet: Fleet,
        request: FilesRequest,
        report: Report,
        dest: str | None,
        most_bytes: int,
    ) -> None:
        self.fleet, self.request, self.report = fleet, request, report
        self.dest, self.most_bytes = dest, most_bytes

    def check(self) -> Checked:
        """What would be taken out, and where it would go."""
        machine, found = self._asked(True)
        size = units.human_bytes(found.size_bytes)
        what = f"a file of {size}" if found.kind == files.FILE else "a folder, as a tar file"
        where = self.dest or "a new file"
        comment = f"{self.request.path} in {found.ident} is {what}: "
        comment += f"{where} on {machine} would be it"
        return Checked(self.request.name, comment, {"path": self.dest}, {"host": machine})

    def run(self) -> Result:
        """Raises InvalidInput, NotFound, and what the machine says."""
        machine, found = self._asked(False)
        size = units.human_bytes(found.size_bytes)
        what = f"{self.request.path} from {found.ident}"
        comment = f"{what} is {found.path} on {machine}, {size}; root alone can read it"
        self.report.done(comment, backup=found.ident, host=machine)
        changes = {"path": found.path}
        more = {"host": machine, "backup": found.ident, "size_bytes": found.size_bytes}
        return Result(self.request.name, comment, changes, more)

    def _asked(self, test: bool) -> tuple[str, FileGot]:
        given = {"dest": self.dest, "most": f"{self.most_bytes}b", "test": test}
        machine, said = _asked(self.fleet, self.request, self.report, "virt.backup_get", given)
        return machine, FileGot.from_answer(said, machine)


def _asked(
    fleet: Fleet, request: FilesRequest, report: Report, verb: str, given: dict[str, Any]
) -> tuple[str, Any]:
    """(the machine of the target, what it answers)."""
    target = policy.read(settings.of_master(fleet.opts)).target(request.to)
    machine = keep.machine(fleet, target)
    asked = {
        "folder": target.folder, "mounted": target.mounted, "name": request.name,
        "path": files.asked(request.path), "backup": request.backup,
        "filesystem": request.filesystem, **given,
    }  # fmt: skip
    report.step("look", f"{request.name}: {machine} looks into the backup", host=machine)
    return machine, fleet.one(machine, verb, asked, long=True)
