"""Fetches images by HTTP and FTP, and goes on where an earlier attempt stopped."""

import base64
import contextlib
import ftplib
import http.client
import json
import os
import time
import urllib.error
import urllib.request
from urllib.parse import unquote, urlsplit, urlunsplit

from saltvirt import errors
from saltvirt.images.sources import LONGEST_LIST, shown

_TIMEOUT_S = 60
_ATTEMPTS = 4
_PAUSE_S = 0.5
_BLOCK = 1024 * 1024
# ValueError: an address or a length that means nothing, also of a server that leads elsewhere
_BROKEN = (OSError, http.client.HTTPException, EOFError, ValueError)


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows a server elsewhere, but never to less safety, and takes no credentials along."""

    def redirect_request(self, request, answer, code, message, headers, new):
        found = super().redirect_request(request, answer, code, message, headers, new)
        old, target = urlsplit(request.full_url), urlsplit(new)
        if target.scheme not in ("http", "https") or "@" in target.netloc:
            raise errors.ImageError(f"{shown(request.full_url)} leads to {shown(new)}: refused")
        if old.scheme == "https" and target.scheme != "https":
            raise errors.ImageError(
                f"{shown(request.full_url)} leads from https to http, which anybody on the way "
                "could change: refused"
            )
        if found is not None and _place(old) != _place(target):
            found.remove_header("Authorization")
        return found


def _place(parts):
    """Who is spoken to: scheme, host and port."""
    try:
        port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    except ValueError as exc:
        raise http.client.InvalidURL(str(exc)) from exc
    return parts.scheme, parts.hostname, port


def _open(request):
    """The answer to a request; an address's own credentials go to its own host alone."""
    return urllib.request.build_opener(_Redirects).open(request, timeout=_TIMEOUT_S)


def _request(url, headers=None, method=None):
    parts = urlsplit(url)
    host = parts.netloc.rsplit("@", 1)[-1]
    request = urllib.request.Request(
        urlunsplit(parts._replace(netloc=host)), headers=headers or {}, method=method
    )
    if parts.username:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        request.add_header("Authorization", "Basic " + base64.b64encode(pair.encode()).decode())
    return request


def _failed(url, exc):
    """Our error for one of urllib's."""
    code = getattr(exc, "code", None)
    if code in (404, 410):
        return errors.NotFound(f"image {shown(url)} does not exist: HTTP {code}")
    reason = f"HTTP {code}" if code else getattr(exc, "reason", None) or exc
    return errors.ImageError(f"cannot fetch {shown(url)}: {reason}")


class Http:
    """Images behind http:// and https://."""

    def version(self, source):
        """What tells this version of the file from another: its ETag, date and size."""
        try:
            with _open(_request(source, method="HEAD")) as reply:
                names = ("ETag", "Last-Modified", "Content-Length")
                return {key: reply.headers[key] for key in names if reply.headers[key]}
        except urllib.error.HTTPError as exc:
            if exc.code in (405, 501):  # a server without HEAD
                return {}
            raise _failed(source, exc) from exc
        except _BROKEN as exc:
            raise _failed(source, exc) from exc

    def fetch(self, source, target, version, progress):
        """Fetches to ``target``; what is there of the same version is kept and continued."""
        for attempt in range(_ATTEMPTS):
            try:
                self._go_on(source, target, version, progress)
                return
            except urllib.error.HTTPError as exc:
                if exc.code < 500 or attempt == _ATTEMPTS - 1:
                    raise _failed(source, exc) from exc
            except _BROKEN as exc:
                if attempt == _ATTEMPTS - 1:
                    raise _failed(source, exc) from exc
            time.sleep(_PAUSE_S * 2**attempt)

    def _go_on(self, source, target, version, progress):
        have = os.path.getsize(target) if os.path.exists(target) else 0
        strong = version.get("ETag", "").startswith('"')
        validator = version["ETag"] if strong else version.get("Last-Modified")
        headers = {}
        if have and validator:
            headers = {"Range": f"bytes={have}-", "If-Range": validator}
        try:
            reply = _open(_request(source, headers))
        except urllib.error.HTTPError as exc:
            if exc.code == 416 and str(have) == version.get("Content-Length"):
                return
            raise
        with reply, open(target, "r+b" if reply.status == 206 else "wb") as file:
            done = file.seek(0, os.SEEK_END)
            length = reply.headers["Content-Length"]
            _receive(reply, file, done, done + int(length) if length else None, progress)


def _receive(reply, file, done, total, progress):
    while block := reply.read(_BLOCK):
        file.write(block)
        done += len(block)
        progress(done, total or done)
    if total is not None and done < total:
        raise http.client.IncompleteRead(b"", total - done)


class Ftp:
    """Images behind ftp://."""

    @contextlib.contextmanager
    def _session(self, source):
        parts = urlsplit(source)
        try:
            with ftplib.FTP(timeout=_TIMEOUT_S) as ftp:
                ftp.connect(parts.hostname, parts.port or ftplib.FTP_PORT)
                ftp.login(unquote(parts.username or ""), unquote(parts.password or ""))
                ftp.voidcmd("TYPE I")
                yield ftp, unquote(parts.path)
        except ftplib.error_perm as exc:
            if str(exc).startswith("550"):
                raise errors.NotFound(f"image {shown(source)} does not exist: {exc}") from exc
            raise errors.ImageError(f"cannot fetch {shown(source)}: {exc}") from exc
        except (ftplib.Error, *_BROKEN) as exc:
            raise errors.ImageError(f"cannot fetch {shown(source)}: {exc}") from exc

    def version(self, source):
        """The size, and the time of the last change where the server tells it."""
        with self._session(source) as (ftp, path):
            found = {"size": str(ftp.size(path))}
            with contextlib.suppress(ftplib.Error):
                found["changed"] = ftp.voidcmd(f"MDTM {path}")
            return found

    def fetch(self, source, target, version, progress):
        """Fetches to ``target``; what is there of the same version is kept and continued."""
        for attempt in range(_ATTEMPTS):
            try:
                self._go_on(source, target, version, progress)
                return
            except errors.ImageError:
                if attempt == _ATTEMPTS - 1:
                    raise
            time.sleep(_PAUSE_S * 2**attempt)

    def _go_on(self, source, target, version, progress):
        total = int(version["size"]) if version["size"].isdigit() else 0
        with self._session(source) as (ftp, path), open(target, "ab") as file:

            def write(block):
                file.write(block)
                progress(file.tell(), total)

            ftp.retrbinary(f"RETR {path}", write, rest=file.tell() or None)
            if file.tell() < total:
                raise EOFError(f"it ended after {file.tell()} of {total} bytes")


def client(source):
    """Who fetches an address of this kind."""
    return Ftp() if source.startswith("ftp:") else Http()


def read_list(url):
    """The text of a small file, such as SHA256SUMS."""
    try:
        with _open(_request(url)) as reply:
            return reply.read(LONGEST_LIST).decode("utf-8", "replace")
    except _BROKEN as exc:
        raise _failed(url, exc) from exc


def remember(part, version):
    """Keeps beside a part which version it is a part of; forgets a part of another version."""
    note = part + ".json"
    try:
        with open(note, encoding="utf-8") as file:
            same = json.load(file) == version
    except (FileNotFoundError, ValueError):
        same = False
    if not same:
        forget(part)
        with open(note, "w", encoding="utf-8") as file:
            json.dump(version, file)


def forget(part):
    """Removes a part and the note beside it."""
    for left in (part, part + ".json"):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(left)
