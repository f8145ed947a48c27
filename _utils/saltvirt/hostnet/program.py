"""Programs of the distribution that look at the host's network and change it."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

from saltvirt.errors import OperationFailed

# ip, systemctl and their like
TIMEOUT_S = 60


def run(argv: Sequence[str], text: str | None = None, must: bool = False) -> str:
    """What a program printed, "" where it failed or is not here; with ``must`` that raises
    OperationFailed with its first line about an error, or its last words."""
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
        # nft and iptables-restore say more behind it: where it is, or how to ask for help
        error_lines = [line for line in lines if "error" in line.lower()][:1] or lines[-1:]
        raise OperationFailed(f"{' '.join(argv)}: {' '.join(error_lines) or 'failed'}")
    return "" if process.returncode else process.stdout
