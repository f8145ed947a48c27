"""Copy files to and from a guest through its agent.

A new file is written to a temporary file in the same folder, readable by root only, and renamed
when it is complete. The guest's own shell, mktemp, chmod and mv do this.
"""

from __future__ import annotations

import base64
import contextlib
import posixpath
import re
from collections.abc import Iterator

from saltvirt import errors, sanitize, units
from saltvirt.console.guestagent import agent_protocol
from saltvirt.console.guestagent.agent_request import PutFile
from saltvirt.console.host import guest_exec
from saltvirt.console.host.agent import LONG_TIMEOUT_S, Agent

PIECE_BYTES = agent_protocol.PIECE_BYTES
_EXISTS_CODE = 17  # exit code of the scripts: something has the name
_BEGIN_SCRIPT = """umask 077
if [ -d "$1" ] && [ ! -L "$1" ]; then echo "it is a folder" >&2; exit 1; fi
if [ "$3" = new ] && { [ -e "$1" ] || [ -L "$1" ]; }; then exit 17; fi
mktemp -- "$2/.salt-virt-XXXXXXXXXX"
"""
_END_SCRIPT = """chmod -- "$3" "$1" || exit 1
sync -- "$1" 2>/dev/null
if [ "$4" = new ]; then
    mv -n -T -- "$1" "$2" || exit 1
    if [ -e "$1" ]; then exit 17; fi
else
    mv -f -T -- "$1" "$2" || exit 1
fi
if command -v restorecon >/dev/null 2>&1; then restorecon -- "$2" >/dev/null 2>&1; fi
exit 0
"""
_REMOVE_SCRIPT = 'rm -f -- "$1"'
_MAX_PATH_BYTES = 4096
_MODE = 0o600


def path_in_guest(value: str, argument: str = "remote") -> str:
    """Check the path of a file in the guest. Raises InvalidInput."""
    if not value or "\0" in value or len(value.encode(errors="replace")) > _MAX_PATH_BYTES:
        raise errors.InvalidInput(f"{argument} must be the path of a file in the guest")
    return value


class Incoming:
    """A file that is copied to the guest. Use it as a context manager, which removes an incomplete
    file. Raises the errors of Agent.ask."""

    def __init__(self, agent: Agent, request: PutFile) -> None:
        self._agent, self._request = agent, request
        self.path = path_in_guest(request.path)
        self._written_to = self.path
        self._handle: int | None = None
        self._is_whole = False
        self.size_bytes = 0

    def __enter__(self) -> Incoming:
        try:
            with self._explain_errors():
                self._begin()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exc_info: object) -> None:
        with contextlib.suppress(errors.VirtError):
            self._close()
        if not self._is_whole and self._written_to != self.path:
            with contextlib.suppress(errors.VirtError):
                guest_exec.script(self._agent, _REMOVE_SCRIPT, self._written_to)

    def _begin(self) -> None:
        if self._request.atomic:
            self._written_to = self._create_temporary()
        elif self._request.mode is not None:
            raise errors.InvalidInput(
                "mode cannot be used with atomic=False: the agent cannot set it"
            )
        elif not self._request.overwrite:
            self._refuse_existing()
        opened = self._agent.ask("guest-file-open", path=self._written_to, mode="wb")
        self._handle = agent_protocol.handle(opened)

    def write(self, data: bytes) -> None:
        """Append data."""
        text = base64.b64encode(data).decode()
        response = self._agent.ask(
            "guest-file-write", LONG_TIMEOUT_S, handle=self._handle, buf_b64=text
        )
        agent_protocol.check_written(response, len(data))
        self.size_bytes += len(data)

    def end(self) -> None:
        """Finish the file: give it its permissions and its name."""
        self._agent.ask("guest-file-flush", handle=self._handle)
        self._close()
        if self._request.atomic:
            mode = f"{_MODE if self._request.mode is None else self._request.mode:04o}"
            self._script(_END_SCRIPT, self._written_to, self.path, mode, self._write_mode())
        self._is_whole = True

    def _close(self) -> None:
        handle, self._handle = self._handle, None
        if handle is not None:
            self._agent.ask("guest-file-close", handle=handle)

    def _write_mode(self) -> str:
        return "over" if self._request.overwrite else "new"

    def _create_temporary(self) -> str:
        folder, name = posixpath.split(self.path)
        if not self.path.startswith("/") or name in ("", ".", ".."):
            raise errors.InvalidInput(
                f"remote must be an absolute path of a file, /…, not {units.short_repr(self.path)}"
            )
        temporary_path = self._script(
            _BEGIN_SCRIPT, self.path, folder, self._write_mode()
        ).removesuffix("\n")
        begin = f"{folder}/.salt-virt-"
        if not temporary_path.startswith(begin) or not re.fullmatch(
            "[A-Za-z0-9]{10}", temporary_path[len(begin) :]
        ):
            raise errors.BadAnswer(
                f"{self._agent.name} created an unexpected file "
                f"{sanitize.one_line(temporary_path, 200)}"
            )
        return temporary_path

    def _script(self, text: str, *arguments: str) -> str:
        code, output = guest_exec.script(self._agent, text, *arguments)
        if code == _EXISTS_CODE:
            raise self._already_exists()
        if code != 0:
            raise errors.OperationFailed(
                f"{units.short_repr(self.path)} cannot be written in {self._agent.name}: "
                f"{sanitize.one_line(output, 300) or f'exit code {code}'}"
            )
        return output

    def _refuse_existing(self) -> None:
        try:
            handle = agent_protocol.handle(
                self._agent.ask("guest-file-open", path=self.path, mode="rb")
            )
        except errors.NotFound:
            return
        self._agent.ask("guest-file-close", handle=handle)
        raise self._already_exists()

    def _already_exists(self) -> errors.AlreadyExists:
        return errors.AlreadyExists(
            f"{units.short_repr(self.path)} already exists in {self._agent.name}; to "
            "replace it, use overwrite=True"
        )

    @contextlib.contextmanager
    def _explain_errors(self) -> Iterator[None]:
        try:
            yield
        except (errors.Unsupported, errors.NotFound) as exc:
            if not self._request.atomic:
                raise
            raise type(exc)(
                f"{exc.text}; atomic=False writes to the file directly, without a shell in "
                "the guest"
            ) from exc


class Outgoing:
    """A file that is read from the guest. Use it as a context manager."""

    def __init__(self, agent: Agent, path: str) -> None:
        self._agent, self._path = agent, path_in_guest(path)

    def __enter__(self) -> Outgoing:
        opened = self._agent.ask("guest-file-open", path=self._path, mode="rb")
        self._handle = agent_protocol.handle(opened)
        self._is_end = False
        return self

    def __exit__(self, *exc_info: object) -> None:
        with contextlib.suppress(errors.VirtError):
            self._agent.ask("guest-file-close", handle=self._handle)

    def read(self) -> bytes:
        """The next chunk; empty at the end of the file. Raises the errors of Agent.ask."""
        if self._is_end:
            return b""
        response = self._agent.ask(
            "guest-file-read", LONG_TIMEOUT_S, handle=self._handle, count=PIECE_BYTES
        )
        data, self._is_end = agent_protocol.piece(response, PIECE_BYTES)
        return data
