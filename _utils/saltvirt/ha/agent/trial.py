"""The version that the agent runs, and whether it could run with the files on disk."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from saltvirt import errors
from saltvirt.ha.agent import store
from saltvirt.schema import Message
from saltvirt.system import atomic_file

_TIMEOUT_S = 60
_LONGEST = 500


@dataclass(frozen=True)
class RunningVersion(Message):
    """The digests of the files that the agent of this host runs."""

    program: str
    settings: str


def file_of(run: str) -> str:
    """Return the path of its file. run: the agent's folder in memory."""
    return f"{run}/agent.json"


def digest(path: str) -> str:
    """Return the digest of a file; empty if it does not exist."""
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError:
        return ""


def record_running(run: str, program: str, settings: str) -> None:
    """Record the files that the agent runs from now on. Raises OSError."""
    digests = RunningVersion(digest(program), digest(settings))
    atomic_file.write(file_of(run), store.text(digests), durable=False)


def read_running(path: str) -> RunningVersion | None:
    """Return what the agent runs; None if it has recorded nothing."""
    try:
        data = store.read(path)
        return None if data is None else RunningVersion.from_answer(data, path)
    except (OSError, errors.BadAnswer):
        return None


def command() -> list[str]:
    """Return the command line that runs this program again."""
    program = os.path.abspath(sys.argv[0])
    program_args = [program] if program.endswith(".pyz") else ["-m", "saltvirt.ha.agent"]
    return [sys.executable, *program_args, *sys.argv[1:]]


def fault() -> str:
    """Return why the program and the settings on disk cannot take over, or nothing."""
    try:
        result = subprocess.run(
            [*command(), "--check"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as exc:
        return str(exc)
    output = result.stderr.strip() or f"exit code {result.returncode}"
    return output[-_LONGEST:] if result.returncode else ""
