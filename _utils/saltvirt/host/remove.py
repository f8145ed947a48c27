"""Taking a domain's definition away, with what libvirt itself keeps for it."""

from saltvirt import errors
from saltvirt.host import connection, domain
from saltvirt.host.connection import libvirt

# an older daemon or another driver refuses flags that it does not know
_FLAGS_UNKNOWN = ("VIR_ERR_INVALID_ARG", "VIR_ERR_NO_SUPPORT", "VIR_ERR_OPERATION_UNSUPPORTED")


def _flags(*names):
    return sum(getattr(libvirt, f"VIR_DOMAIN_UNDEFINE_{name}", 0) for name in names)


def _attempts(everything):
    if not everything:
        return [_flags("NVRAM"), 0]
    basic = _flags("MANAGED_SAVE", "SNAPSHOTS_METADATA", "NVRAM")
    checkpoints = basic | _flags("CHECKPOINTS_METADATA")
    return [checkpoints | _flags("TPM"), checkpoints, basic, basic & ~_flags("NVRAM"), 0]


def _undefine(dom, everything):
    unknown = {getattr(libvirt, name) for name in _FLAGS_UNKNOWN}
    attempts = list(dict.fromkeys(_attempts(everything)))
    for flags in attempts:
        try:
            return dom.undefineFlags(flags)
        except libvirt.libvirtError as exc:
            if exc.get_error_code() not in unknown or flags == attempts[-1]:
                raise


def undefine(conn, dom, everything=False):
    """Undefines a stopped domain, and confirms that it is gone.

    Its NVRAM goes with it; its saved memory, snapshots and TPM state only with ``everything``:
    without, libvirt refuses while they are there.
    """
    name = dom.name()
    if dom.isActive():
        raise errors.OperationFailed(f"cannot undefine {name}: it runs; stop it first")
    with connection.translated(f"undefine {name}"):
        _undefine(dom, everything)
    if domain.find(conn, name):
        raise errors.OperationFailed(f"cannot undefine {name}: libvirt still lists it")
    return True
