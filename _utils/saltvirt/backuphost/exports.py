"""What a hypervisor serves of a guest's disks, read by libnbd: over TLS, both sides certified."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from saltvirt import errors

try:
    import nbd
except ImportError:
    nbd = None  # type: ignore[assignment]

__all__ = ["Extent", "Server", "extents", "nbd", "opened", "require"]

ALLOCATION = "base:allocation"
DIRTY = "qemu:dirty-bitmap:"
# of base:allocation: reads as zeros; of a dirty bitmap: was written to
_ZERO, _CHANGED = 2, 1
# a disk is asked about in parts: of a fragmented one the list is long
ASKED = 1024**3
DATA, ZEROS = "data", "zeros"
_UNTOLD = "the host does not tell what is to be read"


@dataclass(frozen=True)
class Server:
    """Where exports are. host: as in the certificate that it shows. certificates: the folder with
    ca-cert.pem, client-cert.pem and client-key.pem."""

    host: str
    port: int
    certificates: str


@dataclass(frozen=True)
class Extent:
    """A part of a disk that is all data, or reads as zeros."""

    offset: int
    length: int
    kind: str

    @property
    def end(self) -> int:
        """Where the next one can begin."""
        return self.offset + self.length


def require() -> None:
    """Raises Unsupported where libnbd is not there."""
    if nbd is None:
        raise errors.Unsupported("the binding of libnbd is missing: install python3-libnbd")


def opened(server: Server, export: str, contexts: tuple[str, ...] = ()) -> Any:
    """A connection to an export, by TLS alone. contexts: names of bitmaps that it must have.

    Raises ConnectionFailed; Unsupported for a server that has no such bitmap.
    """
    require()
    handle = nbd.NBD()
    try:
        handle.set_tls(nbd.TLS_REQUIRE)
        handle.set_tls_certificates(server.certificates)
        handle.set_tls_verify_peer(True)
        handle.set_export_name(export)
        for name in (ALLOCATION, *contexts):
            handle.add_meta_context(name)
        handle.connect_tcp(server.host, str(server.port))
        for name in (ALLOCATION, *contexts):
            if not handle.can_meta_context(name):
                raise errors.Unsupported(f"{server.host} does not serve {name} of {export}")
    except nbd.Error as exc:
        raise errors.ConnectionFailed(
            f"cannot read {export} of {server.host}:{server.port}: {exc.string}"
        ) from exc
    return handle


def extents(
    handle: Any, size: int, contexts: tuple[str, ...], heard: Callable[[], object] = lambda: None
) -> Iterator[Extent]:
    """What of a disk is to be read, in order: all of it or, with bitmaps, what any of them says was
    written to. heard: called whenever the host has told of a part. Raises ConnectionFailed,
    OperationFailed where the host does not tell it."""
    position = 0
    while position < size:
        asked = min(size - position, ASKED)
        found = _status(handle, position, asked)
        heard()
        covered = min((sum(one[0] for one in runs) for runs in found.values()), default=0)
        if not covered or not {ALLOCATION, *contexts} <= set(found):
            raise errors.OperationFailed(f"{_UNTOLD} from {position} on")
        covered = min(covered, asked)
        yield from _merged(position, covered, found, contexts)
        position += covered


def _status(handle: Any, offset: int, length: int) -> dict[str, list[tuple[int, int]]]:
    """Context to (length, flags) of its runs from the offset on."""
    found: dict[str, list[tuple[int, int]]] = {}

    def told(context: str, _offset: int, entries: list[int], _error: object) -> int:
        pairs = zip(entries[::2], entries[1::2], strict=True)
        found.setdefault(context, []).extend(pairs)
        return 0

    try:
        handle.block_status(length, offset, told)
    except nbd.Error as exc:
        raise errors.ConnectionFailed(f"{_UNTOLD} from {offset} on: {exc.string}") from exc
    return found


def _merged(
    begin: int, length: int, found: dict[str, list[tuple[int, int]]], contexts: tuple[str, ...]
) -> Iterator[Extent]:
    """The extents of one part, those of the same kind beside each other as one."""
    ends = {begin + length}
    flags: dict[str, deque[tuple[int, int]]] = {}
    for context, runs in found.items():
        at = begin
        for run, value in runs:
            at += run
            flags.setdefault(context, deque()).append((at, value))
            ends.add(min(at, begin + length))
    at, pending = begin, None
    for end in sorted(ends):
        kind = _kind({name: _drop(runs, at) for name, runs in flags.items()}, contexts)
        if kind and pending and pending.kind == kind and pending.end == at:
            pending = Extent(pending.offset, end - pending.offset, kind)
        else:
            if pending:
                yield pending
            pending = Extent(at, end - at, kind) if kind else None
        at = end
    if pending:
        yield pending


def _drop(runs: deque[tuple[int, int]], at: int) -> int:
    """The flags at an offset; runs that end before it go."""
    while runs[0][0] <= at:
        runs.popleft()
    return runs[0][1]


def _kind(flags: dict[str, int], contexts: tuple[str, ...]) -> str | None:
    if contexts and not any(flags[name] & _CHANGED for name in contexts):
        return None
    return ZEROS if flags[ALLOCATION] & _ZERO else DATA
