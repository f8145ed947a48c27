"""Connect to libvirt and translate its errors.

A hanging libvirt is distinguished from a busy one: it must accept the connection within
``virt:connection:timeout`` seconds, and it must answer a keepalive message every few seconds,
however long a request takes.
"""

from __future__ import annotations

import contextlib
import queue
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NoReturn, TypedDict, TypeVar
from urllib.parse import urlsplit

import saltvirt
from saltvirt import errors, units
from saltvirt.system import bounded_io

if TYPE_CHECKING:
    from saltvirt.settings import Connection

__all__ = [
    "IMPORT_ERROR",
    "ReadFailure",
    "as_not_found",
    "connect",
    "infos",
    "is_local",
    "keep_events_running",
    "libvirt",
    "require_binding",
    "skip_undefined",
    "translate",
    "translated",
]

_T = TypeVar("_T")

try:
    import libvirt

    IMPORT_ERROR: ImportError | None = None
    # libvirt prints every error to stderr unless an error handler is registered
    libvirt.registerErrorHandler(lambda _context, _error: None, None)
except ImportError as exc:
    libvirt = None  # type: ignore[assignment]
    IMPORT_ERROR = exc


def require_binding() -> None:
    """Raise BindingMissing, with the ImportError and the Python that lacks the binding."""
    if IMPORT_ERROR is not None:
        raise errors.BindingMissing(
            f"the libvirt binding is missing in {sys.executable}: {IMPORT_ERROR}. Install it "
            f"there: {sys.executable} -m pip install libvirt-python (needs libvirt-dev, pkg-config "
            "and a C compiler), or apply the formula's libvirt.python state"
        )


def library_version() -> str | None:
    """Return the version of libvirt's library, such as ``9.0.0``; None without the binding."""
    if IMPORT_ERROR is not None:
        return None
    return units.version_text(libvirt.getVersion())


# keepalive: seconds between messages, and unanswered messages after which a peer is dead
_ALIVE_EVERY_S, _ALIVE_TIMES = 5, 5
_KEEPALIVE = "keepalive timeout"

_loop = threading.Lock()
_running: list[threading.Thread] = []


def _run_event_loop() -> NoReturn:
    while True:
        libvirt.virEventRunDefaultImpl()


def keep_events_running() -> None:
    """Start libvirt's event loop in this process, once; keepalive needs it."""
    require_binding()
    with _loop:
        if not _running:
            libvirt.virEventRegisterDefaultImpl()
            thread = threading.Thread(target=_run_event_loop, name="libvirt-events", daemon=True)
            thread.start()
            _running.append(thread)


def _error_classes() -> dict[int | None, type[errors.VirtError]]:
    """Return the exception class for each libvirt error code that has its own class."""
    return {
        libvirt.VIR_ERR_NO_DOMAIN: errors.NotFound,
        libvirt.VIR_ERR_NO_NETWORK: errors.NotFound,
        libvirt.VIR_ERR_NO_STORAGE_POOL: errors.NotFound,
        libvirt.VIR_ERR_NO_STORAGE_VOL: errors.NotFound,
        libvirt.VIR_ERR_NO_DOMAIN_SNAPSHOT: errors.NotFound,
        libvirt.VIR_ERR_NO_NODE_DEVICE: errors.NotFound,
        libvirt.VIR_ERR_NO_SECRET: errors.NotFound,
        libvirt.VIR_ERR_DOM_EXIST: errors.AlreadyExists,
        libvirt.VIR_ERR_NETWORK_EXIST: errors.AlreadyExists,
        libvirt.VIR_ERR_STORAGE_VOL_EXIST: errors.AlreadyExists,
        libvirt.VIR_ERR_NO_SUPPORT: errors.Unsupported,
        libvirt.VIR_ERR_CONFIG_UNSUPPORTED: errors.Unsupported,
        libvirt.VIR_ERR_OPERATION_UNSUPPORTED: errors.Unsupported,
        libvirt.VIR_ERR_NO_CONNECT: errors.ConnectionFailed,
        libvirt.VIR_ERR_AUTH_FAILED: errors.ConnectionFailed,
        libvirt.VIR_ERR_AUTH_CANCELLED: errors.ConnectionFailed,
        libvirt.VIR_ERR_NO_SERVER: errors.ConnectionFailed,
        libvirt.VIR_ERR_XML_ERROR: errors.InvalidInput,
        libvirt.VIR_ERR_XML_DETAIL: errors.InvalidInput,
        libvirt.VIR_ERR_INVALID_ARG: errors.InvalidInput,
    }


