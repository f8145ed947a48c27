"""What a backup has of a guest beside its disks: the firmware variables, and the state of an
emulated TPM, which is secret. Read where libvirt keeps them, and put back there.

QEMU and swtpm can write to those folders. So no link is followed that is not root's.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from xml.etree import ElementTree

from saltvirt import errors
from saltvirt.backup.model import archive, record
from saltvirt.backup.target import safe_folder as folders
from saltvirt.host import connection
from saltvirt.host.connection import libvirt
from saltvirt.host.domain.replaced_guest import SavedState
from saltvirt.host.storage import files, usage
from saltvirt.xml.domain.domain import Domain

FIRMWARE, TPM = record.FIRMWARE, record.TPM
# the end of the name of what has made way
_BEFORE = ".before-restore"
_TRIES = 5
_PLAIN = (
    "it has private keys, and would lie at the target in plain: give that target a key "
    "(virt:backup:targets)"
)
_LOCK = ".lock"
# as libvirt's own; the innermost it gives to swtpm, for nobody else to enter
_FOLDER_MODE = 0o711
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class _NotSaved(Exception):
    """Why something is in no backup."""


@dataclass(frozen=True)
class CollectedState:
    """files: of an archive. skipped: what is in no backup, and why."""

    files: dict[str, bytes]
    skipped: dict[str, str]


def collect(conn: libvirt.virConnect, dom: libvirt.virDomain, is_encrypted: bool) -> CollectedState:
    """The state of a guest as it is now. Of one that runs each file is read until two readings are
    alike. is_encrypted: it is encrypted at the target; else the TPM's stays here: with that whoever
    reads
    the target opens what the guest has sealed."""
    root = ElementTree.fromstring(dom.XMLDesc(0))
    collected, skipped = dict[str, bytes](), dict[str, str]()
    for kind, read in ((FIRMWARE, _variables), (TPM, _tpm)):
        try:
            part = read(conn, root)
            if part and kind == TPM and not is_encrypted:
                raise _NotSaved(_PLAIN)
            if sum(map(len, (*collected.values(), *part.values()))) > archive.MAX_BYTES:
                raise _NotSaved("it is larger than any guest's")
            archive.pack(part)
            collected |= part
        except (_NotSaved, errors.VirtError) as exc:
            skipped[kind] = str(exc)
        except OSError as exc:
            skipped[kind] = f"it cannot be read: {exc.strerror}"
    return CollectedState(collected, skipped)


def expected_kinds(model: Domain) -> list[str]:
    """What of it a guest has, by its definition."""
    system = model.os
    uefi = system.firmware == "efi" or system.variables or system.nvram is not None
    tpm = any(device.backend == "emulator" for device in model.tpms)
    return [*([FIRMWARE] if uefi else []), *([TPM] if tpm else [])]


def missing_kinds(model: Domain, state: Collection[str]) -> list[str]:
    """What of it a guest has, and an archive has not."""
    prefixes = {FIRMWARE: archive.VARIABLES, TPM: archive.TPM}
    return [
        kind
        for kind in expected_kinds(model)
        if not any(name.startswith(prefixes[kind]) for name in state)
    ]


def state_paths(conn: libvirt.virConnect, dom: libvirt.virDomain) -> dict[str, str]:
    """Each of it that a guest has by now to its path, also if that is not libvirt's own. What was
    never made is not there."""
    root = ElementTree.fromstring(dom.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE))
    paths = {}
    if path := files.variables_of(root):
        paths[FIRMWARE] = path
    backend = root.find("devices/tpm/backend[@type='emulator']")
    if backend is not None:
        source = backend.find("source")
        default_path = os.path.join(files.TPM_STATE, dom.UUIDString())
        paths[TPM] = default_path if source is None else source.get("path", default_path)
    return {kind: path for kind, path in paths.items() if usage.is_there(conn, path)}


def _variables(conn: libvirt.virConnect, root: ElementTree.Element) -> dict[str, bytes]:
    path = files.variables_of(root)
    if path is None:
        return {}
    if not path:
        raise _NotSaved("they are in no file of this host")
    _require_local(conn)
    folder, name = os.path.split(path)
    suffix = "qcow2" if name.endswith(".qcow2") else "fd"
    try:
        with _open_folder(folder) as fd:
            return {f"{archive.VARIABLES}{suffix}": _read_stable(name, fd)}
    except FileNotFoundError:  # the guest was never started
        return {}


def _tpm(conn: libvirt.virConnect, root: ElementTree.Element) -> dict[str, bytes]:
    backend = root.find("devices/tpm/backend[@type='emulator']")
    if backend is None:
        return {}
    if backend.find("source") is not None:
        raise _NotSaved("its state is in a place of its own")
    _require_local(conn)
    collected = dict[str, bytes]()
    try:
        with _open_folder(os.path.join(files.TPM_STATE, root.findtext("uuid") or "")) as top:
            for parent, _, names, fd in os.fwalk(dir_fd=top):
                if len(names) + len(collected) > archive.MAX_FILES + 1:  # the lock is none
                    raise _NotSaved("it has more files than any guest's")
                for name in sorted({*names} - {_LOCK}):
                    path = os.path.normpath(os.path.join(archive.TPM, parent, name))
                    collected[path] = _read_stable(name, fd)
    except FileNotFoundError:
        return {}
    return collected


def _require_local(conn: libvirt.virConnect) -> None:
    if not connection.is_local(conn):
        raise _NotSaved("libvirt is on another machine than its minion")


def _read_stable(name: str, parent: int) -> bytes:
    """A file to which a running guest may be writing: what two readings have alike."""
    before, data = None, _read(name, parent)
    for _ in range(_TRIES):
        if data == before:
            return data
        before, data = data, _read(name, parent)
    raise _NotSaved("the guest keeps writing to it: back it up while it is off")


def _read(name: str, parent: int) -> bytes:
    try:
        handle = os.open(name, _FILE, dir_fd=parent)
    except OSError as exc:
        if exc.errno == errno.ELOOP:
            raise _NotSaved(f"{name} is a link") from exc
        raise
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise _NotSaved(f"{name} is no file")
        data = file.read(archive.MAX_BYTES + 1)
    if len(data) > archive.MAX_BYTES:
        raise _NotSaved(f"{name} is larger than any guest's")
    return data


@contextlib.contextmanager
def _open_folder(path: str) -> Iterator[int]:
    """The descriptor of a folder. A link on the way is followed only if it is root's."""
    fd = os.open("/", _FOLDER)
    try:
        for part in [component for component in path.split("/") if component]:
            below = _open_child(part, fd)
            os.close(fd)
            fd = below
        yield fd
    finally:
        os.close(fd)


