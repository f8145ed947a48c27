"""Addresses of images, and the clients that fetch them."""

from __future__ import annotations

import os
import re
import tempfile
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

from saltvirt import errors, sanitize

if TYPE_CHECKING:
    from collections.abc import Mapping

    from saltvirt.images.download_slot import DownloadSlot

# called with the received bytes and the total bytes or None
Progress = Callable[[int, int | None], object]
# identifies a version of the file at an address
Version = dict[str, str]


class Client(Protocol):
    """Fetches images from addresses of one kind."""

    def version(self, source: str) -> Version:
        """The version of the file at the address."""

    def fetch(self, source: str, target: str, version: Version, progress: Progress) -> Version:
        """Fetch to ``target``, and return the fetched version."""


SALT, WEB, PATH, POOL = "salt", "web", "path", "pool"
_ATTEMPTS = 4
_PAUSE_S = 2
MAX_LIST_BYTES = 4 * 1024 * 1024  # of a file that lists hashes


def kind(source: object) -> str:
    """SALT, WEB, PATH or POOL of an image's address. Raises InvalidInput for any other."""
    text = str(source)
    if any(ord(char) < 32 for char in text):
        raise errors.InvalidInput(f"image {text!r} contains control characters")
    if text.startswith("/"):
        return PATH
    if text.startswith("salt://") and text != "salt://":
        return SALT
    if re.match(r"(https?|ftp)://[^/]+/.", text) and _is_address(text):
        return WEB
    if re.match(r"pool://[^/]+/.", text):
        return POOL
    raise errors.InvalidInput(
        f"image {sanitize.address(text)!r}: use salt://…, an absolute path on the host, "
        "pool://POOL/VOLUME, http(s)://… or ftp://…"
    )


def _is_address(text: str) -> bool:
    """Whether the address can be parsed; False for example for an invalid port."""
    try:
        parts = urlsplit(text)
        return bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def shown(source: str) -> str:
    """The address without secrets, as ``sanitize.address``."""
    return sanitize.address(source)


def name(source: str) -> str:
    """The file name in an address, without saltenv or query."""
    return os.path.basename(urlsplit(source).path) or urlsplit(source).netloc


def stem(source: str) -> str:
    """The base name of a file in the cache: letters, digits, dots and dashes."""
    base = re.sub(r"\.(qcow2|raw|img|vmdk|vdi|vhdx?|qcow)$", "", name(source), flags=re.IGNORECASE)
    return re.sub(r"[^A-Za-z0-9._-]+", "-", base).strip(".-_")[:80] or "image"


def check_list_size(done_bytes: int, _total: int | None = None) -> None:
    """Raise ImageError if a list of hashes is too large."""
    if done_bytes > MAX_LIST_BYTES:
        raise errors.ImageError(f"the list of hashes is larger than {MAX_LIST_BYTES} bytes")


class SaltFiles:
    """The master's files, fetched by Salt's own functions.

    call: ``__salt__`` of the minion. saltenv: default environment. chunk: a function of (source,
    saltenv, offset) that returns the next bytes. turn: a function of the source that returns a
    DownloadSlot, if the master limits simultaneous copies.
    """

    def __init__(
        self,
        call: Mapping[str, Callable[..., Any]],
        saltenv: str | None,
        chunk: Callable[[str, str, int], bytes],
        turn: Callable[[str], DownloadSlot] | None = None,
    ) -> None:
        self._call = call
        self._saltenv = saltenv or "base"
        self._chunk = chunk
        self._turn = turn

    def version(self, source: str) -> Version:
        """The file's version from the master's file server: {"hash_type", "hsum"}."""
        try:
            response = self._call["cp.hash_file"](source, saltenv=self._saltenv)
        except Exception as exc:
            raise errors.ImageError(f"cannot ask the master for {source}: {exc}") from exc
        if not response or not response.get("hsum"):
            raise errors.NotFound(
                f"image {source} does not exist on the master (saltenv {self._saltenv})"
            )
        return {"hash_type": response["hash_type"], "hsum": response["hsum"]}

    def fetch(self, source: str, target: str, version: Version, progress: Progress) -> Version:
        """Copy the file to ``target``, bypassing the minion's cache, after waiting for a slot.
        Returns the version; the caller verifies its hash."""
        if self._turn is None:
            self._resume(source, target, progress)
            return version
        with self._turn(source) as turn:

            def renewing(done: int, total: int | None) -> None:
                turn.renew()
                progress(done, total)

            self._resume(source, target, renewing)
        return version

    def _resume(self, source: str, target: str, progress: Progress) -> None:
        """Append to the existing bytes, with retries if the master is busy or restarts."""
        failures = 0
        with open(target, "ab") as file:
            while True:
                try:
                    block = self._chunk(source, self._saltenv, file.tell())
                except errors.ImageError:
                    failures += 1
                    if failures >= _ATTEMPTS:
                        raise
                    time.sleep(_PAUSE_S * failures)
                    continue
                if not block:
                    return
                failures = 0
                file.write(block)
                progress(file.tell(), None)

    def read(self, source: str) -> str:
        """The text of a small file such as SHA256SUMS."""
        with tempfile.TemporaryDirectory() as folder:
            target = os.path.join(folder, "list")
            self._resume(source, target, check_list_size)
            with open(target, encoding="utf-8", errors="replace") as file:
                return file.read()
