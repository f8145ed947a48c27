"""Run qemu-img, guestfish and similar tools."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import shutil
import signal
import subprocess
import time
from typing import IO, TYPE_CHECKING, Any

from saltvirt import errors

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

_MAX_TAIL = 300
# limit of a tool's output: it includes names from an image, which may contain any number of them
MAX_OUTPUT_BYTES = 16 * 1024**2
_PIPE = 4096  # so much can be written at once without waiting, where any can
# for tools that read or write little; callers that copy disks pass their own timeout
TIMEOUT_S = 600


def command(argv: Sequence[str]) -> list[str]:
    """The argv with which a tool is run so that it dies with this process, if util-linux supports
    it.

    If a minion is killed, no qemu-img may keep writing to a file that the next attempt creates
    again.
    """
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "KILL", "--", *argv] if setpriv else list(argv)


def escaped(value: str) -> str:
    """The text as a value in an option list of QEMU's tools, in which a comma ends a value."""
    return value.replace(",", ",,")


def environment() -> dict[str, str]:
    """This process' environment, with messages in English, which are parsed.

    NOTIFY_SOCKET is removed: a tool such as systemd-nspawn would tell systemd that the minion's
    service is stopping.
    """
    variables = {**os.environ, "LC_ALL": "C"}
    variables.pop("NOTIFY_SOCKET", None)
    return variables


def start(argv: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
    """Start a tool that ends with this process. options: of ``subprocess.Popen``; by default the
    tool has no input."""
    options = {"stdin": subprocess.DEVNULL, "env": environment(), **options}
    return subprocess.Popen(command(argv), **options)


def start_session(argv: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
    """Start a process in a session of its own, which outlives this process' session and can be
    killed with its children. options: of ``subprocess.Popen``."""
    return subprocess.Popen(argv, start_new_session=True, **options)


def pipe(stream: IO[bytes] | None) -> IO[bytes]:
    """This process' end of a pipe to a process that was started with it."""
    if stream is None:
        raise ValueError("the process has no such pipe")
    return stream


def send_json(process: subprocess.Popen[bytes], data: object) -> None:
    """Write one JSON document to a process and close its input. Ignores a process that dies before
    it has read it."""
    with contextlib.suppress(BrokenPipeError), pipe(process.stdin) as stdin:
        stdin.write(json.dumps(data).encode())


def last_output(text: bytes | str) -> str:
    """The end of a tool's output, on one line."""
    if isinstance(text, bytes):
        text = text.decode("utf-8", "replace")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return " / ".join(lines[-3:])[-_MAX_TAIL:] or "no output"


def missing(name: str) -> errors.Unsupported:
    """The error for a tool that is not installed."""
    return errors.Unsupported(f"{name} is not installed on this host")


def run(
    argv: Sequence[str],
    action: str,
    error: type[errors.VirtError] = errors.OperationFailed,
    *,
    stdin: bytes | None = None,
    timeout_s: float | None = TIMEOUT_S,
    ok_codes: Container[int] = (0,),
    user: tuple[int, int] | None = None,
    name: str | None = None,
    transient_error: type[errors.VirtError] | None = None,
) -> bytes:
    """Run a tool, and return its output as bytes.

    argv: list of strings. action: for the error, e.g. ``clone /a to /b``. stdin: bytes. ok_codes:
    exit codes of success. user: (uid, gid) to run as; None: this process'. name: of the tool, if
    argv begins with another one. transient_error: raised instead of ``error`` if the tool was
    killed or timed out, which says nothing about the file.

    Raises ``error`` with the tool's last output if it fails or takes longer than ``timeout_s``
    seconds (None: no limit), and Unsupported if it is not installed.
    """
    if shutil.which(argv[0]) is None:
        raise missing(argv[0])
    label = name or argv[0]
    with start(
        argv,
        stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        user=user[0] if user else None,
        group=user[1] if user else None,
        extra_groups=[] if user else None,
    ) as process:
        try:
            out, stderr = _talk(process, stdin, timeout_s)
        except TimeoutError:
            timeout_message = f"cannot {action}: {label} took longer than {timeout_s} s"
            raise (transient_error or error)(timeout_message) from None
        except BufferError:
            raise error(
                f"cannot {action}: {label} printed more than {MAX_OUTPUT_BYTES} bytes"
            ) from None
        finally:
            if process.poll() is None:
                process.kill()
    if transient_error and process.returncode == -signal.SIGKILL:
        raise transient_error(f"cannot {action}: {label} was killed")
    if process.returncode not in ok_codes:
        raise error(f"cannot {action}: {last_output(stderr or out)}")
    return out


def _talk(
    process: subprocess.Popen[bytes], stdin: bytes | None, timeout_s: float | None
) -> tuple[bytes, bytes]:
    """The output and error output of a process as bytes. Raises TimeoutError, BufferError."""
    end = time.monotonic() + timeout_s if timeout_s is not None else None
    out, stderr = bytearray(), bytearray()
    with selectors.DefaultSelector() as waiting:
        for stream, text in ((process.stdout, out), (process.stderr, stderr)):
            waiting.register(pipe(stream), selectors.EVENT_READ, (stream, text))
        if stdin is not None:
            stream = pipe(process.stdin)
            waiting.register(stream, selectors.EVENT_WRITE, (stream, None))
        unwritten = memoryview(stdin or b"")
        while waiting.get_map():
            for key, _ in waiting.select(_remaining_s(end)):
                stream, text = key.data
                if text is None:
                    unwritten = _write_some(stream, unwritten)
                    done = not unwritten
                else:
                    block = os.read(key.fd, 65536)
                    text += block
                    done = not block
                if done:
                    waiting.unregister(stream)
                    stream.close()
            if max(len(out), len(stderr)) > MAX_OUTPUT_BYTES:
                raise BufferError
            _remaining_s(end)
    try:
        process.wait(_remaining_s(end))
    except subprocess.TimeoutExpired:
        raise TimeoutError from None
    return bytes(out), bytes(stderr)


def _remaining_s(end: float | None) -> float | None:
    """The remaining seconds; None without a limit. Raises TimeoutError."""
    if end is None:
        return None
    remaining_s = end - time.monotonic()
    if remaining_s <= 0:
        raise TimeoutError
    return remaining_s


def _write_some(stream: IO[bytes], text: memoryview) -> memoryview:
    """Write a chunk to a process, and return the rest of the text; empty if the process has closed
    its input."""
    with contextlib.suppress(BrokenPipeError):
        return text[os.write(stream.fileno(), text[:_PIPE]) :]
    return text[:0]