def _open_child(name: str, parent: int) -> int:
    status = os.stat(name, dir_fd=parent, follow_symlinks=False)
    is_link = stat.S_ISLNK(status.st_mode)
    if is_link and status.st_uid != os.geteuid():
        raise _NotSaved(f"{name} is a link that is not root's")
    return os.open(name, _FOLDER | (0 if is_link else os.O_NOFOLLOW), dir_fd=parent)


# -- put back --------------------------------------------------------------------------------------


def save_locations(dom: libvirt.virDomain, state: Iterable[str]) -> tuple[SavedState, ...]:
    """Where what is in an archive goes, and what is there now. Raises OperationFailed where libvirt
    keeps the variables elsewhere."""
    locations = []
    for name in state:
        if name.startswith(archive.VARIABLES):
            locations.append(_save_location(_variables_path(dom, name)))
    if any(name.startswith(archive.TPM) for name in state):
        locations.append(_save_location(os.path.join(files.TPM_STATE, dom.UUIDString())))
    return tuple(locations)


def misfit(dom: libvirt.virDomain, state: Iterable[str]) -> str | None:
    """Why the variables in an archive have no place here, or None: QEMU opens the file by the
    format that this libvirt has them in. Raises as ``places`` does."""
    for name in state:
        if name.startswith(archive.VARIABLES):
            path, suffix = _variables_path(dom, name), name.removeprefix(archive.VARIABLES)
            if path.endswith(".qcow2") != (suffix == "qcow2"):
                return f"the backup has them as {suffix}, and libvirt here has them in {path}"
    return None


