"""The internal snapshots in a qcow2 file."""

from __future__ import annotations

import json

from saltvirt.images import chain, confined

_TIMEOUT_S = 60
QCOW2 = "qcow2"


def snapshots(path: str) -> dict[str, str]:
    """Id to name of each internal snapshot. The file may be in use. Raises OperationFailed."""
    argv = ["qemu-img", "info", "-U", "--output=json", "-f", QCOW2, path]
    reads, limits = chain.names(path, QCOW2), confined.Limits(_TIMEOUT_S)
    out = confined.run(argv, f"inspect {path}", reads=reads, limits=limits)
    return {snapshot["id"]: snapshot["name"] for snapshot in json.loads(out).get("snapshots", ())}
