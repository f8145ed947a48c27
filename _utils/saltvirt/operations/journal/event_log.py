"""The events that hypervisors have reported: for each host two files of limited size."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import time
from dataclasses import dataclass
from pathlib import Path

from saltvirt import errors
from saltvirt.operations.journal import activity_log
from saltvirt.operations.journal.activity_log import LogEntry
from saltvirt.schema import Message, optional
from saltvirt.system import atomic_file, file_lock

# the maximum size of each of the two files of a host
MAX_BYTES = 256 << 10
# verb of the entries, and their users: what libvirt reports, and what this master has noticed
EVENT, LIBVIRT, MASTER = "event", "libvirt", "virt_log"
_STATE = ".state"
# without any report for so long, the engine of this master does not run
_STALE_S = 1800
# how many former sessions of a host are known
_SESSIONS = 8

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ReportState(Message):
    """What is known of a host's reports. session, number, sent_s: of the last report, its last
    event, and its time. interval_s: as it announces. is_silent: it has stopped to report. former:
    other recent sessions to their last events."""

    host: str
    session: str = optional("")
    number: int = optional(0)
    sent_s: float = optional(0)
    interval_s: float = optional(60)
    is_silent: bool = optional(False)
    former: dict[str, int] = optional({})

    def last_number(self, session: str) -> int:
        """Return the number of the last event of a session; 0 for a new session."""
        return self.number if session == self.session else self.former.get(session, 0)

    def sessions_before(self, session: str) -> dict[str, int]:
        """Return the recent sessions other than this one, to their last events."""
        numbers = {**self.former, self.session: self.number}
        pairs = [(name, number) for name, number in numbers.items() if name not in ("", session)]
        return dict(pairs[-_SESSIONS:])


def _folder(opts: file_lock.Opts) -> Path:
    return Path(opts["cachedir"]) / "virt" / "events"


def _name(host: str) -> str:
    return hashlib.sha256(host.encode(errors="replace")).hexdigest()


def store(opts: file_lock.Opts, state: ReportState, entries: list[LogEntry]) -> None:
    """Append entries of a host, and replace its state. A failure is only logged."""
    folder, name = _folder(opts), _name(state.host)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if entries:
            activity_log.append_to(folder, name, entries, MAX_BYTES)
        data = json.dumps(state.to_answer()).encode()
        path = folder / f"{name}{_STATE}"
        atomic_file.write(path, data, durable=False, part=atomic_file.unique_part(path))
    except (OSError, errors.VirtError) as exc:
        log.warning("events of %s were not recorded: %s", state.host, exc)


def states(opts: file_lock.Opts) -> dict[str, ReportState]:
    """Return the states of the hosts that have reported."""
    host_states = {}
    for path in _folder(opts).glob(f"*{_STATE}"):
        with contextlib.suppress(OSError, ValueError, RecursionError, errors.BadAnswer):
            state = ReportState.from_answer(json.loads(path.read_text("utf-8")), str(path))
            host_states[state.host] = state
    return host_states


def read(opts: file_lock.Opts, pattern: str | None = None) -> list[LogEntry]:
    """Return the entries of all hosts, those of each host by age. pattern: of the guest, or the
    host of an entry without a guest."""
    paths = sorted(_folder(opts).glob("*"), key=lambda path: (path.stem, path.suffix != ".1"))
    return [
        entry
        for path in paths
        if path.suffix in ("", ".1") and not path.name.startswith(".")
        for entry in activity_log.parse(path)
        if pattern is None or entry.is_about(pattern)
    ]


def notice(opts: file_lock.Opts) -> str:
    """Return why the log has no present events; empty if hosts report them."""
    times_s = []
    for path in _folder(opts).glob(f"*{_STATE}"):
        with contextlib.suppress(OSError):
            times_s.append(os.stat(path).st_mtime)
    if not times_s:
        return (
            "events of libvirt are not recorded: add the engine virt_log to this master and to "
            "the hypervisors"
        )
    if max(times_s) < time.time() - _STALE_S:
        last = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(max(times_s)))
        return f"no host has reported events since {last}: does the engine virt_log run here?"
    return ""
