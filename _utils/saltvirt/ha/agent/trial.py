"""What the agent runs by now, and whether it could run by what is on the disk."""

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

_TIMEOUT_S = 60
_LONGEST = 500


@dataclass(frozen=True)
class RunningVersion(Message):
    """The digests of the files by which the agent of this host runs."""

    program: str
    settings: str


def file_of(run: str) -> str:
    """Where it says so; run: its folder in memory."""
    return f"{run}/agent.json"


def digest(path: str) -> str:
    """Of what is in a file; nothing where there is none."""
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError:
        return ""


def record_running(run: str, program: str, settings: str) -> None:
    """The agent runs by these files from now on. Raises OSError."""
    digests = RunningVersion(digest(program), digest(settings))
    store.replace(file_of(run), store.text(digests), durable=False)


def read_running(path: str) -> RunningVersion | None:
    """By what the agent runs, as it said; None where it has said nothing."""
    try:
        data = store.read(path)
        return None if data is None else RunningVersion.from_answer(data, path)
    except (OSError, errors.BadAnswer):
        return None


def command() -> list[str]:
    """What runs this program once more."""
    program = os.path.abspath(sys.argv[0])
    program_args = [program] if program.endswith(".pyz") else ["-m", "saltvirt.ha.agent"]
    return [sys.executable, *program_args, *sys.argv[1:]]


def fault() -> str:
    """Why the program and the settings that are on the disk now cannot take over, or nothing."""
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
    output = result.stderr.strip() or f"it ended with {result.returncode}"
    return output[-_LONGEST:] if result.returncode else ""
