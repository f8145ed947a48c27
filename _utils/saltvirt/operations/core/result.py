"""Answers of runner functions."""

from __future__ import annotations

from typing import Any

from saltvirt import names, sanitize

OUTPUTTER = "virt_query"

# the answer of a runner function
Answer = dict[str, Any]


def with_outputter(data: Answer) -> Answer:
    """Return the answer with its outputter, as salt-run expects it. Keys and comments are reduced
    to one line, whatever a host, an event or a caller has sent."""
    data = {sanitize.one_line(name): entry for name, entry in data.items()}
    for entry in data.values():
        if isinstance(entry, dict) and isinstance(entry.get("comment"), str):
            entry["comment"] = sanitize.one_line(entry["comment"], None)
    return {"data": data, "outputter": OUTPUTTER}


def key(subject: str) -> str:
    """Return the key of a guest in an answer. An existing guest can have the name that Salt reads
    as the exit code."""
    return f"[{subject}]" if subject == names.EXIT_CODE else subject


def done(name: str, comment: str, changes: Answer | None = None, **details: Any) -> Answer:
    """Return the answer of an operation that succeeded."""
    return {name: {"result": True, "comment": comment, "changes": changes or {}, **details}}


def planned(name: str, comment: str, changes: Answer | None = None, **details: Any) -> Answer:
    """Return the answer to ``test=True``, which has the structure of a result."""
    return {name: {"result": None, "comment": comment, "changes": changes or {}, **details}}


def failed(subject: str, comment: str, **details: Any) -> Answer:
    """Return the answer of an operation that failed; ``retcode`` becomes the exit code of
    salt-run."""
    return {key(subject): {"result": False, "comment": comment, **details}, "retcode": 1}
