"""Read the disks that a hypervisor exports, through libnbd and TLS with certificates on both
sides."""

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

__all__ = ["Extent", "NbdServer", "connect", "extents", "nbd", "require"]

ALLOCATION = "base:allocation"
DIRTY = "qemu:dirty-bitmap:"
# flags: base:allocation: reads as zeros; dirty bitmap: was written
_ZERO, _CHANGED = 2, 1
# length of one block status query, because a fragmented disk has many extents
QUERY_BYTES = 1024**3
DATA, ZEROS = "data", "zeros"
_NO_STATUS = "the host does not report the block status"


@dataclass(frozen=True)
class NbdServer:
    """A server of exports. host: name in its certificate. certificates: the folder with
    ca-cert.pem, client-cert.pem and client-key.pem."""

    host: str
    port: int
    certificates: str


@dataclass(frozen=True)
class Extent:
    """A range of a disk that contains data or reads as zeros."""

    offset: int
    length: int
    kind: str

    @property
    def end(self) -> int:
        """Offset of the first byte behind the extent."""
        return self.offset + self.length


def require() -> None:
    """Raise Unsupported if libnbd is missing."""
    if nbd is None:
        raise errors.Unsupported("the Python binding of libnbd is missing: install python3-libnbd")


def connect(server: NbdServer, export: str, contexts: tuple[str, ...] = ()) -> Any:
    """Connect to an export, through TLS only. contexts: names of required bitmaps.

    Raises ConnectionFailed, and Unsupported if the server does not have a bitmap.
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
                raise errors.Unsupported(f"{server.host} does not export {name} of {export}")
    except nbd.Error as exc:
        raise errors.ConnectionFailed(
            f"cannot connect to export {export} on {server.host}:{server.port}: {exc.string}"
        ) from exc
    return handle


def extents(
    handle: Any,
    size: int,
    contexts: tuple[str, ...],
    on_progress: Callable[[], object] = lambda: None,
) -> Iterator[Extent]:
    """Yield the extents to read, in order: the whole disk, or with bitmaps what any of them
    recorded.

    on_progress: called after each answer of the host. Raises ConnectionFailed, and OperationFailed
    if the host does not report the block status.
    """
    position = 0
    while position < size:
        length = min(size - position, QUERY_BYTES)
        status = _status(handle, position, length)
        on_progress()
        covered = min((sum(run[0] for run in runs) for runs in status.values()), default=0)
        if not covered or not {ALLOCATION, *contexts} <= set(status):
            raise errors.OperationFailed(f"{_NO_STATUS} at offset {position}")
        covered = min(covered, length)
        yield from _merge_runs(position, covered, status, contexts)
        position += covered


def _status(handle: Any, offset: int, length: int) -> dict[str, list[tuple[int, int]]]:
    """Map each context to the (length, flags) of its runs from the offset on."""
    runs: dict[str, list[tuple[int, int]]] = {}

    def collect(context: str, _offset: int, entries: list[int], _error: object) -> int:
        pairs = zip(entries[::2], entries[1::2], strict=True)
        runs.setdefault(context, []).extend(pairs)
        return 0

    try:
        handle.block_status(length, offset, collect)
    except nbd.Error as exc:
        raise errors.ConnectionFailed(f"{_NO_STATUS} at offset {offset}: {exc.string}") from exc
    return runs


def _merge_runs(
    begin: int, length: int, status: dict[str, list[tuple[int, int]]], contexts: tuple[str, ...]
) -> Iterator[Extent]:
    """Yield the extents of one query; merge adjacent extents of the same kind."""
    boundaries = {begin + length}
    flags: dict[str, deque[tuple[int, int]]] = {}
    for context, runs in status.items():
        offset = begin
        for run, value in runs:
            offset += run
            flags.setdefault(context, deque()).append((offset, value))
            boundaries.add(min(offset, begin + length))
    offset, pending = begin, None
    for end in sorted(boundaries):
        kind = _kind({name: _drop(runs, offset) for name, runs in flags.items()}, contexts)
        if kind and pending and pending.kind == kind and pending.end == offset:
            pending = Extent(pending.offset, end - pending.offset, kind)
        else:
            if pending:
                yield pending
            pending = Extent(offset, end - offset, kind) if kind else None
        offset = end
    if pending:
        yield pending


def _drop(runs: deque[tuple[int, int]], offset: int) -> int:
    """Return the flags at an offset; drop runs that end before it."""
    while runs[0][0] <= offset:
        runs.popleft()
    return runs[0][1]


def _kind(flags: dict[str, int], contexts: tuple[str, ...]) -> str | None:
    if contexts and not any(flags[name] & _CHANGED for name in contexts):
        return None
    return ZEROS if flags[ALLOCATION] & _ZERO else DATA
