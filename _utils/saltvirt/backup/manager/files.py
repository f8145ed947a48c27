"""Single files of a backup: the machine that has the target reads them, and keeps what is taken
out. No content passes the master."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from saltvirt import settings, units
from saltvirt.backup.manager import target_upkeep
from saltvirt.backup.model import backup_ids, files, policy
from saltvirt.backup.model.files import ExtractedFile, FileListing
from saltvirt.fleet.client import Fleet
from saltvirt.operations.core.operation import Checked, Result
from saltvirt.operations.core.report import Report


@dataclass(frozen=True)
class FilesRequest:
    """name: of the guest that was backed up, or its UUID. path: in the guest. backup: its name, its
    number, or ``latest``. to: the target; None: the default. filesystem: the one that is looked
    into; None: what the guest's system mounts."""

    name: str
    path: str
    backup: str = backup_ids.LATEST
    target_name: str | None = None
    filesystem: str | None = None


class ListFiles:
    """What is in a folder of a guest. Nothing is changed by it."""

    def __init__(self, fleet: Fleet, request: FilesRequest, report: Report) -> None:
        self.fleet, self.request, self.report = fleet, request, report

    def run(self) -> Result:
        """Raises InvalidInput, NotFound, and what the machine says."""
        machine, answer = _query(self.fleet, self.request, self.report, "virt.backup_ls", {})
        listing = FileListing.from_answer(answer, machine)
        path = files.parse_path(self.request.path)
        count = len(listing.files) + listing.more
        names = units.pluralize(count, "name")
        comment = f"{path} of {listing.guest} has {names} in {listing.ident}"
        if listing.more:
            comment += f"; {len(listing.files)} are shown"
        for point, reason in listing.missing.items():
            comment += f"; {point} is missing: {reason}"
        entries = [entry.to_answer() for entry in listing.files]
        details = {
            "host": machine, "backup": listing.ident, "files": entries,
            "filesystems": listing.filesystems, "missing": listing.missing,
            "table": files.rows(listing.files),
        }  # fmt: skip
        return Result(self.request.name, comment, {}, details, complete=not listing.missing)


class ExtractFile:
    """Takes a file out. dest: its path on the machine of the target; None: a new one. most_bytes:
    nothing larger."""

    def __init__(
        self,
        fleet: Fleet,
        request: FilesRequest,
        report: Report,
        dest: str | None,
        max_bytes: int,
    ) -> None:
        self.fleet, self.request, self.report = fleet, request, report
        self.dest, self.max_bytes = dest, max_bytes

    def check(self) -> Checked:
        """What would be taken out, and where it would go."""
        machine, file_info = self._query(True)
        size = units.human_bytes(file_info.size_bytes)
        kind = f"a file of {size}" if file_info.kind == files.FILE else "a folder, as a tar file"
        dest = self.dest or "a new file"
        comment = f"{self.request.path} in {file_info.ident} is {kind}: "
        comment += f"{dest} on {machine} would be it"
        return Checked(self.request.name, comment, {"path": self.dest}, {"host": machine})

    def run(self) -> Result:
        """Raises InvalidInput, NotFound, and what the machine says."""
        machine, file_info = self._query(False)
        size = units.human_bytes(file_info.size_bytes)
        source = f"{self.request.path} from {file_info.ident}"
        comment = f"{source} is {file_info.path} on {machine}, {size}; root alone can read it"
        self.report.done(comment, backup=file_info.ident, host=machine)
        changes = {"path": file_info.path}
        details = {"host": machine, "backup": file_info.ident, "size_bytes": file_info.size_bytes}
        return Result(self.request.name, comment, changes, details)

    def _query(self, test: bool) -> tuple[str, ExtractedFile]:
        options = {"dest": self.dest, "most": f"{self.max_bytes}b", "test": test}
        machine, answer = _query(self.fleet, self.request, self.report, "virt.backup_get", options)
        return machine, ExtractedFile.from_answer(answer, machine)


def _query(
    fleet: Fleet, request: FilesRequest, report: Report, verb: str, options: dict[str, Any]
) -> tuple[str, Any]:
    """(the machine of the target, what it answers)."""
    target = policy.read(settings.of_master(fleet.opts)).target(request.target_name)
    machine = target_upkeep.target_host(fleet, target)
    arguments = {
        "folder": target.folder, "mounted": target.mounted, "name": request.name,
        "path": files.parse_path(request.path), "backup": request.backup,
        "filesystem": request.filesystem, **options,
    }  # fmt: skip
    report.step("look", f"{request.name}: {machine} looks into the backup", host=machine)
    return machine, fleet.call(machine, verb, arguments, long=True)
