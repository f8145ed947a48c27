"""Fetch images by HTTP and FTP, and resume interrupted downloads."""

from __future__ import annotations

import base64
import contextlib
import ftplib
import http.client
import json
import os
import time
import urllib.error
import urllib.request
from typing import IO, TYPE_CHECKING, BinaryIO
from urllib.parse import unquote, urlsplit, urlunsplit

from saltvirt import errors, units
from saltvirt.images import free_space, http_answer
from saltvirt.images.sources import MAX_LIST_BYTES, check_list_size, shown
from saltvirt.system import boot

if TYPE_CHECKING:
    from collections.abc import Iterator
    from urllib.parse import SplitResult

    from saltvirt.images.sources import Progress, Version

_TIMEOUT_S = 60
_ATTEMPTS = 4
_PAUSE_S = 0.5
_BLOCK = 1024 * 1024
# ValueError: an invalid address or length, also from a server after a redirect
_BROKEN = (OSError, http.client.HTTPException, EOFError, ValueError)


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects, but never from https to http, and without credentials."""

    def redirect_request(
        self,
        request: urllib.request.Request,
        answer: IO[bytes],
        code: int,
        message: str,
        headers: http.client.HTTPMessage,
        new: str,
    ) -> urllib.request.Request | None:
        redirected = super().redirect_request(request, answer, code, message, headers, new)
        old, target = urlsplit(request.full_url), urlsplit(new)
        if target.scheme not in ("http", "https") or "@" in target.netloc:
            raise errors.ImageError(f"{shown(request.full_url)} redirects to {shown(new)}: refused")
        if old.scheme == "https" and target.scheme != "https":
            raise errors.ImageError(
                f"{shown(request.full_url)} redirects from https to http, which is not "
                "protected: refused"
            )
        if redirected is not None and _origin(old) != _origin(target):
            redirected.remove_header("Authorization")
        return redirected


def _origin(parts: SplitResult) -> tuple[str, str | None, int | None]:
    """The origin: scheme, host and port."""
    try:
        port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    except ValueError as exc:
        raise http.client.InvalidURL(str(exc)) from exc
    return parts.scheme, parts.hostname, port


def _open(request: urllib.request.Request) -> http.client.HTTPResponse:
    """The response to a request. The credentials of an address are sent to its own host only."""
    opener = urllib.request.build_opener(_Redirects)
    answer: http.client.HTTPResponse = opener.open(request, timeout=_TIMEOUT_S)
    return answer


def _request(
    url: str, headers: dict[str, str] | None = None, method: str | None = None
) -> urllib.request.Request:
    parts = urlsplit(url)
    host = parts.netloc.rsplit("@", 1)[-1]
    request = urllib.request.Request(
        urlunsplit(parts._replace(netloc=host)), headers=headers or {}, method=method
    )
    if parts.username:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        request.add_header("Authorization", "Basic " + base64.b64encode(pair.encode()).decode())
    return request


def _failed(url: str, exc: BaseException) -> errors.VirtError:
    """The error for an exception of urllib."""
    code = getattr(exc, "code", None)
    if code in (404, 410):
        return errors.NotFound(f"image {shown(url)} does not exist: HTTP {code}")
    reason = f"HTTP {code}" if code else getattr(exc, "reason", None) or exc
    return errors.ImageError(f"cannot fetch {shown(url)}: {reason}")


class Http:
    """Images at http:// and https:// addresses."""

    def version(self, source: str) -> Version:
        """The version of the file: its ETag, date and size."""
        try:
            with _open(_request(source, method="HEAD")) as reply:
                return http_answer.version(reply.headers)
        except urllib.error.HTTPError as exc:
            if exc.code in (405, 501):  # a server without HEAD
                return {}
            raise _failed(source, exc) from exc
        except _BROKEN as exc:
            raise _failed(source, exc) from exc

    def fetch(self, source: str, target: str, version: Version, progress: Progress) -> Version:
        """Fetch to ``target``; existing bytes of the same version are kept and continued.

        Returns the version according to the response that carried the bytes.
        """
        attempt = 0
        while True:
            try:
                return self._resume(source, target, read_part_note(target) or version, progress)
            except urllib.error.HTTPError as exc:
                if exc.code < 500 or attempt == _ATTEMPTS - 1:
                    raise _failed(source, exc) from exc
            except _BROKEN as exc:
                if free_space.is_full(exc):
                    raise
                if attempt == _ATTEMPTS - 1:
                    raise _failed(source, exc) from exc
            time.sleep(_PAUSE_S * 2**attempt)
            attempt += 1

    def _resume(self, source: str, target: str, version: Version, progress: Progress) -> Version:
        have, total = _size(target), http_answer.length(version)
        proof = http_answer.validator(version)
        if have and proof and have == total:
            return version
        if not proof or have > (total or have):
            have = 0
        headers = {"Range": f"bytes={have}-", "If-Range": proof} if have and proof else {}
        try:
            with _answer(source, headers, have) as reply:
                sent = _judge(source, reply, have, version)
                if not sent.start:
                    write_part_note(target, sent.version)
                with open(target, "r+b" if sent.start else "wb") as file:
                    _receive(reply, file, sent, progress)
        except http_answer.UnusableAnswer:
            forget(target)
            raise
        return sent.version


def _answer(source: str, headers: dict[str, str], have: int) -> http.client.HTTPResponse:
    """The response to a request for an image, or for the rest after the existing bytes."""
    try:
        return _open(_request(source, headers))
    except urllib.error.HTTPError as exc:
        if exc.code == 416 and have:
            raise http_answer.UnusableAnswer(f"the server has no data after byte {have}") from exc
        raise


