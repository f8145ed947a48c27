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
from saltvirt.host.storage import bounded

if TYPE_CHECKING:
    from saltvirt.settings import Connection

__all__ = [
    "IMPORT_ERROR",
    "Unread",
    "connect",
    "infos",
    "is_local",
    "keep_events_running",
    "libvirt",
    "named",
    "require_binding",
    "translate",
    "translated",
    "unless_gone",
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
    return units.dotted(libvirt.getVersion())


# who is silent for so many signs of life, so many seconds apart, is taken for gone
_ALIVE_EVERY_S, _ALIVE_TIMES = 5, 5
_KEEPALIVE = "keepalive timeout"

_loop = threading.Lock()
_running: list[threading.Thread] = []


def _turn() -> NoReturn:
    while True:
        libvirt.virEventRunDefaultImpl()


def keep_events_running() -> None:
    """Starts libvirt's event loop in this process, once; keepalive needs it."""
    require_binding()
    with _loop:
        if not _running:
            libvirt.virEventRegisterDefaultImpl()
            thread = threading.Thread(target=_turn, name="libvirt-events", daemon=True)
            thread.start()
            _running.append(thread)


def _known() -> dict[int | None, type[errors.VirtError]]:
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
    kind = _known().get(exc.get_error_code(), errors.OperationFailed)
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
    except bounded.Silent as exc:
        about = f"cannot {doing}: " if doing else ""
        raise errors.OperationFailed(f"{about}{exc.strerror}") from exc
    except libvirt.libvirtError as exc:
        raise translate(exc, doing) from exc
    except (TypeError, ValueError, OverflowError) as exc:
        if not _of_binding(exc):
            raise
        about = f"cannot {doing}: " if doing else ""
        raise errors.InvalidInput(f"{about}libvirt does not take this: {exc}") from exc


@contextlib.contextmanager
def named(
    conn: libvirt.virConnect,
    code: int,
    what: str,
    names: Callable[[libvirt.virConnect], list[str]] | None = None,
) -> Iterator[None]:
    """Makes libvirt's error of this code NotFound: it has none of this name. Any other stays as it
    is. what: the thing and its name. names: what there is instead, to be told."""
    try:
        yield
    except libvirt.libvirtError as exc:
        if exc.get_error_code() != code:
            raise
        there = f"; it has: {', '.join(names(conn)) or 'none'}" if names else ""
        raise errors.NotFound(f"no {what} on {conn.getHostname()}{there}") from exc


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
def unless_gone() -> Iterator[None]:
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

    def answer(asked: list[list[Any]], _opaque: object) -> int:
        for credential in asked:
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


def within(seconds: float, function: Callable[..., _T], *args: object) -> _T:
    """What the function returns or raises. Raises TimeoutError when it takes longer: nothing can
    end a call that waits in libvirt, so it is left behind in its thread."""
    done: queue.SimpleQueue[_T | Exception] = queue.SimpleQueue()

    def work() -> None:
        try:
            done.put(function(*args))
        except Exception as exc:
            done.put(exc)

    threading.Thread(target=work, name="libvirt-call", daemon=True).start()
    try:
        found = done.get(timeout=seconds)
    except queue.Empty:
        raise TimeoutError from None
    if isinstance(found, Exception):
        raise found
    return found


def _opened(settings: Connection) -> libvirt.virConnect:
    where = settings.uri or "the default libvirt"
    try:
        if not _has_daemon(settings.uri):
            return _open(settings)
        keep_events_running()
        conn = within(settings.timeout_s, _open, settings)
    except libvirt.libvirtError as exc:
        raise errors.ConnectionFailed(
            f"cannot connect to {where}: {exc.get_error_message() or exc}"
        ) from exc
    except TimeoutError:
        why = "does libvirtd hang?"
        if _is_remote(settings.uri):
            why = "is its port shut, or does its libvirtd hang?"
        raise errors.ConnectionFailed(
            f"cannot connect to {where}: it does not answer within {settings.timeout_s} s "
            f"(virt:connection:timeout); {why}"
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
    conn = _opened(settings)
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


class Unread(TypedDict):
    """Why a network, a pool or a volume could not be read."""

    error: str


def infos(
    things: Iterable[Any], name: str | None, read: Callable[[Any], _T]
) -> dict[str, _T | Unread]:
    """What ``read`` tells of each of libvirt's things, or of those of a name, by name."""
    found: dict[str, _T | Unread] = {}
    for thing in things:
        if name is None or thing.name() == str(name):
            try:
                found[thing.name()] = read(thing)
            except libvirt.libvirtError as exc:
                found[thing.name()] = {"error": str(translate(exc))}
    return found
