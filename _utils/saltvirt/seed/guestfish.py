"""Access a guest's files through libguestfs: a small virtual machine reads the foreign file system,
never this host.

guestfish is a child process that reads commands from a pipe. If this process dies, the pipe closes
and guestfish ends with its appliance.
"""

from __future__ import annotations

import contextlib
import glob
import logging
import os
import secrets
import select
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from saltvirt import errors
from saltvirt.seed.tree import MAX_FILE_BYTES, SCRIPT_TIMEOUT_S, FreeSpace
from saltvirt.system import paths, private_folder, tools

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

log = logging.getLogger(__name__)

_LARGEST_INLINE = 32 * 1024
_MAX_OUTPUT_BYTES = 4 * MAX_FILE_BYTES  # of what one command says, a list of files, too
_MAX_ARGUMENT_BYTES = 64 * 1024
_PLAIN = {"ext2", "ext3", "ext4", "xfs"}
_NO_ROOT = {"", "vfat", "swap", "unknown"}
_MAX_PARTITIONS = 64  # the appliance takes seconds for each where it runs without KVM
_MAX_MOUNTS = 32  # of what the guest's fstab names
_ERROR = "libguestfs: error: "
# timeouts of a command, including the start of the appliance without KVM, and of the end
_COMMAND_S, _END_S = 600, 60
# With KVM the appliance starts in seconds, or in a minute when libguestfs builds it. On some hosts,
# mostly virtual machines, /dev/kvm exists but nothing boots with it; that is tried once a day.
_KVM_S, _KVM_AGAIN_S = 120, 24 * 3600
_NO_KVM = f"{paths.RUN}/appliance-without-kvm"


def available() -> bool:
    """Whether guestfish is installed."""
    return shutil.which("guestfish") is not None


def quote(text: str) -> str:
    """A string in guestfish's syntax."""
    escapes = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}
    out = "".join(
        escapes.get(char) or (char if ord(char) >= 32 else f"\\x{ord(char):02x}") for char in text
    )
    return f'"{out}"'


@dataclass(frozen=True)
class Added:
    """A disk of the appliance. read_only: writes go to a temporary file of libguestfs. socket: of
    an NBD server; path is then the name of its export."""

    path: str
    format: str
    read_only: bool = False
    socket: str | None = None


