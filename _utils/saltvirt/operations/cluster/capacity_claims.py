"""Claim capacity for guests that are placed on a host and do not exist there yet, so that
concurrent placements count them.

Each host checks its own capacity. The failover reserve depends on all hosts together; if it is
configured, each placed guest is recorded in a file of its own. A claim counts while the operation
that made it holds its lock file.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from saltvirt import errors, names
from saltvirt.fleet import private
from saltvirt.operations.cluster import ha_provider
from saltvirt.placement import facts
from saltvirt.system import file_lock

# every inventory includes the guests of an operation that ended longer ago than this
_MAX_AGE_S = 24 * 3600
# prefix of the lock file of an operation
_OPERATION_PREFIX = ".of-"


class _Claim(NamedTuple):
    """A claim. operation_id: the operation. ha: the argument of virt.init."""

    operation_id: str
    host: str
    guest: facts.Guest
    ha: Any


class Claims:
    """The claims of one operation. Create this before the hosts are queried: guests of operations
    that ended before are in the answers of the hosts."""

    def __init__(self, opts: file_lock.Opts, provider: ha_provider.HaProvider) -> None:
        self._opts, self._provider = opts, provider
        self._folder = Path(opts["cachedir"]) / "virt" / "promised"
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._operation_id = secrets.token_hex(8)
        # one handle for all claims of the operation
        self._handle = file_lock.take(
            self._folder / f"{_OPERATION_PREFIX}{self._operation_id}", "capacity claims"
        )
        self._own_names: set[str] = set()
        self._since_s = time.time()
        self._applied_mtimes: dict[str, float] = {}
        self._reserve: ha_provider.CapacityReserve | None = None

    @contextlib.contextmanager
    def turn(
        self, reserve: ha_provider.CapacityReserve | None, hosts: Collection[facts.Host]
    ) -> Iterator[None]:
        """Hold the placement lock of this master for the block, with the claims of all other
        operations in the reserve.

        hosts: their inventories. Raises OperationFailed after ``virt:queue_timeout``.
        """
        purpose = "a placement beside virt:ha:reserve"
        with file_lock.held(self._opts, self._folder / ".turn", purpose):
            if reserve:
                self._apply_others(reserve, {guest.name for host in hosts for guest in host.guests})
            yield

    def _apply_others(
        self, reserve: ha_provider.CapacityReserve, present_names: Collection[str]
    ) -> None:
        if reserve is not self._reserve:
            self._reserve, self._applied_mtimes = reserve, {}
        for entry in os.scandir(self._folder):
            try:
                changed_s = entry.stat().st_mtime
            except FileNotFoundError:  # withdrawn right now
                continue
            if changed_s < time.time() - _MAX_AGE_S:
                self._remove_stale(entry)
            elif not (
                entry.name.startswith(".")
                or entry.name in self._own_names
                or entry.name in present_names
                or self._applied_mtimes.get(entry.name) == changed_s
            ):
                self._applied_mtimes[entry.name] = changed_s
                claim = _read(Path(entry.path))
                if claim and (self._is_active(claim.operation_id) or changed_s >= self._since_s):
                    reserve.take(claim.host, claim.guest, self._ha_options(claim.ha))

    def _is_active(self, operation_id: str) -> bool:
        """Return whether the operation of the claim is still running."""
        return file_lock.is_taken(self._folder / f"{_OPERATION_PREFIX}{operation_id}")

    def _remove_stale(self, entry: os.DirEntry[str]) -> None:
        path = Path(entry.path)
        claim = None if entry.name.startswith(".") else _read(path)
        if not file_lock.is_taken(path) and not (claim and self._is_active(claim.operation_id)):
            path.unlink(missing_ok=True)

    def _ha_options(self, ha: Any) -> Any:
        with contextlib.suppress(errors.VirtError):  # it names a rule that no longer exists
            return self._provider.parse_options(ha) or None
        return None

    def claim(self, host: str, guest: facts.Guest, ha: Any) -> None:
        """Claim the host for the guest, instead of the host that was claimed before. ha: the
        argument of virt.init."""
        path = self._folder / names.guest(guest.name)
        existing = None if guest.name in self._own_names else _read(path)
        if existing and self._is_active(existing.operation_id):
            return  # another operation creates this guest: one of the two will be refused
        data = {"by": self._operation_id, "host": host, "guest": guest.to_answer(), "ha": ha}
        private.write(str(path), json.dumps(data))
        self._own_names.add(guest.name)

    def withdraw(self, name: str) -> None:
        """Remove the claim of a guest that will not be created."""
        if name in self._own_names:
            self._own_names.discard(name)
            (self._folder / name).unlink(missing_ok=True)

    def end(self) -> None:
        """End the operation: all its guests exist on the claimed hosts."""
        for name in self._own_names:
            with contextlib.suppress(FileNotFoundError):
                os.utime(self._folder / name)
        (self._folder / f"{_OPERATION_PREFIX}{self._operation_id}").unlink(missing_ok=True)
        if self._handle is not None:
            os.close(self._handle)


@contextlib.contextmanager
def open_claims(
    opts: file_lock.Opts, provider: ha_provider.HaProvider | None
) -> Iterator[Claims | None]:
    """Yield the Claims of an operation for the block; None if no reserve is configured."""
    if provider is None or not provider.has_reserve:
        yield None
        return
    claims = Claims(opts, provider)
    try:
        yield claims
    finally:
        claims.end()


def turn(
    claims: Claims | None,
    reserve: ha_provider.CapacityReserve | None,
    hosts: Collection[facts.Host],
) -> contextlib.AbstractContextManager[None]:
    """Return Claims.turn(), or a null context without claims."""
    return claims.turn(reserve, hosts) if claims else contextlib.nullcontext()


def _read(path: Path) -> _Claim | None:
    """Return the claim in the file; None if the file is damaged or missing."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        guest = facts.Guest.from_answer({**data["guest"], "name": path.name}, str(path))
        claim = _Claim(str(data["by"]), str(data["host"]), guest, data["ha"])
        return claim if claim.operation_id.isalnum() else None
    except (OSError, ValueError, TypeError, LookupError, errors.BadAnswer):
        return None
