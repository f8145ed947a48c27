"""Run programs of the distribution that read or change the host's network."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

from saltvirt.errors import OperationFailed

# timeout of ip, systemctl and similar programs
TIMEOUT_S = 60


def run(argv: Sequence[str], text: str | None = None, must: bool = False) -> str:
    """The output of a program, "" if it fails or is missing. With ``must``, raises OperationFailed
    with its first error line or its last line instead."""
    try:
        process = subprocess.run(
            argv, input=text, capture_output=True, text=True, check=False, timeout=TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired) as exc:
        if must:
            raise OperationFailed(f"{argv[0]}: {exc}") from exc
        return ""
    if process.returncode and must:
        lines = (process.stderr.strip() or process.stdout.strip()).splitlines()
        # nft and iptables-restore add lines about the position, or how to get help
        error_lines = [line for line in lines if "error" in line.lower()][:1] or lines[-1:]
        raise OperationFailed(f"{' '.join(argv)}: {' '.join(error_lines) or 'failed'}")
    return "" if process.returncode else process.stdout
