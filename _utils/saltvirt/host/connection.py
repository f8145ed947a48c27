"""The one way to libvirt, and the one place where its errors become ours."""

import contextlib
import sys

import saltvirt
from saltvirt import errors

try:
    import libvirt

    IMPORT_ERROR = None
    # libvirt prints every error to stderr by itself unless it is told not to
    libvirt.registerErrorHandler(lambda _context, _error: None, None)
except ImportError as exc:
    libvirt = None
    IMPORT_ERROR = exc


def require_binding():
    """Raises BindingMissing with the real ImportError and the Python that lacks it."""
    if libvirt is None:
        raise errors.BindingMissing(
            f"the libvirt binding is missing in {sys.executable}: {IMPORT_ERROR}. "
            f"Install it there: {sys.executable} -m pip install libvirt-python "
            "(needs libvirt-dev, pkg-config and a C compiler), or apply the formula's "
            "libvirt.python state"
        )


def _known():
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


def translate(exc, doing=None):
    """Our exception for a libvirtError, with libvirt's own words.

    doing: what failed, e.g. ``start web1``; the message begins with it.
    """
    kind = _known().get(exc.get_error_code(), errors.OperationFailed)
    text = " ".join(str(exc.get_error_message() or exc).split())
    return kind(f"cannot {doing}: {text}" if doing else text)


@contextlib.contextmanager
def translated(doing=None):
    """Turns every libvirtError of the block into one of ours, see :func:`translate`."""
    require_binding()
    try:
        yield
    except libvirt.libvirtError as exc:
        raise translate(exc, doing) from exc


@contextlib.contextmanager
def unless_gone():
    """Passes over a domain that was undefined, or migrated away, since it was listed.

    Any other error is one: what a domain uses must not be taken for unused.
    """
    try:
        yield
    except libvirt.libvirtError as exc:
        if exc.get_error_code() != libvirt.VIR_ERR_NO_DOMAIN:
            raise


def _credentials(settings):
    kinds = [libvirt.VIR_CRED_AUTHNAME, libvirt.VIR_CRED_PASSPHRASE]

    def answer(asked, _opaque):
        for credential in asked:
            value = settings.username if credential[0] == kinds[0] else settings.password
            credential[4] = value or ""
        return 0

    return [kinds, answer, None]


@contextlib.contextmanager
def connect(settings):
    """A libvirt connection for the block, always closed after it.

    settings: saltvirt.settings.Connection.
    Yields a libvirt.virConnect; a libvirtError in the block becomes one of ours.
    Raises BindingMissing, ConnectionFailed, StaleLibrary.
    """
    saltvirt.check()
    require_binding()
    where = settings.uri or "the default libvirt"
    try:
        if settings.username or settings.password:
            conn = libvirt.openAuth(settings.uri, _credentials(settings), 0)
        else:
            conn = libvirt.open(settings.uri)
    except libvirt.libvirtError as exc:
        raise errors.ConnectionFailed(
            f"cannot connect to {where}: {exc.get_error_message() or exc}"
        ) from exc
    try:
        with translated():
            yield conn
    finally:
        with contextlib.suppress(libvirt.libvirtError):
            conn.close()
