"""What one host said to one question: data or an error, never both."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from saltvirt import errors
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
    """host: minion id. data: what the function returned. error: one line. kind: why."""

    host: str
    data: Any = None
    error: str | None = None
    kind: str | None = None

    @property
    def ok(self) -> bool:
        return self.error is None

    def get(self) -> Any:
        """The data. Raises OperationFailed, Refused, NoRoom or ConnectionFailed with the host's
        words."""
        if self.error is None:
            return self.data
        if self.kind != FAILED:
            raise errors.ConnectionFailed(f"{self.host}: {self.error}")
        kinds = (errors.NoRoom, errors.Refused)
        kind = next((k for k in kinds if self.error.startswith(k.PREFIX)), errors.OperationFailed)
        text = self.error.removeprefix(getattr(kind, "PREFIX", ""))
        # the host may have named itself already
        raise kind(f"{self.host}: {text.removeprefix(f'{self.host}: ')}")


def facts(
    answers: Iterable[Answer], read: Callable[[Any, str], T]
) -> tuple[dict[str, T], dict[str, str]]:
    """(host to what it said, host to why it said nothing).

    read: makes it of the data and the host, such as ``from_answer`` of a Fact; may raise BadAnswer.
    """
    facts_by_host: dict[str, T] = {}
    unreachable: dict[str, str] = {}
    for answer in answers:
        try:
            if answer.error is None:
                facts_by_host[answer.host] = read(answer.data, answer.host)
            else:
                unreachable[answer.host] = answer.error
        except errors.BadAnswer as exc:
            unreachable[answer.host] = exc.text.removeprefix(f"{answer.host}: ")
    return facts_by_host, unreachable


def down(host: str, ping: Answer | None = None) -> Answer:
    """An accepted host that the master sees no connection of, and that answered nothing, or to a
    ``ping`` nothing good: it was told nothing."""
    error = ping.error if ping and ping.kind == BAD else "down: no connection to the master"
    return Answer(host, error=error, kind=DOWN)


def silent(host: str, waited_s: float, busy: bool = False) -> Answer:
    """A host that did not answer in time. busy: it said that it works at the job."""
    hint = ": its minion is at work, so its libvirt or its storage may hang" if busy else ""
    return Answer(host, error=f"no answer in {waited_s:.0f} s{hint}", kind=SILENT)


def stalled(host: str, quiet_s: float) -> Answer:
    """A host whose job is given up: it may be at work still."""
    error = (
        f"no progress for {quiet_s:.0f} s (virt:stall_timeout): the master no longer waits for it"
    )
    return Answer(host, error=error, kind=SILENT)


def endless(host: str, job_s: float) -> Answer:
    """A host whose job is given up, though it says that it gets on."""
    error = f"at work for {job_s:.0f} s (virt:job_timeout): the master no longer waits for it"
    return Answer(host, error=error, kind=SILENT)


def lost(host: str) -> Answer:
    """A host that has ended the job, and whose answer Salt did not bring."""
    return Answer(
        host, error="it has ended the job, but its answer did not reach the master", kind=LOST
    )


def unproven(host: str) -> Answer:
    """A host that answers, and does not sign what it says; or somebody else does so for it."""
    error = (
        "its answer is not signed with its key: Salt Virt is not there, or another version of it "
        f"(salt {host} saltutil.sync_all); or another minion answers in its name"
    )
    return Answer(host, error=error, kind=BAD)


def from_return(
    host: str, event: dict[str, Any], fun: str | None = None, kwarg: dict[str, Any] | None = None
) -> Answer:
    """The Answer in a Salt job's return: looked at before anything reads it, see fleet.shape.

    event: dict with ``return``, and as Salt sends them ``retcode`` and ``success``. fun, kwarg:
    what the host was asked.
    """
    confidential.from_answer(event.get("others"))
    try:
        data = shape.clean(event.get("return"))
    except RecursionError:
        return Answer(host, error="its answer is nested too deeply", kind=BAD)
    if event.get("retcode") or not event.get("success", True):
        return Answer(host, error=_one_line(data), kind=FAILED)
    try:
        shape.check(fun, kwarg, data)
    except errors.InvalidInput as exc:
        return Answer(host, error=exc.text, kind=BAD)
    return Answer(host, data=data)


def split_answers(job_answer: Answer, fun: str, calls: list[dict[str, Any]]) -> list[Answer]:
    """The Answer to each of several calls that one job had, in their order.

    job_answer: of that job. fun, calls: what the host was asked.
    """
    if job_answer.error is not None:
        return [job_answer] * len(calls)
    data = job_answer.data
    if not isinstance(data, list) or len(data) != len(calls):
        error = f"its answer to {fun} is not what this version expects: {len(calls)} are asked for"
        return [Answer(job_answer.host, error=error, kind=BAD)] * len(calls)
    return [
        from_return(
            job_answer.host, item if isinstance(item, dict) else {"success": False}, fun, call
        )
        for item, call in zip(data, calls, strict=True)
    ]


def _one_line(data: Any) -> str:
    """Salt's texts for a failed function, without its decoration."""
    if not isinstance(data, str):
        return f"failed: {data!r}"
    text = data.strip()
    if _TRACEBACK in text:
        last = text.splitlines()[-1].strip()
        return f"internal error: {last} (the host's minion log has the traceback)"
    text = text.removeprefix(_ERROR_PREFIX)
    return " ".join(line.strip() for line in text.splitlines() if line.strip()) or "failed"
