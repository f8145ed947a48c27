"""Firmware variables and TPM state of a guest, which libvirt does not include in snapshots.

They are copied to a folder for each snapshot, which only root can read, because TPM state contains
keys.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import urllib.parse
from collections.abc import Collection, Iterator
from xml.etree import ElementTree

from saltvirt import errors
from saltvirt.host import connection, own_files
from saltvirt.host.connection import libvirt
from saltvirt.host.storage import files
from saltvirt.snapshot.tree import SnapshotNode
from saltvirt.system import atomic_file, paths

FOLDER = f"{paths.STATE}/snapshots"
_VARIABLES, _TPM = "variables", "tpm"
# the guest had no variables file yet
_NONE = "no-variables"
# swtpm's lock, useless for another process
_LOCK = ".lock"
_TRIES = 5


def unsaved(conn: libvirt.virConnect, domain: libvirt.virDomain) -> list[str]:
    """Return sentences about the state of the guest that cannot be saved with a snapshot."""
    root = _definition(domain)
    warnings, path = [], files.variables_of(root)
    if path is not None and not _is_own(conn, path, domain.name()):
        warnings.append(
            f"its firmware variables in {path or 'no file'} are not saved with it, "
            f"because that file is not proven to belong to {domain.name()}"
        )
    state = _tpm(root, domain.UUIDString())
    if state is not None and not (connection.is_local(conn) and state):
        warnings.append("the state of its TPM is not saved with it")
    return warnings


def save(conn: libvirt.virConnect, domain: libvirt.virDomain, snapshot: SnapshotNode) -> None:
    """Copy firmware variables and TPM state for a snapshot that was just taken."""
    root, uuid = _definition(domain), domain.UUIDString()
    variables, tpm = files.variables_of(root), _tpm(root, uuid)
    own_variables = variables is not None and _is_own(conn, variables, domain.name())
    if not connection.is_local(conn) or not (own_variables or tpm):
        return
    target = _folder(uuid, snapshot)
    part = f"{target}.part"
    with own_files.permitted(), _os_errors_as("save the firmware variables and the TPM state"):
        shutil.rmtree(part, ignore_errors=True)
        for folder in (FOLDER, os.path.dirname(part), part):  # with the mode of each
            os.makedirs(folder, mode=0o700, exist_ok=True)
        if own_variables and variables and os.path.exists(variables):
            _copy_steady(variables, f"{part}/{_VARIABLES}")
        elif own_variables:
            os.mkdir(f"{part}/{_NONE}")
        if tpm and os.path.isdir(tpm):
            for path in _files(tpm):
                _copy_steady(f"{tpm}/{path}", f"{part}/{_TPM}/{path}")
        shutil.rmtree(target, ignore_errors=True)
        atomic_file.rename(part, target)


def not_restored(domain: libvirt.virDomain, snapshot: SnapshotNode) -> list[str]:
    """Return sentences about the state that a revert to the snapshot does not restore."""
    if snapshot.memory != "no":
        return []
    saved_dir = _folder(domain.UUIDString(), snapshot)
    variables = any(os.path.exists(f"{saved_dir}/{name}") for name in (_VARIABLES, _NONE))
    missing = [
        *(["firmware variables"] if snapshot.variables and not variables else []),
        *(["TPM state"] if snapshot.tpm and not os.path.isdir(f"{saved_dir}/{_TPM}") else []),
    ]
    if not missing:
        return []
    return [
        f"the {' and the '.join(missing)} are not reverted: {snapshot.name} does not contain them"
    ]


def restore(conn: libvirt.virConnect, domain: libvirt.virDomain, snapshot: SnapshotNode) -> None:
    """Restore the state that was saved for a snapshot to which the guest, which is off, was
    reverted."""
    root, uuid = _definition(domain), domain.UUIDString()
    saved_dir = _folder(uuid, snapshot)
    if domain.isActive() or not os.path.isdir(saved_dir):
        return
    path, state = files.variables_of(root), _tpm(root, uuid)
    with own_files.permitted(), _os_errors_as("restore the firmware variables and the TPM state"):
        has_variables = any(os.path.exists(f"{saved_dir}/{name}") for name in (_VARIABLES, _NONE))
        if has_variables and path and _is_own(conn, path, domain.name()):
            _put_back(f"{saved_dir}/{_VARIABLES}", path)
        if state and os.path.isdir(f"{saved_dir}/{_TPM}"):
            saved_files = _files(f"{saved_dir}/{_TPM}")
            for name in saved_files:
                _put_back(f"{saved_dir}/{_TPM}/{name}", f"{state}/{name}")
            for name in set(_files(state)) - set(saved_files):
                os.unlink(f"{state}/{name}")


def list_saved(uuid: str) -> tuple[list[str], list[str]]:
    """Return (files, empty folders) that were saved for the snapshots of a guest, to move with
    it."""
    paths: list[str] = []
    empty: list[str] = []
    with own_files.permitted():
        for parent, folders, names in os.walk(os.path.join(FOLDER, uuid)):
            folders[:] = [name for name in folders if not name.endswith(".part")]
            paths += [os.path.join(parent, name) for name in sorted(names)]
            empty += [] if folders or names else [parent]
    return paths, empty


def forget(uuid: str, snapshots: Collection[SnapshotNode]) -> None:
    """Remove the state that was saved for deleted snapshots."""
    for snapshot in snapshots:
        shutil.rmtree(_folder(uuid, snapshot), ignore_errors=True)
    with contextlib.suppress(OSError):  # other snapshots have saved state
        os.rmdir(os.path.join(FOLDER, uuid))


def forget_all(uuid: str) -> None:
    """Remove the state that was saved for the snapshots of a deleted guest."""
    shutil.rmtree(os.path.join(FOLDER, uuid), ignore_errors=True)


def _folder(uuid: str, snapshot: SnapshotNode) -> str:
    """Return the folder for a snapshot. A later snapshot of the same name has another time."""
    name = urllib.parse.quote(snapshot.name, safe="")
    return os.path.join(FOLDER, uuid, f"{name}@{snapshot.created}")


def _definition(domain: libvirt.virDomain) -> ElementTree.Element:
    return ElementTree.fromstring(domain.XMLDesc(0))


def _is_own(conn: libvirt.virConnect, path: str, guest: str) -> bool:
    return connection.is_local(conn) and files.are_own_variables(path, guest)


def _tpm(root: ElementTree.Element, uuid: str) -> str | None:
    """Return the folder of the guest's TPM state; "" if the definition names another location; None
    without an emulated TPM."""
    backend = root.find("devices/tpm/backend[@type='emulator']")
    if backend is None:
        return None
    return "" if backend.find("source") is not None else f"{files.TPM_STATE}/{uuid}"


def _files(folder: str) -> list[str]:
    """Return the regular files below a folder, as relative paths."""
    paths = []
    for parent, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(parent, name)
            if name != _LOCK and stat.S_ISREG(os.lstat(path).st_mode):
                paths.append(os.path.relpath(path, folder))
    return paths


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _copy_steady(path: str, target: str) -> None:
    """Copy a file that a running guest may be writing to, once two consecutive reads are equal."""
    before, data = None, _read(path)
    for _ in range(_TRIES):
        if data == before:
            break
        before, data = data, _read(path)
    else:
        raise OSError(0, "the guest continues to write to it", path)
    os.makedirs(os.path.dirname(target), mode=0o700, exist_ok=True)
    with open(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    _copy_owner(target, os.stat(path))


def _copy_owner(path: str, model: os.stat_result) -> None:
    os.chown(path, model.st_uid, model.st_gid)
    os.chmod(path, stat.S_IMODE(model.st_mode))


def _put_back(source: str, path: str) -> None:
    """Restore a file. One that did not exist is removed: libvirt creates it from its template."""
    if not os.path.exists(source):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        return
    part = f"{path}.part"
    os.makedirs(os.path.dirname(path), mode=0o711, exist_ok=True)
    shutil.copyfile(source, part)
    _copy_owner(part, os.stat(source))
    atomic_file.sync(part)
    atomic_file.rename(part, path)


@contextlib.contextmanager
def _os_errors_as(action: str) -> Iterator[None]:
    """Translate an OSError in the block into OperationFailed, on one line."""
    try:
        yield
    except PermissionError:
        raise
    except OSError as exc:
        raise errors.OperationFailed(f"cannot {action}: {exc.filename}: {exc.strerror}") from exc
