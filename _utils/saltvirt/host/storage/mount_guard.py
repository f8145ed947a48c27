"""Folders on a file system that has to be mounted before anything is made in them.

A folder of images on a server lies on the host's root disk for as long as the server is not
mounted: what is made there then fills the root disk, and is hidden by the next mount. Where such a
folder has to be mounted is in /etc/fstab or in an enabled unit of systemd, or is remembered by
this host from the first file that was made there.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import os
from collections.abc import Container, Iterator

from saltvirt import errors
from saltvirt.host import paths
from saltvirt.host.storage import bounded_io, mounts

# one file for each mount point; its content is the path
FOLDER = f"{paths.STATE}/mount-points"
FSTAB = "/etc/fstab"
UNITS = "/etc/systemd/system"
_RECORD = "record"


def make_folder(folder: str, mode: int = 0o777) -> None:
    """Makes a folder for guests' files where its file system is mounted, and remembers where that
    is. Raises Refused, OperationFailed, OSError."""
    refuse_unmounted(folder)
    os.makedirs(folder, mode=mode, exist_ok=True)
    remember(folder)


def refuse_unmounted(folder: str, consequence: str | None = None) -> None:
    """Raises Refused where a folder is below a mount point on which nothing is mounted.
    consequence: what is
    not done therefore; by default, nothing is made in the folder."""
    consequence = consequence or f"nothing is made in {folder}"
    for point, origin in sorted(_required(folder).items()):
        if _is_mounted(point) or _mounts_itself(point):
            continue
        accept = f"'salt-call virt.forget_mount {point}'"
        if origin == _RECORD:
            reason = "files of guests were made on it before"
        else:
            reason, accept = f"{origin} lists it", f"remove it from {origin} and type {accept}"
        raise errors.Refused(
            f"{point} is not mounted on this host, and {reason}: {consequence}; type "
            f"'mount {point}', or, if {point} is no mount point any more, {accept}"
        )


def remember(folder: str) -> None:
    """Writes down the mount points that a folder is on, but for the root's."""
    mount_list = mounts.read()
    for path in _paths(folder):
        mount = mounts.mount_of(mount_list, path)
        if mount and mount.mount_point != "/":
            _write(mount.mount_point)


def forget(point: str) -> bool:
    """Forgets a mount point; False where it was not remembered. Raises OperationFailed."""
    point = os.path.normpath(point)
    try:
        os.unlink(_note(point))
    except FileNotFoundError:
        return False
    except OSError as exc:
        raise errors.OperationFailed(f"{_note(point)}: {exc.strerror}") from exc
    return True


def remembered_points() -> list[str]:
    """The mount points that this host remembers."""
    points = []
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        for name in os.listdir(FOLDER):
            if not name.startswith("."):
                points += mounts.lines(os.path.join(FOLDER, name))[:1]
    return sorted(points)


def unmounted_points() -> list[str]:
    """The mount points of this host on which nothing is mounted. Not those of automounts, which
    need not be: what is mounted there is seen by looking. Nor those with a name that is no text."""
    mount_points = {mount.mount_point for mount in mounts.read()}
    points = {*remembered_points(), *_units(), *mounts.to_mount(FSTAB, by_hand=False)} - {
        "/",
        *mount_points,
    }
    return sorted(
        point for point in points if point.isprintable() and _is_bare(point, mount_points)
    )


def _is_bare(point: str, mount_points: Container[str]) -> bool:
    """Whether nothing is mounted where a mount point leads to; what does not answer is mounted."""
    with contextlib.suppress(bounded_io.StorageTimeout):
        return bounded_io.real(point) not in mount_points
    return False


def _required(folder: str) -> dict[str, str]:
    """{mount point that a folder is below: what says that it is one}."""
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
    """A folder by its name and without links: either may lead over a mount point."""
    return {os.path.abspath(folder), bounded_io.real(folder)}


def _is_mounted(point: str) -> bool:
    """Whether something is mounted there; an automount that was not asked for is not."""
    kinds = {mount.mount_point: mount.kind for mount in mounts.read()}
    return any(kinds.get(path, "autofs") != "autofs" for path in _paths(point))


def _mounts_itself(point: str) -> bool:
    """Whether something is mounted there as soon as the folder is looked into."""
    with contextlib.suppress(OSError):
        bounded_io.names(point)
    return _is_mounted(point)


def _units() -> Iterator[str]:
    """The mount points of systemd's units that the operator enabled."""
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
    part = os.path.join(FOLDER, f".{os.path.basename(path)}.{os.getpid()}")
    try:
        os.makedirs(FOLDER, mode=0o700, exist_ok=True)
        with open(part, "wb") as file:
            file.write(os.fsencode(point))
            file.flush()
            os.fsync(file.fileno())
        os.rename(part, path)
    except OSError as exc:
        raise errors.OperationFailed(
            f"cannot remember that {point} is a mount point: {path}: {exc.strerror}"
        ) from exc
