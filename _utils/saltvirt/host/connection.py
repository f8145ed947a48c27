"""The one way to libvirt, and the one place where its errors become ours.

A libvirt that hangs is told from one that is at work: it must let us in within
``virt:connection:timeout`` seconds, and answers a sign of life every few seconds, however long
what we asked of it takes.
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
from saltvirt.host.storage import bounded_io

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
    # libvirt prints every error to stderr by itself unless it is told not to
    libvirt.registerErrorHandler(lambda _context, _error: None, None)
except ImportError as exc:
    libvirt = None  # type: ignore[assignment]
    IMPORT_ERROR = exc


def require_binding() -> None:
    """Raises BindingMissing with the real ImportError and the Python that lacks it."""
    if IMPORT_ERROR is not None:
        raise errors.BindingMissing(
            f"the libvirt binding is missing in {sys.executable}: {IMPORT_ERROR}. "
            f"Install it there: {sys.executable} -m pip install libvirt-python "
            "(needs libvirt-dev, pkg-config and a C compiler), or apply the formula's "
            "libvirt.python state"
        )


def library_version() -> str | None:
    """Of libvirt's library, such as ``9.0.0``; None without the binding."""
    if IMPORT_ERROR is not None:
        return None
    return units.version_text(libvirt.getVersion())


# who is silent for so many signs of life, so many seconds apart, is taken for gone
_ALIVE_EVERY_S, _ALIVE_TIMES = 5, 5
_KEEPALIVE = "keepalive timeout"

_loop = threading.Lock()
_running: list[threading.Thread] = []


def _run_event_loop() -> NoReturn:
    while True:
        libvirt.virEventRunDefaultImpl()


def keep_events_running() -> None:
    """Starts libvirt's event loop in this process, once; keepalive needs it."""
    require_binding()
    with _loop:
        if not _running:
            libvirt.virEventRegisterDefaultImpl()
            thread = threading.Thread(target=_run_event_loop, name="libvirt-events", daemon=True)
            thread.start()
            _running.append(thread)


def _error_classes() -> dict[int | None, type[errors.VirtError]]:
    """libvirt's error codes that have a class of their own here."""
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
    """Our exception for a libvirtError, with libvirt's own words.

    doing: what failed, e.g. ``start web1``; the message begins with it.
    """
    kind = _error_classes().get(exc.get_error_code(), errors.OperationFailed)
    text = " ".join(str(exc.get_error_message() or exc).split())
    if _KEEPALIVE in text:
        kind, text = errors.ConnectionFailed, f"libvirt does not answer any more: {text}"
    return kind(f"cannot {doing}: {text}" if doing else text)


@contextlib.contextmanager
def translated(doing: str | None = None) -> Iterator[None]:
    """Turns every libvirtError of the block into one of ours, see :func:`translate`; and it is one
    where storage does not answer."""
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
        raise errors.InvalidInput(f"{prefix}libvirt does not take this: {exc}") from exc


@contextlib.contextmanager
def as_not_found(
    conn: libvirt.virConnect,
    code: int,
    label: str,
    names: Callable[[libvirt.virConnect], list[str]] | None = None,
) -> Iterator[None]:
    """Makes libvirt's error of this code NotFound: it has none of this name. Any other stays as it
    is. label: the thing and its name. names: what there is instead, to be told."""
    try:
        yield
    except libvirt.libvirtError as exc:
        if exc.get_error_code() != code:
            raise
        available = f"; it has: {', '.join(names(conn)) or 'none'}" if names else ""
        raise errors.NotFound(f"no {label} on {conn.getHostname()}{available}") from exc


def _of_binding(exc: Exception) -> bool:
    """Whether libvirt's binding itself refused an argument: of another type, a number too large
    for it, or a text that C has no word for."""
    trace = exc.__traceback__
    while trace is not None and trace.tb_next:
        trace = trace.tb_next
    return trace is not None and trace.tb_frame.f_code.co_filename == libvirt.__file__


def is_local(conn: libvirt.virConnect) -> bool:
    """Whether the connection is to this machine, whose files can be looked at."""
    return urlsplit(conn.getURI()).hostname in (None, "", "localhost")


@contextlib.contextmanager
def skip_undefined() -> Iterator[None]:
    """Passes over a domain that was undefined, or migrated away, since it was listed.

    Any other error is one: what a domain uses must not be taken for unused.
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
    """Whether libvirt's driver is in another process: all but those for tests and embedded ones."""
    return not (uri or "").startswith("test:") and "/embed" not in (uri or "")


def _is_remote(uri: str | None) -> bool:
    """Whether it is the libvirt of another host."""
    return bool(urlsplit(uri or "").netloc)


def _open(settings: Connection) -> libvirt.virConnect:
    if settings.username or settings.password:
        return libvirt.openAuth(settings.uri, _credentials(settings), 0)
    return libvirt.open(settings.uri)


def run_with_timeout(seconds: float, function: Callable[..., _T], *args: object) -> _T:
    """What the function returns or raises. Raises TimeoutError when it takes longer: nothing can
    end a call that waits in libvirt, so it is left behind in its thread."""
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


def _open_with_timeout(settings: Connection) -> libvirt.virConnect:
    endpoint = settings.uri or "the default libvirt"
    try:
        if not _has_daemon(settings.uri):
            return _open(settings)
        keep_events_running()
        conn = run_with_timeout(settings.timeout_s, _open, settings)
    except libvirt.libvirtError as exc:
        raise errors.ConnectionFailed(
            f"cannot connect to {endpoint}: {exc.get_error_message() or exc}"
        ) from exc
    except TimeoutError:
        hint = "does libvirtd hang?"
        if _is_remote(settings.uri):
            hint = "is its port shut, or does its libvirtd hang?"
        raise errors.ConnectionFailed(
            f"cannot connect to {endpoint}: it does not answer within {settings.timeout_s} s "
            f"(virt:connection:timeout); {hint}"
        ) from None
    with contextlib.suppress(libvirt.libvirtError):  # a driver of this process
        conn.setKeepAlive(_ALIVE_EVERY_S, _ALIVE_TIMES)
    return conn


@contextlib.contextmanager
def connect(settings: Connection) -> Iterator[libvirt.virConnect]:
    """A libvirt connection for the block, always closed after it.

    settings: saltvirt.settings.Connection.
    Yields a libvirt.virConnect; a libvirtError in the block becomes one of ours.
    Raises BindingMissing, ConnectionFailed, also where libvirt ends meanwhile, StaleLibrary.
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
            f"libvirt was restarted, or ended, while it was asked: {exc.text}"
        ) from exc.__cause__
    finally:
        with contextlib.suppress(libvirt.libvirtError):
            conn.close()


class ReadFailure(TypedDict):
    """Why a network, a pool or a volume could not be read."""

    error: str


def infos(
    items: Iterable[Any], name: str | None, read: Callable[[Any], _T]
) -> dict[str, _T | ReadFailure]:
    """What ``read`` tells of each of libvirt's things, or of those of a name, by name."""
    results: dict[str, _T | ReadFailure] = {}
    for item in items:
        if name is None or item.name() == str(name):
            try:
                results[item.name()] = read(item)
            except libvirt.libvirtError as exc:
                results[item.name()] = {"error": str(translate(exc))}
    return results
