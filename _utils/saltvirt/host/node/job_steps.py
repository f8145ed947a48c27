"""The last step of each job on this host, for a master that asks for its progress.

Each process, and so each job, has one file, which is removed with the job. Events are faster, but
Salt does not authenticate their sender, whereas answers to the master are signed.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from saltvirt import settings
from saltvirt.host.domain import guest_lock
from saltvirt.system import atomic_file, private_folder

# maximum delay of the events of a job that creates many guests
BATCH_DELAY_S = 0.5

Send = Callable[[str, dict[str, Any]], Any]
SendAll = Callable[[list[tuple[str, dict[str, Any]]]], Any]


class _EventBatch:
    """Collects events to send them in one message, since each message costs more than most
    steps."""

    def __init__(self, send_all: SendAll) -> None:
        self._send_all, self._lock = send_all, threading.Lock()
        self._events: list[tuple[str, dict[str, Any]]] = []
        self._timer: threading.Timer | None = None

    def add(self, tag: str, data: dict[str, Any]) -> None:
        with self._lock:
            self._events.append((tag, data))
            if self._timer is None:
                self._timer = threading.Timer(BATCH_DELAY_S, self.flush)
                self._timer.daemon = True
                self._timer.start()

    def flush(self) -> None:
        """Send the events in their order; a concurrent call waits."""
        with self._lock:
            events, self._events, self._timer = self._events, [], None
            if events:
                self._send_all(events)

    def end(self) -> None:
        timer = self._timer
        if timer is not None:
            timer.cancel()
        self.flush()


_batches: list[_EventBatch] = []


@contextlib.contextmanager
def batch_events(send_all: SendAll) -> Iterator[None]:
    """Send the events of steps in batches within the block.

    send_all: sends a list of tags and data, and does not raise.
    """
    batch = _EventBatch(send_all)
    _batches.append(batch)
    try:
        yield
    finally:
        _batches.remove(batch)
        batch.end()


def send_step(send: Send, tag: str, data: dict[str, Any]) -> None:
    """Send the event of a step.

    send: Salt's ``event.send``.
    """
    if _batches:
        _batches[-1].add(tag, data)
    else:
        send(tag, data)


def folder(get: Callable[..., Any]) -> str:
    """Return the folder of the step files.

    get: Salt's ``config.get``.
    """
    return os.path.join(settings.folder(get, "lock", guest_lock.FOLDER), "steps")


def record_step(steps_dir: str, within_s: float = 0) -> None:
    """Record a step of this process.

    within_s: the maximum time until the next step.
    """
    path = os.path.join(private_folder.ensure(steps_dir), str(os.getpid()))
    with contextlib.suppress(OSError):  # a full /run must not stop the job
        step = {"at": time.monotonic(), "within_s": within_s}
        atomic_file.write(path, json.dumps(step).encode(), durable=False)


def last_step(steps_dir: str, pid: int | str) -> dict[str, float]:
    """Return ``{"quiet_s", "within_s"}`` of the last step of a process; {} if there was none."""
    try:
        with open(os.path.join(steps_dir, str(int(pid))), encoding="utf-8") as file:
            step = json.load(file)
        return {"quiet_s": time.monotonic() - step["at"], "within_s": step["within_s"]}
    except (OSError, ValueError, TypeError, KeyError):
        return {}


def clear_steps(steps_dir: str) -> None:
    """Remove the step files of this job and of dead processes."""
    with contextlib.suppress(OSError):
        for name in os.listdir(steps_dir):
            pid = name.partition(".")[0]
            if pid == str(os.getpid()) or not os.path.exists(f"/proc/{pid}"):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(os.path.join(steps_dir, name))
