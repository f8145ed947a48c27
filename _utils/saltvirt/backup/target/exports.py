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

__all__ = ["Extent", "NbdServer", "connect", "extents", "nbd", "require"]

ALLOCATION = "base:allocation"
DIRTY = "qemu:dirty-bitmap:"
# of base:allocation: reads as zeros; of a dirty bitmap: was written to
_ZERO, _CHANGED = 2, 1
# a disk is asked about in parts: of a fragmented one the list is long
QUERY_BYTES = 1024**3
DATA, ZEROS = "data", "zeros"
_NO_STATUS = "the host does not tell what is to be read"


@dataclass(frozen=True)
class NbdServer:
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


def connect(server: NbdServer, export: str, contexts: tuple[str, ...] = ()) -> Any:
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
    handle: Any,
    size: int,
    contexts: tuple[str, ...],
    on_progress: Callable[[], object] = lambda: None,
) -> Iterator[Extent]:
    """What of a disk is to be read, in order: all of it or, with bitmaps, what any of them says was
    written to. on_progress: called whenever the host has told of a part. Raises ConnectionFailed,
    OperationFailed where the host does not tell it."""
    position = 0
    while position < size:
        length = min(size - position, QUERY_BYTES)
        status = _status(handle, position, length)
        on_progress()
        covered = min((sum(run[0] for run in runs) for runs in status.values()), default=0)
        if not covered or not {ALLOCATION, *contexts} <= set(status):
            raise errors.OperationFailed(f"{_NO_STATUS} from {position} on")
        covered = min(covered, length)
        yield from _merge_runs(position, covered, status, contexts)
        position += covered


def _status(handle: Any, offset: int, length: int) -> dict[str, list[tuple[int, int]]]:
    """Context to (length, flags) of its runs from the offset on."""
    runs: dict[str, list[tuple[int, int]]] = {}

    def collect(context: str, _offset: int, entries: list[int], _error: object) -> int:
        pairs = zip(entries[::2], entries[1::2], strict=True)
        runs.setdefault(context, []).extend(pairs)
        return 0

    try:
        handle.block_status(length, offset, collect)
    except nbd.Error as exc:
        raise errors.ConnectionFailed(f"{_NO_STATUS} from {offset} on: {exc.string}") from exc
    return runs


def _merge_runs(
    begin: int, length: int, status: dict[str, list[tuple[int, int]]], contexts: tuple[str, ...]
) -> Iterator[Extent]:
    """The extents of one part, those of the same kind beside each other as one."""
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
    """The flags at an offset; runs that end before it go."""
    while runs[0][0] <= offset:
        runs.popleft()
    return runs[0][1]


def _kind(flags: dict[str, int], contexts: tuple[str, ...]) -> str | None:
    if contexts and not any(flags[name] & _CHANGED for name in contexts):
        return None
    return ZEROS if flags[ALLOCATION] & _ZERO else DATA
