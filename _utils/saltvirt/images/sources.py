"""Where images come from: what an address means, and who fetches it."""

from __future__ import annotations

import os
import re
import tempfile
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit, urlunsplit

from saltvirt import errors

if TYPE_CHECKING:
    from collections.abc import Mapping

    from saltvirt.images.download_slot import DownloadSlot

# called with the bytes that are there, and how many there will be, or None
Progress = Callable[[int, int | None], object]
# what tells a file from another one at the same address
Version = dict[str, str]


class Client(Protocol):
    """Who fetches images from addresses of one kind."""

    def version(self, source: str) -> Version:
        """What tells the file from another one at the same address."""

    def fetch(self, source: str, target: str, version: Version, progress: Progress) -> Version:
        """Fetches to ``target``, and returns the version that it is of."""


SALT, WEB, PATH, POOL = "salt", "web", "path", "pool"
_ATTEMPTS = 4
_PAUSE_S = 2
MAX_LIST_BYTES = 4 * 1024 * 1024  # of a file that lists hashes


def kind(source: object) -> str:
    """SALT, WEB, PATH or POOL for an image's address. Raises InvalidInput for anything else."""
    text = str(source)
    if any(ord(char) < 32 for char in text):
        raise errors.InvalidInput(f"image {text!r} has control characters in it")
    if text.startswith("/"):
        return PATH
    if text.startswith("salt://") and text != "salt://":
        return SALT
    if re.match(r"(https?|ftp)://[^/]+/.", text) and _is_address(text):
        return WEB
    if re.match(r"pool://[^/]+/.", text):
        return POOL
    raise errors.InvalidInput(
        f"image {_unread(text)!r}: give salt://…, an absolute path on the host, "
        "pool://POOL/VOLUME, http(s)://… or ftp://…"
    )


def _is_address(text: str) -> bool:
    """False for a port that is no number, and the like."""
    try:
        parts = urlsplit(text)
        return bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _unread(text: str) -> str:
    """An address that means nothing to us may hold a password all the same."""
    return re.sub(r"//[^/@]*@", "//…@", text)


def shown(source: str) -> str:
    """The address without what lets one in, for messages and records: a password, or the query
    of a web address, which can be a signature."""
    parts = urlsplit(source)
    if parts.scheme in ("http", "https") and parts.query:
        parts = parts._replace(query="…")
    if "@" in parts.netloc:
        parts = parts._replace(netloc="…@" + parts.netloc.rsplit("@", 1)[1])
    return urlunsplit(parts) if parts.netloc else source


def name(source: str) -> str:
    """The file name in an address, without saltenv or query."""
    return os.path.basename(urlsplit(source).path) or urlsplit(source).netloc


def stem(source: str) -> str:
    """What a file in the cache is called after: letters, digits, dots and dashes."""
    base = re.sub(r"\.(qcow2|raw|img|vmdk|vdi|vhdx?|qcow)$", "", name(source), flags=re.IGNORECASE)
    return re.sub(r"[^A-Za-z0-9._-]+", "-", base).strip(".-_")[:80] or "image"


def check_list_size(done_bytes: int, _total: int | None = None) -> None:
    """Raises ImageError where a list of hashes has more bytes than one is read of."""
    if done_bytes > MAX_LIST_BYTES:
        raise errors.ImageError(f"a list of hashes is larger than {MAX_LIST_BYTES} bytes")


class SaltFiles:
    """The master's files, by Salt's own functions.

    call: ``__salt__`` of the minion. saltenv: where an address names none. chunk: a callable
    (source, saltenv, offset) that returns the next bytes. turn: a callable of the source that
    returns a turns.Turn, where the master lets only so many copy at a time.
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
        """What the master's file server says of the file: {"hash_type", "hsum"}."""
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
        """Copies the file to ``target``, past the minion's own cache, when it is our turn. Returns
        the version; that it is of this one, its hash tells."""
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
        """Appends to what is there; a master that is busy or restarts is asked again."""
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
        """The text of a small file, such as SHA256SUMS."""
        with tempfile.TemporaryDirectory() as folder:
            target = os.path.join(folder, "list")
            self._resume(source, target, check_list_size)
            with open(target, encoding="utf-8", errors="replace") as file:
                return file.read()
