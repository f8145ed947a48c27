"""Show all that is known about a guest."""

from __future__ import annotations

from typing import Any

from saltvirt import errors
from saltvirt.fleet.client import Fleet
from saltvirt.operations.access import owners
from saltvirt.operations.cluster import find, hooks


def listing(fleet: Fleet, name: str) -> dict[str, Any]:
    """Return the answer of the runner: host to the guest's name to what its host, this master and
    the features know about it. Raises as find.info does."""
    host, details = find.info(fleet, name)
    answer = details.to_answer()
    unknown: dict[str, str] = dict(answer.pop("unknown", {}))
    uuid = owners.normalize_uuid(str(answer.get("uuid"))) or ""
    record = owners.Owner("")
    try:
        record = owners.load(fleet.opts, uuid)
    except errors.BadAnswer as exc:
        unknown["owner"] = exc.text
    answer |= {"owner": record.owner, "labels": list(record.labels)}
    for described in hooks.describe_guest(fleet, name, uuid):
        unknown |= described.pop("unknown", {})
        answer |= described
    if unknown:
        answer["unknown"] = unknown
    return {host: {name: answer}, **({"retcode": 1} if unknown else {})}
