"""Collect firmware variables and the secret state of an emulated TPM from libvirt's folders, and
install them there again.

QEMU and swtpm can write to these folders, so only symbolic links of root are followed.
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
from saltvirt.backup.export.replaced_guest import SavedState
from saltvirt.backup.model import archive, record
from saltvirt.backup.target import safe_folder as folders
from saltvirt.host import connection
from saltvirt.host.connection import libvirt
from saltvirt.host.storage import files, usage
from saltvirt.system import atomic_file
from saltvirt.xml.domain.domain import Domain

FIRMWARE, TPM = record.FIRMWARE, record.TPM
# suffix of renamed files
_BEFORE = ".before-restore"
_TRIES = 5
_PLAIN = (
    "it contains private keys, and the target would store it in plain: set a key for the target "
    "(virt:backup:targets)"
)
_LOCK = ".lock"
# mode of libvirt's folders; libvirt gives the innermost one to swtpm, with a stricter mode
_FOLDER_MODE = 0o711
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class _NotSaved(Exception):
    """Why something is not backed up."""


@dataclass(frozen=True)
class CollectedState:
    """files: of an archive. skipped: part that is not backed up to the reason."""

    files: dict[str, bytes]
    skipped: dict[str, str]


def collect(conn: libvirt.virConnect, dom: libvirt.virDomain, is_encrypted: bool) -> CollectedState:
    """Collect the present state of a guest. Files of a running guest are read until two reads are
    equal.

    is_encrypted: the state will be encrypted at the target. Otherwise skip the TPM state, which
    would allow unsealing the guest's secrets.
    """
    root = ElementTree.fromstring(dom.XMLDesc(0))
    collected, skipped = dict[str, bytes](), dict[str, str]()
    for kind, read in ((FIRMWARE, _variables), (TPM, _tpm)):
        try:
            part = read(conn, root)
            if part and kind == TPM and not is_encrypted:
                raise _NotSaved(_PLAIN)
            if sum(map(len, (*collected.values(), *part.values()))) > archive.MAX_BYTES:
                raise _NotSaved("it is too large")
            archive.pack(part)
            collected |= part
        except (_NotSaved, errors.VirtError) as exc:
            skipped[kind] = str(exc)
        except OSError as exc:
            skipped[kind] = f"it cannot be read: {exc.strerror}"
    return CollectedState(collected, skipped)


def expected_kinds(model: Domain) -> list[str]:
    """Return the kinds of state that a guest has according to its definition."""
    system = model.os
    uefi = system.firmware == "efi" or system.variables or system.nvram is not None
    tpm = any(device.backend == "emulator" for device in model.tpms)
    return [*([FIRMWARE] if uefi else []), *([TPM] if tpm else [])]


def missing_kinds(model: Domain, state: Collection[str]) -> list[str]:
    """Return the kinds of state that a guest has and an archive lacks."""
    prefixes = {FIRMWARE: archive.VARIABLES, TPM: archive.TPM}
    return [
        kind
        for kind in expected_kinds(model)
        if not any(name.startswith(prefixes[kind]) for name in state)
    ]


def state_paths(conn: libvirt.virConnect, dom: libvirt.virDomain) -> dict[str, str]:
    """Map each kind of state that exists on this host to its path, also outside of libvirt's
    folders."""
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
        raise _NotSaved("they are not in a file of this host")
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
        raise _NotSaved("its state is in a folder of its own")
    _require_local(conn)
    collected = dict[str, bytes]()
    try:
        with _open_folder(os.path.join(files.TPM_STATE, root.findtext("uuid") or "")) as top:
            for parent, _, names, fd in os.fwalk(dir_fd=top):
                if len(names) + len(collected) > archive.MAX_FILES + 1:  # and the lock
                    raise _NotSaved("it has too many files")
                for name in sorted({*names} - {_LOCK}):
                    path = os.path.normpath(os.path.join(archive.TPM, parent, name))
                    collected[path] = _read_stable(name, fd)
    except FileNotFoundError:
        return {}
    return collected


def _require_local(conn: libvirt.virConnect) -> None:
    if not connection.is_local(conn):
        raise _NotSaved("libvirt is not on the same machine as the minion")


def _read_stable(name: str, parent: int) -> bytes:
    """Read a file to which a running guest may write, until two reads are equal."""
    before, data = None, _read(name, parent)
    for _ in range(_TRIES):
        if data == before:
            return data
        before, data = data, _read(name, parent)
    raise _NotSaved("the guest keeps writing to it: back the guest up while it is off")


def _read(name: str, parent: int) -> bytes:
    try:
        handle = os.open(name, _FILE, dir_fd=parent)
    except OSError as exc:
        if exc.errno == errno.ELOOP:
            raise _NotSaved(f"{name} is a link") from exc
        raise
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise _NotSaved(f"{name} is not a file")
        data = file.read(archive.MAX_BYTES + 1)
    if len(data) > archive.MAX_BYTES:
        raise _NotSaved(f"{name} is too large")
    return data


@contextlib.contextmanager
def _open_folder(path: str) -> Iterator[int]:
    """Yield the descriptor of a folder. Links in its path are followed only if they belong to
    root."""
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
        raise _NotSaved(f"{name} is a link that does not belong to root")
    return os.open(name, _FOLDER | (0 if is_link else os.O_NOFOLLOW), dir_fd=parent)


# -- install ---------------------------------------------------------------------------------------


def save_locations(dom: libvirt.virDomain, state: Iterable[str]) -> tuple[SavedState, ...]:
    """Return where to install the files of an archive, and what exists there. Raises
    OperationFailed if libvirt keeps the variables elsewhere."""
    locations = []
    for name in state:
        if name.startswith(archive.VARIABLES):
            locations.append(_save_location(_variables_path(dom, name)))
    if any(name.startswith(archive.TPM) for name in state):
        locations.append(_save_location(os.path.join(files.TPM_STATE, dom.UUIDString())))
    return tuple(locations)


def misfit(dom: libvirt.virDomain, state: Iterable[str]) -> str | None:
    """Return why the variables of an archive cannot be used: QEMU opens the file with the format
    that this libvirt uses. None if they can. Raises what ``save_locations`` raises."""
    for name in state:
        if name.startswith(archive.VARIABLES):
            path, suffix = _variables_path(dom, name), name.removeprefix(archive.VARIABLES)
            if path.endswith(".qcow2") != (suffix == "qcow2"):
                return (
                    f"their format in the backup is {suffix}, but libvirt on this host uses {path}"
                )
    return None


def _variables_path(dom: libvirt.virDomain, name: str) -> str:
    root = ElementTree.fromstring(dom.XMLDesc(0))
    suffix = name.removeprefix(archive.VARIABLES)
    # older versions of libvirt choose the path at the first start
    path = files.variables_of(root) or files.own_variables(dom.name(), suffix)
    if not files.are_own_variables(path, dom.name()):
        raise errors.OperationFailed(
            f"{path} is not libvirt's path for the variables of {dom.name()}"
        )
    return path


def _save_location(path: str) -> SavedState:
    names = (f"{path}{_BEFORE}{number or ''}" for number in itertools.count())
    saved_path = next(name for name in names if not os.path.lexists(name))
    return SavedState(path, saved_path, os.path.lexists(path))


def install(
    dom: libvirt.virDomain, state: Mapping[str, bytes], saved: Collection[SavedState]
) -> None:
    """Rename existing files, then install the files of an archive. Raises OperationFailed."""
    with _os_errors(f"install the firmware variables and the TPM state of {dom.name()}"):
        for location in saved:
            folder, name = os.path.split(location.path)
            with _make_folder(folder) as fd:
                if location.was_there:
                    saved_name = os.path.basename(location.saved_path)
                    atomic_file.rename(name, saved_name, durable=False, dir_fd=fd)
                if folder == files.TPM_STATE:
                    os.mkdir(name, _FOLDER_MODE, dir_fd=fd)  # swtpm has to enter it
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
    """Remove the installed files and restore the saved ones. Raises OperationFailed."""
    with _os_errors("restore the firmware variables and the TPM state"):
        for location in saved:
            folder, name = os.path.split(location.path)
            before = os.path.basename(location.saved_path)
            with contextlib.suppress(FileNotFoundError), _open_folder(folder) as fd:
                if not location.was_there:
                    folders.remove(name, fd)
                elif _is_there(before, fd):
                    folders.remove(name, fd)
                    atomic_file.rename(before, name, durable=False, dir_fd=fd)
                os.fsync(fd)


def discard_saved(saved: Collection[SavedState]) -> None:
    """Remove the saved files. Raises OperationFailed."""
    with _os_errors("remove the previous firmware variables and TPM state"):
        for location in saved:
            folder, name = os.path.split(location.saved_path)
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
    """Yield the descriptor of a folder; create it if necessary."""
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
    """Create a file, accessible for root only until libvirt passes it to QEMU or swtpm, and read it
    back."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(name, flags, 0o600, dir_fd=parent), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    if _read(name, parent) != data:
        raise OSError(errno.EIO, "the file differs from what was written", name)
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
