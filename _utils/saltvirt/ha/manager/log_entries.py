"""The journal of high availability as entries of virt.log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from saltvirt.ha.manager.journal import HaJournal
from saltvirt.ha.model.agent_view import ACTIONS
from saltvirt.ha.model.view import ON, TIMED_OUT
from saltvirt.operations.journal import activity_log
from saltvirt.operations.journal.activity_log import LogEntry
from saltvirt.system import file_lock

USER = "ha"
# a reason may name the guests of others
_PUBLIC = "decided by high availability"
# more lines than the journal has
_ALL = 1 << 30
# of operators, which virt.log has from the verbs; of copies of definitions
_LEFT_OUT = ("request", "definition")


def read(opts: file_lock.Opts) -> Iterator[LogEntry]:
    """Yield the decisions of masters and the actions of hosts, the oldest first."""
    for line in HaJournal(opts).last(_ALL):
        if line.get("kind") not in _LEFT_OUT and isinstance(line.get("at"), str):
            yield _entry(line)


def _entry(line: Mapping[str, Any]) -> LogEntry:
    kind, name = str(line.get("kind")), str(line.get("name") or "")
    old, state = line.get("old"), str(line.get("new") or "")
    reason = str(line.get("reason") or "")
    if line.get("action"):  # a text of the host, which a user with limited rights does not see
        action = str(line["action"])
        state = next((word for word in ACTIONS if f"{action} ".startswith(f"{word} ")), "other")
        reason = reason if action == state else f"{action}: {reason}"
    guest = name if kind == "guest" else str(line.get("guest") or "")
    text = f"from {old}: {reason}" if old else reason
    return LogEntry(
        time=line["at"],
        seconds=0,
        user=USER,
        verb="fence" if kind == "fence" else f"ha {kind}",
        guest=guest or None,
        host=None if kind == "guest" else name,
        result=not (kind == "fence" and state in (ON, TIMED_OUT)),
        comment=activity_log.shorten(text),
        public_comment=_PUBLIC,
        state=activity_log.shorten(state) or None,
    )
