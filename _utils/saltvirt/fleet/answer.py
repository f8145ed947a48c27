"""The answer of one host to one request: data or an error, never both."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from saltvirt import errors
from saltvirt.answers.calls import mismatch_text
from saltvirt.fleet import shape
from saltvirt.rights import confidential

DOWN = "down"
SILENT = "no answer"
LOST = "lost"
FAILED = "failed"
BAD = "bad"

T = TypeVar("T")

_ERROR_PREFIX = "ERROR: "
_TRACEBACK = "Traceback (most recent call last)"


@dataclass(frozen=True)
class Answer:
    """The answer of a host.

    host: the minion id. data: the return of the function. error: one line. kind: the kind of error.
    """

    host: str
    data: Any = None
    error: str | None = None
    kind: str | None = None

    @property
    def ok(self) -> bool:
        return self.error is None

    def get(self) -> Any:
        """Return the data.

        Raises OperationFailed, Refused, NoRoom or ConnectionFailed with the host's message.
        """
        if self.error is None:
            return self.data
        if self.kind != FAILED:
            raise errors.ConnectionFailed(f"{self.host}: {self.error}")
        kinds = (errors.NoRoom, errors.Refused)
        kind = next((k for k in kinds if self.error.startswith(k.PREFIX)), errors.OperationFailed)
        text = self.error.removeprefix(getattr(kind, "PREFIX", ""))
        # the message may already begin with the name of the host
        raise kind(f"{self.host}: {text.removeprefix(f'{self.host}: ')}")

    def parse(self, function: str, read: Callable[[Any, str], T]) -> Answer:
        """Return the Answer with the data as ``read`` returns it from the data and the host, or
        with the BadAnswer of ``read``. function: that the host was asked for."""
        if self.error is not None:
            return self
        try:
            return replace(self, data=read(self.data, self.host))
        except errors.BadAnswer as exc:
            return Answer(self.host, error=mismatch_text(function, self.host, exc), kind=BAD)


def down(host: str, ping: Answer | None = None) -> Answer:
    """Return the answer for an accepted host without a connection to the master.

    The host did not answer a ``ping``, or gave a bad answer, so the job was not sent to it.
    """
    error = ping.error if ping and ping.kind == BAD else "down: no connection to the master"
    return Answer(host, error=error, kind=DOWN)


def silent(host: str, waited_s: float, busy: bool = False) -> Answer:
    """Return the answer for a host that did not answer in time.

    busy: the host reported that it works at the job.
    """
    hint = ": its minion works at the job, so libvirt or the storage may hang" if busy else ""
    return Answer(host, error=f"no answer in {waited_s:.0f} s{hint}", kind=SILENT)


def stalled(host: str, quiet_s: float) -> Answer:
    """Return the answer for a host whose job made no progress; the host may still work at it."""
    error = (
        f"no progress for {quiet_s:.0f} s (virt:stall_timeout): the master no longer waits for it"
    )
    return Answer(host, error=error, kind=SILENT)


def endless(host: str, job_s: float) -> Answer:
    """Return the answer for a host whose job took too long, although it made progress."""
    error = f"at work for {job_s:.0f} s (virt:job_timeout): the master no longer waits for it"
    return Answer(host, error=error, kind=SILENT)


def lost(host: str) -> Answer:
    """Return the answer for a host that has finished the job, and whose answer was lost."""
    return Answer(
        host, error="finished the job, but the answer did not reach the master", kind=LOST
    )


def unproven(host: str) -> Answer:
    """Return the answer for a host whose answer is not signed; another minion may have sent it."""
    error = (
        "the answer is not signed with the host's key: Salt Virt is missing there or has another "
        f"version (run salt {host} saltutil.sync_all), or another minion answers in its name"
    )
    return Answer(host, error=error, kind=BAD)


def from_return(host: str, event: dict[str, Any]) -> Answer:
    """Return the Answer in the return of a Salt job, sanitized; see fleet.shape.

    event: a dict with ``return``, and ``retcode`` and ``success`` if Salt sends them.
    """
    confidential.from_answer(event.get("others"))
    try:
        data = shape.clean(event.get("return"))
    except RecursionError:
        return Answer(host, error="the answer is nested too deeply", kind=BAD)
    if event.get("retcode") or not event.get("success", True):
        return Answer(host, error=_one_line(data), kind=FAILED)
    return Answer(host, data=data)


def split_answers(job_answer: Answer, fun: str, count: int) -> list[Answer]:
    """Return the Answers to several calls in one job, in the order of the calls.

    job_answer: of that job. fun: what the host was asked. count: number of the calls.
    """
    if job_answer.error is not None:
        return [job_answer] * count
    data = job_answer.data
    if not isinstance(data, list) or len(data) != count:
        error = f"its answer to {fun} is not what this version expects: {count} are asked for"
        return [Answer(job_answer.host, error=error, kind=BAD)] * count
    return [
        from_return(job_answer.host, item if isinstance(item, dict) else {"success": False})
        for item in data
    ]


def _one_line(data: Any) -> str:
    """Return Salt's text for a failed function without its decoration."""
    if not isinstance(data, str):
        return f"failed: {data!r}"
    text = data.strip()
    if _TRACEBACK in text:
        last = text.splitlines()[-1].strip()
        return f"internal error: {last} (the host's minion log has the traceback)"
    text = text.removeprefix(_ERROR_PREFIX)
    return " ".join(line.strip() for line in text.splitlines() if line.strip()) or "failed"
