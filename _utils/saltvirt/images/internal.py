"""The internal snapshots in a qcow2 file."""

from __future__ import annotations

import json

from saltvirt.images import chain, confined

_PATIENCE_S = 60
QCOW2 = "qcow2"


def snapshots(where: str) -> dict[str, str]:
    """ID to name of each. The file may be in use. Raises OperationFailed."""
    argv = ["qemu-img", "info", "-U", "--output=json", "-f", QCOW2, where]
    reads, limits = chain.names(where, QCOW2), confined.Limits(_PATIENCE_S)
    out = confined.run(argv, f"inspect {where}", reads=reads, limits=limits)
    return {one["id"]: one["name"] for one in json.loads(out).get("snapshots", ())}