def translate(exc: libvirt.libvirtError, doing: str | None = None) -> errors.VirtError:
    """Return the VirtError for a libvirtError, with libvirt's own message.

    doing: the failed action, such as ``start web1``; the message begins with it.
    """
    kind = _error_classes().get(exc.get_error_code(), errors.OperationFailed)
    text = " ".join(str(exc.get_error_message() or exc).split())
    if _KEEPALIVE in text:
        kind, text = errors.ConnectionFailed, f"libvirt does not answer any more: {text}"
    return kind(f"cannot {doing}: {text}" if doing else text)


@contextlib.contextmanager
def translated(doing: str | None = None) -> Iterator[None]:
    """Translate every libvirtError in the block into a VirtError, see :func:`translate`; so are
    timeouts of storage."""
    require_binding()
    try:
        yield
    except bounded_io.StorageTimeout as exc:
        prefix = f"cannot {doing}: " if doing else ""
        raise errors.OperationFailed(f"{prefix}{exc.strerror}") from exc
    except libvirt.libvirtError as exc:
        raise translate(exc, doing) from exc
    except (TypeError, ValueError, OverflowError) as exc:
        if not _of_binding(exc):
            raise
        prefix = f"cannot {doing}: " if doing else ""
        raise errors.InvalidInput(f"{prefix}libvirt rejects this argument: {exc}") from exc


@contextlib.contextmanager
def as_not_found(
    conn: libvirt.virConnect,
    code: int,
    label: str,
    names: Callable[[libvirt.virConnect], list[str]] | None = None,
) -> Iterator[None]:
    """Translate libvirt's errors with this code into NotFound; other errors pass. label: the kind
    and name of the missing object. names: lists the names that exist, for the message."""
    try:
        yield
    except libvirt.libvirtError as exc:
        if exc.get_error_code() != code:
            raise
        available = f"; it has: {', '.join(names(conn)) or 'none'}" if names else ""
        raise errors.NotFound(f"no {label} on {conn.getHostname()}{available}") from exc


def _of_binding(exc: Exception) -> bool:
    """Return whether libvirt's binding itself rejected an argument: a wrong type, a number that is
    too large, or a text that cannot be a C string."""
    trace = exc.__traceback__
    while trace is not None and trace.tb_next:
        trace = trace.tb_next
    return trace is not None and trace.tb_frame.f_code.co_filename == libvirt.__file__


def is_local(conn: libvirt.virConnect) -> bool:
    """Return whether the connection is to this machine, so that its files can be read."""
    return urlsplit(conn.getURI()).hostname in (None, "", "localhost")


@contextlib.contextmanager
def skip_undefined() -> Iterator[None]:
    """Ignore a domain that was undefined or migrated away after it was listed.

    Any other error is raised: what a domain uses must not be taken for unused.
    """
    try:
        yield
    except libvirt.libvirtError as exc:
        if exc.get_error_code() != libvirt.VIR_ERR_NO_DOMAIN:
            raise


def _credentials(settings: Connection) -> list[Any]:
    kinds = [libvirt.VIR_CRED_AUTHNAME, libvirt.VIR_CRED_PASSPHRASE]

    def answer(credentials: list[list[Any]], _opaque: object) -> int:
        for credential in credentials:
            value = settings.username if credential[0] == kinds[0] else settings.password
            credential[4] = value or ""
        return 0

    return [kinds, answer, None]


def _has_daemon(uri: str | None) -> bool:
    """Return whether libvirt's driver runs in another process; test and embedded drivers do not."""
    return not (uri or "").startswith("test:") and "/embed" not in (uri or "")