class Session:
    """A running guestfish. Use it as a context manager, which ends it.

    scratch: a folder, accessible by root only, for temporary files of libguestfs; None: its
    default.
    """

    def __init__(self, software_only: bool = False, scratch: str | None = None) -> None:
        env = {**tools.environment(), "LIBGUESTFS_BACKEND": "direct"}
        if scratch:
            env["LIBGUESTFS_TMPDIR"] = scratch
        env.pop("LIBGUESTFS_TRACE", None)
        if software_only:
            env["LIBGUESTFS_BACKEND_SETTINGS"] = "force_tcg"
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed by __exit__
        self._error_offset = 0
        self._process = tools.start_session(
            ["guestfish"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors,
            env=env,
        )  # fmt: skip

    def __enter__(self) -> Session:
        return self

    def __exit__(self, kind: type[BaseException] | None, *exc_info: object) -> None:
        if kind and not issubclass(kind, Exception):  # interrupted: do not wait for a command
            self._kill()
        with contextlib.suppress(OSError):
            tools.pipe(self._process.stdin).close()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._kill()
        tools.pipe(self._process.stdout).close()
        self._errors.close()

    def _kill(self) -> None:
        """End guestfish and its appliance: QEMU locks the disks until it has ended."""
        if self._process.poll() is not None:  # its number may be another's by now
            return
        group = self._process.pid
        os.killpg(group, signal.SIGKILL)
        self._process.wait()
        end = time.monotonic() + _END_S
        while _has_living(group) and time.monotonic() < end:
            time.sleep(0.05)

    def _new_errors(self) -> str:
        size = os.fstat(self._errors.fileno()).st_size
        length = min(size - self._error_offset, _MAX_ARGUMENT_BYTES)
        output = os.pread(self._errors.fileno(), length, size - length)
        self._error_offset = size
        return output.decode("utf-8", "replace")

    def _read_until(
        self,
        mark: bytes,
        command: str,
        timeout_s: float,
        on_data: Callable[[bytes], object] | None,
    ) -> bytes:
        """The output before the mark. The session ends after a timeout or too much output.

        on_data: receives the output instead; timeout_s is then the time between two chunks.
        """
        out, end = b"", time.monotonic() + timeout_s
        stream = tools.pipe(self._process.stdout).fileno()
        while not out.endswith(mark):
            remaining_s = end - time.monotonic()
            if remaining_s <= 0 or not select.select([stream], [], [], remaining_s)[0]:
                self._kill()
                raise errors.SeedFailed(
                    f"guestfish did not respond within {timeout_s} s: {command}"
                )
            block = os.read(stream, 65536)
            if not block:
                raise errors.SeedFailed(f"guestfish ended: {tools.last_output(self._new_errors())}")
            out += block
            if on_data:
                on_data(out[: -len(mark)])
                out, end = out[-len(mark) :], time.monotonic() + timeout_s
            elif len(out) > _MAX_OUTPUT_BYTES:
                self._kill()
                raise errors.SeedFailed(
                    f"guestfish: {command} printed more than {_MAX_OUTPUT_BYTES} bytes"
                )
        return out[: -len(mark)]

    def save(self, take: Callable[[bytes], object], command: str, *arguments: object) -> None:
        """Pass the output of a command to ``take`` in chunks, without a limit. The session ends if
        ``take`` raises an error. Raises the errors of run."""
        try:
            self._execute(command, arguments, _COMMAND_S, take)
        except BaseException:
            self._kill()
            raise

    def run(self, command: str, *arguments: object, timeout_s: float | None = None) -> bytes:
        """The output of a command as bytes. Raises SeedFailed with guestfish's error, or after
        ``timeout_s``."""
        return self._execute(command, arguments, timeout_s or _COMMAND_S)

    def _execute(
        self,
        command: str,
        arguments: Sequence[object],
        timeout_s: float,
        take: Callable[[bytes], object] | None = None,
    ) -> bytes:
        mark = secrets.token_hex(12)
        line = " ".join([f"-{command}", *(quote(str(argument)) for argument in arguments)])
        try:
            stdin = tools.pipe(self._process.stdin)
            stdin.write(f"{line}\necho {mark}\n".encode("utf-8", "surrogateescape"))
            stdin.flush()
        except OSError:
            error_text = tools.last_output(self._new_errors())
            raise errors.SeedFailed(f"guestfish ended: {error_text}") from None
        out = self._read_until(f"{mark}\n".encode(), command, timeout_s, take)
        output = self._new_errors()
        reasons = [line.split(_ERROR, 1)[1] for line in output.splitlines() if _ERROR in line]
        if reasons or "unknown command" in output:
            raise errors.SeedFailed(f"libguestfs: {' / '.join(reasons[:2]) or output.strip()}")
        return out

    def text(self, command: str, *arguments: object) -> str:
        return self.run(command, *arguments).decode("utf-8", "replace").strip()


def _has_living(group: int) -> bool:
    """Whether a process of this group runs, not counting zombies."""
    for path in glob.glob("/proc/[0-9]*/stat"):
        with contextlib.suppress(OSError), open(path, encoding="utf-8", errors="replace") as file:
            state, _parent, its_group = file.read().rpartition(")")[2].split()[:3]
            if its_group == str(group) and state not in "ZX":
                return True
    return False


class GuestfishTree:
    """The guest's files. Paths are the guest's; links are followed inside the guest only."""

    def __init__(self, session: Session) -> None:
        self._run = session.run
        self._text = session.text

    def exists(self, path: str) -> bool:
        return self._text("exists", path) == "true"

    def is_dir(self, path: str) -> bool:
        return self._text("is-dir", path, "followsymlinks:true") == "true"

    def is_file(self, path: str) -> bool:
        """Whether it is a regular file, not a link."""
        return self._text("is-file", path) == "true"

    def names(self, path: str) -> list[str]:
        return self._text("ls", path).splitlines() if self.is_dir(path) else []

    def read(self, path: str) -> bytes:
        if self._text("is-file", path, "followsymlinks:true") != "true":
            raise errors.SeedFailed(f"{path} in the guest is not a regular file")
        if int(self._text("filesize", path)) > MAX_FILE_BYTES:
            raise errors.SeedFailed(f"{path} in the guest is larger than {MAX_FILE_BYTES} bytes")
        return self._run("download", path, "-")  # cat would end it with a new line

    def make_dir(self, path: str, mode: int) -> None:
        if not self.is_dir(path):
            self._run("mkdir-p", path)
        self._run("chmod", f"0{mode:o}", path)

    def write(self, path: str, content: bytes, mode: int) -> None:
        folder = os.path.dirname(path)
        if not self.is_dir(folder):
            self._run("mkdir-p", folder)
        if self._text("is-file", path, "followsymlinks:true") != "true":
            self._run("rm-f", path)  # a FIFO would be waited for, a device written to
        if len(content) > _LARGEST_INLINE or b"\0" in content:
            with tempfile.NamedTemporaryFile(prefix="salt-virt-") as file:
                file.write(content)
                file.flush()
                self._run("upload", file.name, path)
        else:
            self._run("write", path, content.decode("utf-8", "surrogateescape"))
        self._run("chown", 0, 0, path)
        self._run("chmod", f"0{mode:o}", path)

    def remove(self, path: str) -> None:
        self._run("rm-f", path)

    def link(self, target: str, path: str) -> None:
        self._run("ln-sf", target, path)

    def free_space(self) -> FreeSpace:
        """The FreeSpace of the guest's file system."""
        lines = (line.partition(": ") for line in self._text("statvfs", "/").splitlines())
        values = {name: int(number) for name, _, number in lines}
        free = values["ffree"] if values["files"] else None
        return FreeSpace(
            bool(values["flag"] & os.ST_RDONLY), values["bfree"] * values["frsize"], free
        )

    @staticmethod
    def prove_scripts() -> None:
        """Do nothing: the appliance can run scripts."""

    def run_script(self, script: str, args: str) -> None:
        """Run a shell script inside the guest's system, in the appliance."""
        path = f"/tmp/salt-virt-{secrets.token_hex(8)}.sh"
        self.write(path, script.encode(), 0o700)
        try:
            line = f"exec /bin/sh {shlex.quote(path)} {args} >/dev/null"
            self._run("sh", line, timeout_s=SCRIPT_TIMEOUT_S)
        finally:
            self.remove(path)


def _kinds(session: Session) -> dict[str, str]:
    """The type of each partition, or of each disk without partitions, as named by libblkid."""
    devices = session.text("list-partitions").split() or session.text("list-devices").split()
    if len(devices) > _MAX_PARTITIONS:
        raise errors.SeedFailed(
            f"the disk has {len(devices)} partitions, more than {_MAX_PARTITIONS}"
        )
    return {device: session.text("vfs-type", device) for device in devices}


def _root_of_plain(kinds: dict[str, str]) -> str | None:
    """The only partition that can contain a system, if the disk is that simple."""
    plain = [device for device, kind in kinds.items() if kind in _PLAIN]
    return plain[0] if len(plain) == 1 and not _special(kinds) else None


def _special(kinds: dict[str, str]) -> list[str]:
    return sorted(set(kinds.values()) - _PLAIN - _NO_ROOT)


def _mount_inspected(session: Session) -> bool:
    """Let libguestfs find and mount the system, with several partitions, LVM or subvolumes. False
    if there is none."""
    roots = session.text("inspect-os").split()
    if not roots:
        return _mount_any(session)
    if len(roots) > 1:
        raise errors.SeedFailed(f"the disk has {len(roots)} operating systems")
    mounts = {}
    for line in session.text("inspect-get-mountpoints", roots[0]).splitlines():
        point, _, device = line.partition(":")
        mounts[point.strip()] = device.strip()
    for point in sorted(mounts, key=len)[:_MAX_MOUNTS]:
        try:
            session.run("mount", mounts[point], point)
        except errors.SeedFailed:
            if point == "/":
                raise
    return True


def _mount_any(session: Session) -> bool:
    """Mount a system that libguestfs does not recognize but that looks like one."""
    for line in session.text("list-filesystems").splitlines():
        device, _, kind = line.partition(": ")
        if kind.strip() in _NO_ROOT:
            continue
        with contextlib.suppress(errors.SeedFailed):
            session.run("mount", device, "/")
            if all(session.text("is-dir", path) == "true" for path in ("/etc", "/usr")):
                return True
            session.run("umount-all")
    return False


def _mount(session: Session) -> None:
    kinds = _kinds(session)
    plain = _root_of_plain(kinds)
    if plain:
        session.run("mount", plain, "/")
        if session.text("is-dir", "/etc") == "true":
            return
        session.run("umount-all")
    if not _mount_inspected(session):
        contents = f" (there is {'; there is '.join(_special(kinds))})" if _special(kinds) else ""
        raise errors.SeedFailed(
            f"no file system of the disk contains an operating system{contents}"
        )


@contextlib.contextmanager
def launch(
    disks: Sequence[Added], network: bool = False, scratch: str | None = None
) -> Iterator[Session]:
    """A session with a running appliance, without KVM if the host's KVM is unusable. Raises
    SeedFailed."""
    failed: errors.SeedFailed | None = None
    for software_only in _software_modes():
        with Session(software_only, scratch) as session:
            for disk in disks:
                options = ["readonly:true"] if disk.read_only else []
                if disk.socket:
                    options += ["protocol:nbd", f"server:unix:{disk.socket}"]
                session.run("add", disk.path, f"format:{disk.format}", *options)
            if network:
                session.run("set-network", "true")
            try:
                session.run("run", timeout_s=_COMMAND_S if software_only else _KVM_S)
            except errors.SeedFailed as exc:
                if software_only:
                    raise
                failed = exc
            else:
                if software_only and failed:
                    _remember(failed)
                yield session
                return


def _software_modes() -> tuple[bool, ...]:
    """The modes to try: without KVM only, or with KVM first."""
    if not os.path.exists("/dev/kvm"):
        return (True,)
    try:
        age_s = time.time() - os.stat(_NO_KVM).st_mtime
    except OSError:
        return (False, True)
    return (True,) if 0 <= age_s < _KVM_AGAIN_S else (False, True)


def _remember(failed: errors.SeedFailed) -> None:
    """Record that the appliance starts without KVM but not with KVM."""
    log.warning("libguestfs does not use this host's KVM for a day, because with KVM: %s", failed)
    with contextlib.suppress(OSError, errors.OperationFailed):  # then it is tried each time
        private_folder.ensure(paths.RUN)
        with open(_NO_KVM, "w", encoding="utf-8") as file:
            file.write(f"{failed}\n")


@contextlib.contextmanager
def open_tree(path: str, format: str, network: bool = False) -> Iterator[GuestfishTree]:
    """The GuestfishTree of the system on a disk image, for the block; its changes are written when
    the block ends.

    path: absolute path of an image that no guest uses. format: its declared format. Raises
    SeedFailed.
    """
    with launch([Added(path, format)], network) as session:
        _mount(session)
        yield GuestfishTree(session)
        session.run("umount-all")
        session.run("shutdown")
