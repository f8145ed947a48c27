"""List and extract single files of a backup.

The machine of the target reads the backup and stores the extracted files. Their content does not
pass through the master.
"""

from __future__ import annotations

from dataclasses import dataclass

from saltvirt import settings, units
from saltvirt.backup.manager import target_upkeep
from saltvirt.backup.model import backup_ids, calls, files, policy
from saltvirt.backup.model.files import ExtractedFile
from saltvirt.fleet.client import Fleet
from saltvirt.operations.core.operation import Checked, Result
from saltvirt.operations.core.report import Report


@dataclass(frozen=True)
class FilesRequest:
    """Which files of which backup.

    name: the guest that was backed up, or its UUID. path: the path in the guest. backup: the name
    or number of the backup, or ``latest``. target_name: None: the default target. filesystem: the
    file system to read; None: the file systems as the guest's operating system mounts them.
    """

    name: str
    path: str
    backup: str = backup_ids.LATEST
    target_name: str | None = None
    filesystem: str | None = None


class ListFiles:
    """List a folder of a guest in a backup. Changes nothing."""

    def __init__(self, fleet: Fleet, request: FilesRequest, report: Report) -> None:
        self.fleet, self.request, self.report = fleet, request, report

    def run(self) -> Result:
        """Return the list. Raises InvalidInput, NotFound, and the errors of the machine."""
        machine, request = _open(self.fleet, self.request, self.report)
        listing = calls.LIST_FILES.ask(self.fleet, machine, request)
        path = files.parse_path(self.request.path)
        count = len(listing.files) + listing.omitted
        items = units.pluralize(count, "item")
        comment = f"{path} of {listing.guest} has {items} in {listing.backup_id}"
        if listing.omitted:
            comment += f"; showing {len(listing.files)}"
        for point, reason in listing.missing.items():
            comment += f"; {point} is not mounted: {reason}"
        entries = [entry.to_answer() for entry in listing.files]
        details = {
            "host": machine, "backup": listing.backup_id, "files": entries,
            "filesystems": listing.filesystems, "missing": listing.missing,
            "table": files.rows(listing.files),
        }  # fmt: skip
        return Result(self.request.name, comment, {}, details, complete=not listing.missing)


class ExtractFile:
    """Extract a file or a folder.

    dest: the path on the machine of the target; None: a new file. max_bytes: the maximum size.
    """

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
        """Return what would be extracted, and to which path."""
        machine, file_info = self._query(True)
        size = units.human_bytes(file_info.size_bytes)
        kind = f"a file of {size}" if file_info.kind == files.FILE else "a folder, as a tar file"
        dest = self.dest or "a new file"
        comment = f"{self.request.path} in {file_info.backup_id} is {kind}: "
        comment += f"would extract it to {dest} on {machine}"
        return Checked(self.request.name, comment, {"path": self.dest}, {"host": machine})

    def run(self) -> Result:
        """Extract it. Raises InvalidInput, NotFound, and the errors of the machine."""
        machine, file_info = self._query(False)
        size = units.human_bytes(file_info.size_bytes)
        source = f"{self.request.path} from {file_info.backup_id}"
        comment = f"extracted {source} to {file_info.path} on {machine}, {size}; readable by root"
        self.report.done(comment, backup=file_info.backup_id, host=machine)
        changes = {"path": file_info.path}
        details = {
            "host": machine,
            "backup": file_info.backup_id,
            "size_bytes": file_info.size_bytes,
        }
        return Result(self.request.name, comment, changes, details)

    def _query(self, test: bool) -> tuple[str, ExtractedFile]:
        machine, opened = _open(self.fleet, self.request, self.report)
        request = calls.GetFileRequest(
            opened.folder, opened.name, opened.path, opened.backup, opened.filesystem, self.dest,
            f"{self.max_bytes}b", test, mounted=opened.mounted,
        )  # fmt: skip
        return machine, calls.GET_FILE.ask(self.fleet, machine, request)


def _open(
    fleet: Fleet, files_request: FilesRequest, report: Report
) -> tuple[str, calls.ListFilesRequest]:
    """Return the machine of the target, and the request for the files of the backup."""
    target = policy.read(settings.of_master(fleet.opts)).target(files_request.target_name)
    machine = target_upkeep.target_host(fleet, target)
    request = calls.ListFilesRequest(
        target.folder, files_request.name, files.parse_path(files_request.path),
        files_request.backup, files_request.filesystem, mounted=target.mounted,
    )  # fmt: skip
    report.step("open", f"{files_request.name}: {machine} opens the backup", host=machine)
    return machine, request