def _is_remote(uri: str | None) -> bool:
    """Return whether the URI is of another host's libvirt."""
    return bool(urlsplit(uri or "").netloc)


def _open(settings: Connection) -> libvirt.virConnect:
    if settings.username or settings.password:
        return libvirt.openAuth(settings.uri, _credentials(settings), 0)
    return libvirt.open(settings.uri)


def run_with_timeout(seconds: float, function: Callable[..., _T], *args: object) -> _T:
    """Return or raise what the function returns or raises. Raise TimeoutError after the given time:
    a call that waits in libvirt cannot be interrupted, so its thread is abandoned."""
    result_queue: queue.SimpleQueue[_T | Exception] = queue.SimpleQueue()

    def work() -> None:
        try:
            result_queue.put(function(*args))
        except Exception as exc:
            result_queue.put(exc)

    threading.Thread(target=work, name="libvirt-call", daemon=True).start()
    try:
        result = result_queue.get(timeout=seconds)
    except queue.Empty:
        raise TimeoutError from None
    if isinstance(result, Exception):
        raise result
    return result


# what libvirt reports about a TLS connection -> the state that mends it
_REMEDIES = {
    "Cannot read CA certificate": "this host has no certificates: apply libvirt.keys to it",
    "Connection refused": "its TLS socket does not listen: apply libvirt.service to it",
}


def _remedy(uri: str | None, reason: str) -> str:
    if "+tls:" not in (uri or ""):
        return ""
    return next((f"; {text}" for message, text in _REMEDIES.items() if message in reason), "")


def _open_with_timeout(settings: Connection) -> libvirt.virConnect:
    endpoint = settings.uri or "the default libvirt"
    try:
        if not _has_daemon(settings.uri):
            return _open(settings)
        keep_events_running()
        conn = run_with_timeout(settings.timeout_s, _open, settings)
    except libvirt.libvirtError as exc:
        reason = exc.get_error_message() or str(exc)
        raise errors.ConnectionFailed(
            f"cannot connect to {endpoint}: {reason}{_remedy(settings.uri, reason)}"
        ) from exc
    except TimeoutError:
        hint = "does libvirtd hang?"
        if _is_remote(settings.uri):
            hint = "is its port closed, or does its libvirtd hang?"
        raise errors.ConnectionFailed(
            f"cannot connect to {endpoint}: it does not answer within {settings.timeout_s} s "
            f"(virt:connection:timeout); {hint}"
        ) from None
    with contextlib.suppress(libvirt.libvirtError):  # a driver of this process
        conn.setKeepAlive(_ALIVE_EVERY_S, _ALIVE_TIMES)
    return conn


@contextlib.contextmanager
def connect(settings: Connection) -> Iterator[libvirt.virConnect]:
    """Open a libvirt connection for the block and always close it.

    settings: saltvirt.settings.Connection. Yields a libvirt.virConnect; a libvirtError in the block
    is translated. Raises BindingMissing, StaleLibrary, and ConnectionFailed, also if libvirt ends
    during the block.
    """
    saltvirt.check()
    require_binding()
    conn = _open_with_timeout(settings)
    try:
        with translated():
            yield conn
    except errors.OperationFailed as exc:
        if not isinstance(exc.__cause__, libvirt.libvirtError) or conn.isAlive():
            raise
        raise errors.ConnectionFailed(
            f"libvirt was restarted or stopped during the request: {exc.text}"
        ) from exc.__cause__
    finally:
        with contextlib.suppress(libvirt.libvirtError):
            conn.close()


class ReadFailure(TypedDict):
    """The reason that a network, a pool or a volume could not be read."""

    error: str


def infos(
    items: Iterable[Any], name: str | None, read: Callable[[Any], _T]
) -> dict[str, _T | ReadFailure]:
    """Return what ``read`` returns for each of libvirt's objects, or for one name, by name."""
    results: dict[str, _T | ReadFailure] = {}
    for item in items:
        if name is None or item.name() == str(name):
            try:
                results[item.name()] = read(item)
            except libvirt.libvirtError as exc:
                results[item.name()] = {"error": str(translate(exc))}
    return results
