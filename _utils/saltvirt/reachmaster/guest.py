"""Commands and files by a guest's agent, from the master: one caller's line to its hypervisor, and
no job but the one that opens it."""

from __future__ import annotations

import base64
import contextlib
import os
import stat
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from saltvirt import errors, guesttalk, newfile, units
from saltvirt.answers import reach
from saltvirt.fleet import asker
from saltvirt.fleet.client import Fleet
from saltvirt.guestagent import asked as asking
from saltvirt.guestagent import words
from saltvirt.guestagent.asked import Command, Ended, Get, Put
from saltvirt.guesttalk import Line
from saltvirt.operations import result
from saltvirt.operations.report import Report
from saltvirt.reachmaster import way

STDIN = "-"


@contextlib.contextmanager
def line(fleet: Fleet, name: str) -> Iterator[tuple[str, Line]]:
    """(its host, a line to the guest's agent). Raises NotFound, Refused, Unsupported, and as
    Fleet.one does."""
    found = way.opened(fleet, name, reach.AGENT)
    with way.connected(found) as connected:
        try:
            yield found.host, Line(connected)
        except errors.ConnectionFailed as exc:
            raise errors.ConnectionFailed(f"{name} on {found.host}: {exc.text}") from exc


def read_input(stdin: object) -> bytes:
    """What a command is to read. stdin: the path of a file of this machine, or ``-``: this
    process' own. Raises InvalidInput."""
    if stdin is None:
        return b""
    most = words.MOST_INPUT_BYTES
    try:
        if stdin == STDIN:
            found = sys.stdin.buffer.read(most + 1)
        else:
            with newfile.there(str(stdin)) as file:
                found = file.read(most + 1)
    except OSError as exc:
        raise errors.InvalidInput(
            f"stdin={units.shown(stdin)} cannot be read: {exc.strerror}"
        ) from exc
    if len(found) > most:
        raise errors.InvalidInput(
            f"stdin={units.shown(stdin)} has more than {most // 1024} KiB: bring it by virt.put"
        )
    return found


@dataclass(frozen=True)
class Asked:
    """A command for a guest. is_raw: its output is returned in base64, as it is."""

    command: Command
    stdin: bytes = b""
    is_raw: bool = False


def run(fleet: Fleet, name: str, asked: Asked) -> dict[str, Any]:
    """Raises InvalidInput, and as line does, and what the agent says."""
    command = asked.command
    asking.checked(command, asked.stdin)
    with line(fleet, name) as (host, talk):
        told, data = talk.ask(
            "exec", command, asked.stdin, command.timeout_s + guesttalk.PATIENCE_S
        )
        ended = Ended.from_answer(told, host)
    return answer(name, host, asked, ended, data)


def answer(name: str, host: str, asked: Asked, ended: Ended, data: bytes) -> dict[str, Any]:
    """What the runner returns of it."""
    written = (data[: ended.stdout_bytes], data[ended.stdout_bytes :])
    stdout, stderr = (
        base64.b64encode(one).decode() if asked.is_raw else asking.shown(one) for one in written
    )
    good, comment = asking.said(f"{name} on {host}", asked.command, ended)
    told = {
        "result": good, "comment": comment, "host": host, "pid": ended.pid,
        "exit_code": ended.exit_code, "signal": ended.signal, "stdout": stdout, "stderr": stderr,
        "truncated": ended.is_cut,
    }  # fmt: skip
    return {name: told} if good else {name: told, "retcode": 1}


def only_here(opts: dict[str, Any]) -> None:
    """Raises Denied where somebody asks, for what reads or writes files of this master, who has not
    this master."""
    if asker.of(opts) is not None:
        raise errors.Denied("it is about files of the master: for those alone who have the master")


@dataclass(frozen=True)
class Copy:
    """local: the path of a file of this machine, remote: in the guest."""

    local: str
    remote: str
    overwrite: bool = False


def put(
    fleet: Fleet, name: str, copy: Copy, mode: int | None, atomic: bool, report: Report
) -> dict[str, Any]:
    """Raises InvalidInput, AlreadyExists, and as line does, and what the agent says."""
    with newfile.there(copy.local) as file:
        status = os.fstat(file.fileno())
        wanted = stat.S_IMODE(status.st_mode) & 0o777 if mode is None and atomic else mode
        asked = Put(copy.remote, wanted, copy.overwrite, atomic)
        with line(fleet, name) as (host, talk):
            talk.ask("put", asked)
            done = 0
            while data := file.read(words.PIECE_BYTES):
                talk.ask("piece", data=data)
                done += len(data)
                _progress(report, f"{name}: {copy.remote}", done, status.st_size)
            talk.ask("end")
    comment = f"{copy.local} is {copy.remote} of {name} on {host}, {units.human_bytes(done)}"
    changes = {"path": copy.remote}
    return result.done(name, comment, changes, host=host, size_bytes=done)


def get(fleet: Fleet, name: str, copy: Copy, most_bytes: int, report: Report) -> dict[str, Any]:
    """Raises InvalidInput, AlreadyExists, and as line does, and what the agent says."""
    with newfile.new(copy.local, copy.overwrite) as write, line(fleet, name) as (host, talk):
        talk.ask("get", Get(copy.remote))

        def tell(done: int) -> None:
            _progress(report, f"{name}: {copy.local}", done, None)

        done = asking.copied(lambda: talk.ask("piece")[1], write, most_bytes, copy.remote, tell)
    comment = f"{copy.remote} of {name} on {host} is {copy.local}, {units.human_bytes(done)}"
    return result.done(name, comment, {"path": copy.local}, host=host, size_bytes=done)


def _progress(report: Report, what: str, done: int, whole: int | None) -> None:
    if done > words.PIECE_BYTES:
        percent = min(100, 100 * done / whole) if whole else 0
        report.progress(percent, f"{what}: {units.human_bytes(done)}")
