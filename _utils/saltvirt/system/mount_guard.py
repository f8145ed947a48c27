"""Protection against writing below mount points that are not mounted.

While a file server is not mounted, its mount point is a folder on the root disk. Files created
there would fill the root disk, and the next mount would hide them. The mount points are known from
/etc/fstab, from enabled systemd units, and from a record that this host writes when it creates the
first file.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import os
from collections.abc import Container, Iterator

from saltvirt import errors
from saltvirt.system import atomic_file, bounded_io, mounts, paths

# one file per mount point, which contains the path
FOLDER = f"{paths.STATE}/mount-points"
FSTAB = "/etc/fstab"
UNITS = "/etc/systemd/system"
_RECORD = "record"


def make_folder(folder: str, mode: int = 0o777) -> None:
    """Create a folder for guests' files and record its mount points.

    Raises Refused if its file system is not mounted; OperationFailed, OSError.
    """
    refuse_unmounted(folder)
    os.makedirs(folder, mode=mode, exist_ok=True)
    remember(folder)


def refuse_unmounted(folder: str, consequence: str | None = None) -> None:
    """Raise Refused if a folder is below a mount point on which nothing is mounted.

    consequence: what is not done; by default, that nothing is created in the folder.
    """
    consequence = consequence or f"nothing is created in {folder}"
    for point, origin in sorted(_required(folder).items()):
        if _is_mounted(point) or _mounts_itself(point):
            continue
        accept = f"'salt-call virt.forget_mount {point}'"
        if origin == _RECORD:
            reason = "guests' files were created on it before"
        else:
            reason, accept = f"{origin} lists it", f"remove it from {origin} and run {accept}"
        raise errors.Refused(
            f"{point} is not mounted on this host, and {reason}: {consequence}; run 'mount "
            f"{point}', or, if {point} is no longer a mount point, {accept}"
        )


def remember(folder: str) -> None:
    """Record the mount points above a folder, except the root."""
    mount_list = mounts.read()
    for path in _paths(folder):
        mount = mounts.mount_of(mount_list, path)
        if mount and mount.mount_point != "/":
            _write(mount.mount_point)


def forget(point: str) -> bool:
    """Delete the record of a mount point; False if there was none. Raises OperationFailed."""
    point = os.path.normpath(point)
    try:
        os.unlink(_note(point))
    except FileNotFoundError:
        return False
    except OSError as exc:
        raise errors.OperationFailed(f"{_note(point)}: {exc.strerror}") from exc
    return True


def remembered_points() -> list[str]:
    """Return the recorded mount points."""
    points = []
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        for name in os.listdir(FOLDER):
            if not name.startswith("."):
                points += mounts.lines(os.path.join(FOLDER, name))[:1]
    return sorted(points)


def unmounted_points() -> list[str]:
    """Return the mount points on which nothing is mounted.

    Automounts are omitted, since they mount on access, and so are names that are not printable.
    """
    mount_points = {mount.mount_point for mount in mounts.read()}
    points = {*remembered_points(), *_units(), *mounts.to_mount(FSTAB, by_hand=False)}
    points -= {"/", *mount_points}
    return sorted(p for p in points if p.isprintable() and _is_bare(p, mount_points))


def _is_bare(point: str, mount_points: Container[str]) -> bool:
    """Return whether nothing is mounted on a mount point. One that does not respond is mounted."""
    with contextlib.suppress(bounded_io.StorageTimeout):
        return bounded_io.real(point) not in mount_points
    return False


def _required(folder: str) -> dict[str, str]:
    """Return {mount point above a folder: where it is configured}."""
    origins = dict.fromkeys(remembered_points(), _RECORD)
    origins.update(dict.fromkeys(_units(), UNITS))
    origins.update(dict.fromkeys(mounts.to_mount(FSTAB, by_hand=False), FSTAB))
    paths = _paths(folder)
    return {
        point: origin
        for point, origin in origins.items()
        if point != "/" and any(f"{path}/".startswith(f"{point}/") for path in paths)
    }


def _paths(folder: str) -> set[str]:
    """Return the folder's path with and without symbolic links; either may cross a mount point."""
    return {os.path.abspath(folder), bounded_io.real(folder)}


def _is_mounted(point: str) -> bool:
    """Return whether a file system is mounted there; an idle automount does not count."""
    kinds = {mount.mount_point: mount.kind for mount in mounts.read()}
    return any(kinds.get(path, "autofs") != "autofs" for path in _paths(point))


def _mounts_itself(point: str) -> bool:
    """Return whether accessing the folder mounts a file system there."""
    with contextlib.suppress(OSError):
        bounded_io.names(point)
    return _is_mounted(point)


def _units() -> Iterator[str]:
    """Yield the mount points of enabled systemd units."""
    for kind in ("mount", "automount"):
        for path in glob.glob(f"{glob.escape(UNITS)}/*.*/*.{kind}"):
            for line in mounts.lines(path):
                key, _, value = line.partition("=")
                if key.strip() == "Where" and value.strip().startswith("/"):
                    yield os.path.normpath(value.strip())


def _note(point: str) -> str:
    return os.path.join(FOLDER, hashlib.sha256(os.fsencode(point)).hexdigest()[:40])


def _write(point: str) -> None:
    path = _note(point)
    if os.path.exists(path):
        return
    try:
        os.makedirs(FOLDER, mode=0o700, exist_ok=True)
        atomic_file.write(path, os.fsencode(point), part=atomic_file.unique_part(path))
    except OSError as exc:
        raise errors.OperationFailed(
            f"cannot record the mount point {point}: {path}: {exc.strerror}"
        ) from exc
