"""Guests that have got a host on this master and are not there yet: what is placed at the same
moment takes room beside them.

A host says itself whether it has room. Room for the loss of hosts is of all of them together, so
where that is kept each guest is written down: a file a guest, which counts while its operation has
another one locked.
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

# what ended so long ago is missing in nobody's picture of the hosts
_MAX_AGE_S = 24 * 3600
# what the name of an operation's locked file begins with
_OPERATION_PREFIX = ".of-"


class _Claim(NamedTuple):
    """by: the operation. ha: what virt.init was told."""

    operation_id: str
    host: str
    guest: facts.Guest
    ha: Any


class Claims:
    """What one operation has promised. The hosts are asked after it was made: who ended before that
    is where they say."""

    def __init__(self, opts: file_lock.Opts, provider: ha_provider.HaProvider) -> None:
        self._opts, self._provider = opts, provider
        self._folder = Path(opts["cachedir"]) / "virt" / "promised"
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._operation_id = secrets.token_hex(8)
        # one handle, however many guests are promised
        self._handle = file_lock.take(
            self._folder / f"{_OPERATION_PREFIX}{self._operation_id}", "promises of room"
        )
        self._own_names: set[str] = set()
        self._since_s = time.time()
        self._applied_mtimes: dict[str, float] = {}
        self._reserve: ha_provider.CapacityReserve | None = None

    @contextlib.contextmanager
    def turn(
        self, reserve: ha_provider.CapacityReserve | None, hosts: Collection[facts.Host]
    ) -> Iterator[None]:
        """Alone on this master for the block, with all in the room that others have promised.

        hosts: as they said. Raises OperationFailed after ``virt:queue_timeout``."""
        path, purpose = self._folder / ".turn", "a placement beside virt:ha:reserve"
        handle = file_lock.wait(
            self._opts, lambda: file_lock.take(path, purpose), lambda: file_lock.owner(path)
        )
        try:
            if reserve:
                self._apply_others(reserve, {guest.name for host in hosts for guest in host.guests})
            yield
        finally:
            os.close(handle)

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
        """Whether the operation that promised it is still at work."""
        return file_lock.is_taken(self._folder / f"{_OPERATION_PREFIX}{operation_id}")

    def _remove_stale(self, entry: os.DirEntry[str]) -> None:
        path = Path(entry.path)
        claim = None if entry.name.startswith(".") else _read(path)
        if not file_lock.is_taken(path) and not (claim and self._is_active(claim.operation_id)):
            path.unlink(missing_ok=True)

    def _ha_options(self, ha: Any) -> Any:
        with contextlib.suppress(errors.VirtError):  # of a rule that is gone
            return self._provider.parse_options(ha) or None
        return None

    def claim(self, host: str, guest: facts.Guest, ha: Any) -> None:
        """The guest gets the host, and not the one that it was promised before. ha: what virt.init
        was told."""
        path = self._folder / names.guest(guest.name)
        existing = None if guest.name in self._own_names else _read(path)
        if existing and self._is_active(existing.operation_id):
            return  # one of this name is being made: one of the two will be refused
        data = {"by": self._operation_id, "host": host, "guest": guest.to_answer(), "ha": ha}
        private.write(str(path), json.dumps(data))
        self._own_names.add(guest.name)

    def withdraw(self, name: str) -> None:
        """It does not come after all."""
        if name in self._own_names:
            self._own_names.discard(name)
            (self._folder / name).unlink(missing_ok=True)

    def end(self) -> None:
        """All of it is where it was promised."""
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
    """The Promises of an operation for the block; None where no room is kept."""
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
    """As Promises.turn; nothing without any."""
    return claims.turn(reserve, hosts) if claims else contextlib.nullcontext()


def _read(path: Path) -> _Claim | None:
    """What the file says; None of one that is damaged or gone."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        guest = facts.Guest.from_answer({**data["guest"], "name": path.name}, str(path))
        operation_id = str(data["by"])
        return (
            _Claim(operation_id, str(data["host"]), guest, data["ha"])
            if operation_id.isalnum()
            else None
        )
    except (OSError, ValueError, TypeError, LookupError, errors.BadAnswer):
        return None