def _variables_path(dom: libvirt.virDomain, name: str) -> str:
    root = ElementTree.fromstring(dom.XMLDesc(0))
    suffix = name.removeprefix(archive.VARIABLES)
    # an older libvirt chooses it at the first start
    path = files.variables_of(root) or files.own_variables(dom.name(), suffix)
    if not files.are_own_variables(path, dom.name()):
        raise errors.OperationFailed(f"{path} is not where libvirt keeps variables of {dom.name()}")
    return path


def _save_location(path: str) -> SavedState:
    names = (f"{path}{_BEFORE}{number or ''}" for number in itertools.count())
    saved_path = next(name for name in names if not os.path.lexists(name))
    return SavedState(path, saved_path, os.path.lexists(path))


def install(
    dom: libvirt.virDomain, state: Mapping[str, bytes], saved: Collection[SavedState]
) -> None:
    """Puts the files of an archive where libvirt has them, once what is there has another name.
    Raises OperationFailed."""
    with _os_errors(f"put back the firmware variables and the TPM state of {dom.name()}"):
        for location in saved:
            folder, name = os.path.split(location.path)
            with _make_folder(folder) as fd:
                if location.was_there:
                    os.rename(name, os.path.basename(location.kept), src_dir_fd=fd, dst_dir_fd=fd)
                if folder == files.TPM_STATE:
                    os.mkdir(name, _FOLDER_MODE, dir_fd=fd)  # swtpm gets through
                else:
                    [data] = [v for k, v in state.items() if k.startswith(archive.VARIABLES)]
                    _write(name, data, fd)
                os.fsync(fd)
        for name, data in state.items():
            if name.startswith(archive.TPM):
                below = name.removeprefix(archive.TPM)
                path = os.path.join(files.TPM_STATE, dom.UUIDString(), below)
                with _make_folder(os.path.dirname(path)) as fd:
                    _write(os.path.basename(path), data, fd)


def restore_saved(saved: Collection[SavedState]) -> None:
    """What was there before is there again. Raises OperationFailed."""
    with _os_errors("bring back the firmware variables and the TPM state"):
        for location in saved:
            folder, name = os.path.split(location.path)
            before = os.path.basename(location.kept)
            with contextlib.suppress(FileNotFoundError), _open_folder(folder) as fd:
                if not location.was_there:
                    folders.remove(name, fd)
                elif _is_there(before, fd):
                    folders.remove(name, fd)
                    os.rename(before, name, src_dir_fd=fd, dst_dir_fd=fd)
                os.fsync(fd)


def discard_saved(saved: Collection[SavedState]) -> None:
    """What was there before is kept no more. Raises OperationFailed."""
    with _os_errors("remove the former firmware variables and TPM state"):
        for location in saved:
            folder, name = os.path.split(location.kept)
            with contextlib.suppress(FileNotFoundError), _open_folder(folder) as fd:
                folders.remove(name, fd)


def _is_there(name: str, parent: int) -> bool:
    try:
        os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


@contextlib.contextmanager
def _make_folder(path: str) -> Iterator[int]:
    """The descriptor of a folder, which is made if it has to be."""
    with contextlib.ExitStack() as stack:
        try:
            fd = stack.enter_context(_open_folder(path))
        except FileNotFoundError:
            parent, name = os.path.split(path)
            above = stack.enter_context(_make_folder(parent))
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, _FOLDER_MODE, dir_fd=above)
            fd = _open_child(name, above)
            stack.callback(os.close, fd)
        yield fd


def _write(name: str, data: bytes, parent: int) -> None:
    """A new file, root's alone until libvirt hands it to QEMU or swtpm; read back."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(name, flags, 0o600, dir_fd=parent), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    if _read(name, parent) != data:
        raise OSError(errno.EIO, "what was written is not what is read", name)
    os.fsync(parent)


@contextlib.contextmanager
def _os_errors(action: str) -> Iterator[None]:
    try:
        yield
    except _NotSaved as exc:
        raise errors.OperationFailed(f"cannot {action}: {exc}") from exc
    except OSError as exc:
        location = f"{exc.filename}: " if exc.filename else ""
        raise errors.OperationFailed(f"cannot {action}: {location}{exc.strerror}") from exc
