"""Details that only the images contain: backing chain, internal snapshots, cluster size."""

from __future__ import annotations

import datetime
import json
from typing import TYPE_CHECKING, Any, cast

from saltvirt import errors
from saltvirt.images import chain, confined

if TYPE_CHECKING:
    from saltvirt.host.domain.describe import DiskInfo

_PATIENCE_S = 30


def _utc_time(seconds: int, nanoseconds: int) -> datetime.datetime:
    moment = datetime.datetime.fromtimestamp(seconds + nanoseconds / 1e9, datetime.timezone.utc)
    return moment.replace(tzinfo=None)


def _snapshot(raw: dict[str, Any]) -> dict[str, Any]:
    clock = _utc_time(raw["vm-clock-sec"], raw["vm-clock-nsec"])
    return {
        "id": raw["id"],
        "tag": raw["name"],
        "vmsize": raw["vm-state-size"],
        "date": _utc_time(raw["date-sec"], raw["date-nsec"]).isoformat(),
        "vmclock": clock.time().isoformat(),
    }


def _image(raw: dict[str, Any]) -> DiskInfo:
    details: DiskInfo = {
        "file": raw["filename"],
        "file format": raw["format"],
        "disk size": raw.get("actual-size"),
        "virtual size": raw["virtual-size"],
        "cluster size": raw.get("cluster-size"),
    }
    if raw.get("snapshots"):
        details["snapshots"] = [_snapshot(snapshot) for snapshot in raw["snapshots"]]
    return details


def nested(chain: list[dict[str, Any]]) -> DiskInfo:
    """Convert qemu-img's list of a chain to one dict, each ``backing file`` within the one above
    it.

    Raises ValueError for an empty list.
    """
    details: DiskInfo | None = None
    for raw in reversed(chain):
        image = _image(raw)
        if details is not None:
            image["backing file"] = details
        elif raw.get("full-backing-filename"):
            image["backing file"] = {"file": raw["full-backing-filename"]}
        details = image
    if details is None:
        raise ValueError("nothing")
    return details


def read(path: str, format: str) -> DiskInfo:
    """Return the image with its nested chain, read with qemu-img. Raises VirtError."""
    argv = ["qemu-img", "info", "-U", "--output=json", "--backing-chain", "-f", format, path]
    reads, limits = chain.names(path, format), confined.Limits(_PATIENCE_S)
    out = confined.run(argv, f"inspect {path}", reads=reads, limits=limits)
    try:
        return nested(json.loads(out))
    except (ValueError, KeyError, TypeError) as exc:
        raise errors.OperationFailed(f"cannot inspect {path}: qemu-img says {exc}") from exc


def complete(disk: DiskInfo) -> None:
    """Add the details of the image to an entry of describe.disks, in place.

    If qemu-img fails (too old, not installed, a missing file), the entry stays as libvirt described
    it; its ``error`` stays, or is set if libvirt has no size either.
    """
    path = disk.get("path") or disk["file"] or ""
    if disk["type"] != "disk" or not path.startswith("/"):
        return
    try:
        details = read(path, disk.get("file format") or "raw")
    except errors.VirtError as exc:
        if "virtual size" not in disk:
            disk["error"] = str(exc)
        return
    details["file"] = disk["file"]
    disk.pop("error", None)
    known_values = {key: value for key, value in details.items() if value is not None}
    disk.update(cast("DiskInfo", known_values))