def _judge(
    source: str, reply: http.client.HTTPResponse, have: int, version: Version
) -> http_answer.BodyRange:
    try:
        return http_answer.judge(reply.status, reply.headers, have, version)
    except errors.ImageError as exc:
        raise errors.ImageError(f"cannot fetch {shown(source)}: {exc}") from exc


def _size(path: str) -> int:
    return os.path.getsize(path) if os.path.exists(path) else 0


def _receive(
    reply: http.client.HTTPResponse, file: BinaryIO, sent: http_answer.BodyRange, progress: Progress
) -> None:
    """Write the announced bytes, and raise an error if fewer or more arrive."""
    done = file.seek(sent.start)
    while block := reply.read(_BLOCK):
        done += len(block)
        if sent.end is not None and done > sent.end:
            raise http_answer.UnusableAnswer(
                f"the server sends more than the announced {sent.end - sent.start} bytes"
            )
        file.write(block)
        progress(done, sent.total or done)
    if sent.total is not None and done < sent.total:
        raise http.client.IncompleteRead(b"", sent.total - done)


class Ftp:
    """Images at ftp:// addresses."""

    @contextlib.contextmanager
    def _session(self, source: str) -> Iterator[tuple[ftplib.FTP, str]]:
        parts = urlsplit(source)
        try:
            with ftplib.FTP(timeout=_TIMEOUT_S) as ftp:
                ftp.connect(parts.hostname or "", parts.port or ftplib.FTP_PORT)
                ftp.login(unquote(parts.username or ""), unquote(parts.password or ""))
                ftp.voidcmd("TYPE I")
                yield ftp, unquote(parts.path)
        except ftplib.error_perm as exc:
            if str(exc).startswith("550"):
                raise errors.NotFound(f"image {shown(source)} does not exist: {exc}") from exc
            raise errors.ImageError(f"cannot fetch {shown(source)}: {exc}") from exc
        except (ftplib.Error, *_BROKEN) as exc:
            if free_space.is_full(exc):
                raise
            raise errors.ImageError(f"cannot fetch {shown(source)}: {exc}") from exc

    def version(self, source: str) -> Version:
        """The size, and the modification time if the server reports it."""
        with self._session(source) as (ftp, path):
            return _ftp_version(ftp, path)

    def fetch(self, source: str, target: str, version: Version, progress: Progress) -> Version:
        """Fetch to ``target``; existing bytes of the same version are kept and continued."""
        attempt = 0
        while True:
            try:
                self._resume(source, target, version, progress)
                return version
            except errors.ImageError:
                if attempt == _ATTEMPTS - 1:
                    raise
            time.sleep(_PAUSE_S * 2**attempt)
            attempt += 1

    def _resume(self, source: str, target: str, version: Version, progress: Progress) -> None:
        total = int(version["size"]) if units.is_number(version["size"]) else 0
        goes_on = "changed" in version and _size(target) < (total or _size(target) + 1)
        with self._session(source) as (ftp, path), open(target, "ab" if goes_on else "wb") as file:

            def write(block: bytes) -> None:
                if total and file.tell() + len(block) > total:
                    file.truncate(0)
                    raise EOFError(f"the server sends more than {total} bytes")
                file.write(block)
                progress(file.tell(), total)

            ftp.retrbinary(f"RETR {path}", write, rest=file.tell() or None)
            changed = _ftp_version(ftp, path) != version
            if changed:
                file.truncate(0)
                raise EOFError("the file changed during the download: try again")
            if file.tell() < total:
                raise EOFError(f"the download ended after {file.tell()} of {total} bytes")


def _ftp_version(ftp: ftplib.FTP, path: str) -> Version:
    version = {"size": str(ftp.size(path))}
    with contextlib.suppress(ftplib.Error):
        version["changed"] = ftp.voidcmd(f"MDTM {path}")
    return version


def client(source: str) -> Http | Ftp:
    """The client for an address."""
    return Ftp() if source.startswith("ftp:") else Http()


def read_list(url: str) -> str:
    """The whole text of a small file such as SHA256SUMS. Raises NotFound, ImageError."""
    try:
        with _open(_request(url)) as reply:
            data = reply.read(MAX_LIST_BYTES + 1)
            check_list_size(len(data))
            announced = reply.headers.get("Content-Length", "")
            if units.is_number(announced) and len(data) < int(
                announced
            ):  # read() is content with fewer
                raise http.client.IncompleteRead(data, int(announced) - len(data))
    except _BROKEN as exc:
        raise _failed(url, exc) from exc
    return data.decode("utf-8", "replace")


def write_part_note(part: str, version: Version) -> None:
    """Record the version of a partial file beside it, and remove a part of another version."""
    if read_part_note(part) != version:
        forget(part)
        with open(part + ".json", "w", encoding="utf-8") as file:
            json.dump({"version": version, "boot": boot.current()}, file)


def read_part_note(part: str) -> Version | None:
    """The version of a partial file, or None. A part from before a reboot has none: after a power
    failure, its last bytes may be lost."""
    try:
        with open(part + ".json", encoding="utf-8") as file:
            note = json.load(file)
    except (FileNotFoundError, ValueError):
        return None
    return note.get("version") if note.get("boot") == boot.current() else None


def forget(part: str) -> None:
    """Remove a partial file and its note."""
    for path in (part, part + ".json"):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
