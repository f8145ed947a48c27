"""Requests of users to a guest's agent, and descriptions of their results."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from saltvirt import errors, sanitize, units
from saltvirt.console.guestagent import agent_protocol
from saltvirt.schema import Message

MAX_TIMEOUT_S = 86400
# neither libvirt nor the kernel accepts more
MAX_COMMAND_BYTES = 64 * 1024
_PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_MODE = re.compile("[0-7]{3,4}")


@dataclass(frozen=True)
class Command(Message):
    """A process in the guest. env: its complete environment as ``NAME=value``; None: the
    agent's."""

    argv: tuple[str, ...]
    env: tuple[str, ...] | None = None
    timeout_s: int = 60


@dataclass(frozen=True)
class CommandResult(Message):
    """The result of a command.

    has_ended: False if the process continues after the timeout. stdout_bytes: how much of the data
    that follows is standard output; the rest is standard error. is_cut: the output was truncated.
    """

    pid: int
    has_ended: bool
    exit_code: int | None
    signal: int | None
    stdout_bytes: int
    is_cut: bool


@dataclass(frozen=True)
class PutFile(Message):
    """A file for the guest. mode: its permissions. overwrite: replace an existing file. atomic:
    write a temporary file and rename it."""

    path: str
    mode: int | None
    overwrite: bool
    atomic: bool


@dataclass(frozen=True)
class GetFile(Message):
    """A file of the guest."""

    path: str


def argv(cmd: object, shell: bool) -> tuple[str, ...]:
    """The arguments of a command. shell: a shell in the guest interprets it. Raises
    InvalidInput."""
    if isinstance(cmd, (list, tuple)):
        arguments = tuple(str(argument) for argument in cmd)
        if shell:
            raise errors.InvalidInput("cmd is a list, but shell=True needs a text")
        return arguments
    if isinstance(cmd, (bool, dict)) or cmd is None:
        raise errors.InvalidInput(f"cmd must be a text or a list, not {units.short_repr(cmd)}")
    if shell:
        return "/bin/sh", "-c", str(cmd)
    try:
        return tuple(shlex.split(str(cmd)))
    except ValueError as exc:
        raise errors.InvalidInput(
            f"cmd cannot be split into words: {exc}; with shell=True, a shell interprets it"
        ) from exc


def variables(env: object) -> tuple[str, ...] | None:
    """The environment of a command; the agent uses it as the complete environment. Raises
    InvalidInput."""
    if env is None:
        return None
    if not isinstance(env, Mapping) or any("=" in str(key) or not str(key) for key in env):
        raise errors.InvalidInput("env must map names to texts")
    environment = tuple(f"{key}={value}" for key, value in env.items())
    return environment if "PATH" in map(str, env) else (*environment, _PATH)


def file_path(value: object, argument: str) -> str:
    """Check the path of a file. Raises InvalidInput."""
    if not isinstance(value, str) or not value or "\0" in value:
        raise errors.InvalidInput(
            f"{argument} must be the path of a file, not {units.short_repr(value)}"
        )
    return value


def permissions(mode: object) -> int | None:
    """The number of permissions such as ``0640``. Raises InvalidInput."""
    if mode is None:
        return None
    if isinstance(mode, bool) or not _MODE.fullmatch(str(mode)):
        raise errors.InvalidInput(
            f"mode must be a number such as '0640', not {units.short_repr(mode)}"
        )
    return int(str(mode), 8)


def validate(command: Command, stdin: bytes) -> None:
    """Raise InvalidInput for a command that cannot be run."""
    strings = (*command.argv, *(command.env or ()))
    if not command.argv or not command.argv[0]:
        raise errors.InvalidInput("cmd is empty")
    if any("\0" in word for word in strings):
        raise errors.InvalidInput("commands and variables must not contain zero bytes")
    if any(not variable.partition("=")[0] or "=" not in variable for variable in command.env or ()):
        raise errors.InvalidInput("env must map names to texts")
    if sum(len(word.encode(errors="replace")) for word in strings) > MAX_COMMAND_BYTES:
        raise errors.InvalidInput(f"the command is longer than {MAX_COMMAND_BYTES // 1024} KiB")
    if len(stdin) > agent_protocol.MAX_INPUT_BYTES:
        raise errors.InvalidInput(
            f"the input has more than {agent_protocol.MAX_INPUT_BYTES // 1024} KiB: copy "
            "it with virt.put"
        )


def copy_limited(
    read: Callable[[], bytes], write: Callable[[bytes], object], max_bytes: int, path: str,
    on_progress: Callable[[int], object] = lambda _done: None,
) -> int:  # fmt: skip
    """Copy data and return the number of bytes. path: of the source, for the error. Raises
    InvalidInput for more than max_bytes."""
    done_bytes = 0
    while data := read():
        done_bytes += len(data)
        if done_bytes > max_bytes:
            limit = units.human_bytes(max_bytes)
            raise errors.InvalidInput(
                f"{units.short_repr(path)} is larger than {limit}: increase max_size"
            )
        write(data)
        on_progress(done_bytes)
    return done_bytes


def describe_result(location: str, command: Command, outcome: CommandResult) -> tuple[bool, str]:
    """(whether the command succeeded, how it ended as a sentence)."""
    if not outcome.has_ended:
        return False, (
            f"{location}: process {outcome.pid} did not end within {command.timeout_s} s "
            f"and continues; to end it, run 'kill -- -{outcome.pid}' in the guest"
        )
    cut = "; the output is truncated" if outcome.is_cut else ""
    if outcome.signal is not None:
        return False, f"{location}: killed by signal {outcome.signal}{cut}"
    if outcome.exit_code is None:
        return False, f"{location}: ended, but the agent does not report how{cut}"
    return outcome.exit_code == 0, f"{location}: exit code {outcome.exit_code}{cut}"


def printable(data: bytes) -> str:
    """The output of a command without control characters."""
    return sanitize.text(data.decode("utf-8", "backslashreplace"))
