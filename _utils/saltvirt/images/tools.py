"""Runs qemu-img, guestfish and their like."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import shutil
import signal
import subprocess
import time
from typing import IO, TYPE_CHECKING

from saltvirt import errors

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

_MAX_TAIL = 300
# of what a tool says: it repeats what stands in an image, and an image may hold any number of names
MAX_OUTPUT_BYTES = 16 * 1024**2
_PIPE = 4096  # so much can be written at once without waiting, where any can
# for what reads or writes little; who copies disks says how long that may take
TIMEOUT_S = 600


def command(argv: Sequence[str]) -> list[str]:
    """The argv as it is run: the tool dies with us where util-linux can see to that.

    A minion that is killed in the middle must not leave a qemu-img behind that goes on
    writing to a file which the next attempt makes anew.
    """
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "KILL", "--", *argv] if setpriv else list(argv)


def escaped(value: str) -> str:
    """As the value of one of several options that QEMU's tools take in one word: a comma would end
    it."""
    return value.replace(",", ",,")


def environment() -> dict[str, str]:
    """Our environment with messages in English, which we read.

    A tool such as systemd-nspawn would tell systemd, by the socket that the minion's service was
    given, that it is stopping; and systemd would believe that the minion is.
    """
    variables = {**os.environ, "LC_ALL": "C"}
    variables.pop("NOTIFY_SOCKET", None)
    return variables


def pipe(stream: IO[bytes] | None) -> IO[bytes]:
    """Our end of a process' pipe, for a process that was begun with it."""
    if stream is None:
        raise ValueError("the process has no such pipe")
    return stream


def send_json(process: subprocess.Popen[bytes], data: object) -> None:
    """Writes one document of JSON to a process, and that is all that it is told. One that dies
    before it has read it says no more."""
    with contextlib.suppress(BrokenPipeError), pipe(process.stdin) as stdin:
        stdin.write(json.dumps(data).encode())


def last_output(text: bytes | str) -> str:
    """The end of what a tool said, on one line."""
    if isinstance(text, bytes):
        text = text.decode("utf-8", "replace")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return " / ".join(lines[-3:])[-_MAX_TAIL:] or "it said nothing"


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
    """What the tool printed, as bytes.

    argv: list of strings. action: words for the error, e.g. ``clone /a to /b``. stdin: bytes.
    ok_codes: the exit codes that are no failure. user: (uid, gid) of who runs it; None: we.
    name: of the tool, where argv begins with another. transient_error: raised in the place of
    ``error``
    where the tool was killed or took too long, which says nothing of what it looked at.
    Raises ``error`` with the tool's last words when it fails or takes longer than
    ``timeout_s`` seconds (None: however long), and Unsupported when it is not installed.
    """
    if shutil.which(argv[0]) is None:
        raise missing(argv[0])
    label = name or argv[0]
    with subprocess.Popen(
        command(argv),
        stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
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
                f"cannot {action}: {label} said more than {MAX_OUTPUT_BYTES} bytes"
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
    """What a process prints and complains of, as bytes. Raises TimeoutError, BufferError."""
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
    """The seconds that are left; None for any number. Raises TimeoutError."""
    if end is None:
        return None
    remaining_s = end - time.monotonic()
    if remaining_s <= 0:
        raise TimeoutError
    return remaining_s


def _write_some(stream: IO[bytes], text: memoryview) -> memoryview:
    """Writes a piece to a process; what is left of the text: nothing where nobody listens."""
    with contextlib.suppress(BrokenPipeError):
        return text[os.write(stream.fileno(), text[:_PIPE]) :]
    return text[:0]
