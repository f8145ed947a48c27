"""A host's turn to copy an image from its master, which lets only so many copy at a time."""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections.abc import Callable, Mapping
from typing import Any

from saltvirt import errors

# asks the ext_pillar virtkey
Ask = Callable[[dict[str, Any]], Mapping[str, Any] | None]

RENEW_S = 10
_SHORTEST_S, _LONGEST_S = 2, 20
_ATTEMPTS = 5
# it is said again that we wait; and none of the copies before ours ends in so long
_SAY_S, _STUCK_S = 60, 3600


def taker(ask: Ask, say: Callable[[str], object]) -> Callable[[str], DownloadSlot]:
    """A callable of an image's address that makes the DownloadSlot to copy it."""
    return lambda source: DownloadSlot(source, ask, say)


class DownloadSlot:
    """One copy. ask: a callable of the dict for the ext_pillar ``virtkey``, which returns its
    answer. say: called with a sentence when the host has to wait."""

    def __init__(self, source: str, ask: Ask, say: Callable[[str], object]) -> None:
        self._source = source
        self._image = hashlib.sha256(source.encode("utf-8", "surrogateescape")).hexdigest()[:40]
        self._ask = ask
        self._say = say
        self._asked = 0.0

    def _places(self, **more: Any) -> int | None:
        """How many are before us; None where the master lets everybody copy."""
        self._asked = time.monotonic()
        return (self._ask({"copy": self._image, **more}) or {}).get("turn")

    def _wait(self) -> None:
        reported_at: float | None = None
        failures, seen, since = 0, None, time.monotonic()
        while True:
            try:
                ahead = self._places()
            except Exception as exc:  # of Salt, whose classes this layer does not know
                failures += 1
                if failures >= _ATTEMPTS:
                    raise errors.ImageError(
                        f"cannot ask the master for a turn to copy {self._source}: {exc}"
                    ) from exc
                ahead = 1
            if not ahead:
                return
            now = time.monotonic()
            if ahead != seen:
                seen, since = ahead, now
            if now - since > _STUCK_S:
                raise errors.ImageError(
                    f"cannot copy {self._source}: {ahead} must copy from the master before, and "
                    f"none came to its end within {_STUCK_S} s"
                )
            if reported_at is None or now - reported_at > _SAY_S:
                self._say(f"waiting for other hosts that copy from the master: {self._source}")
                reported_at = now
            time.sleep(min(_LONGEST_S, _SHORTEST_S * ahead))

    def renew(self) -> None:
        """Says from time to time that the copy goes on."""
        if time.monotonic() - self._asked > RENEW_S:
            with contextlib.suppress(Exception):
                self._places()

    def __enter__(self) -> DownloadSlot:
        self._wait()
        return self

    def __exit__(self, *_exc_info: object) -> None:
        with contextlib.suppress(Exception):  # the master frees it by itself, only later
            self._places(done=True)
