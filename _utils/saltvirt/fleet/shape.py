"""What a host's answer must look like before anything reads it, and what is taken out of it.

A host may run another version, or have turned bad: what does not fit is an error of that host.
"""

import math

from saltvirt import errors, plain

NUMBER = (int, float)
# what is counted or measured: a number from 0 with which one can reckon
COUNT = "count"
_MOST = 2**63
# a chain of 200 backing files is what libvirt's own XML can hold
_DEEP = 400
STATES = {str: str}
_TEXT = (str, None)
_CERT = {"issuer": str, "sha256": str}
_TLS = {"certs": {str: _CERT}, "trusted": [str], "daemon": str, "problems?": [str]}
_SHOWN_CERT = {"host": str, "file": str, "until": str, "wrong?": _TEXT}
_KEY = {"name": str, "pub_key?": _TEXT}
_MADE = {
    "virt.init": {**_KEY, "disks": [{str: object}]},
    "virt.clone": {**_KEY, "disks": [{str: object}]},
    "virt.rename": {**_KEY, "disks": [str]},
}
_DISK = {"size_bytes": COUNT, "path?": _TEXT, "pool?": _TEXT, "shared?": _TEXT}
_STORE = {
    "total_bytes?": COUNT,
    "free_bytes?": COUNT,
    "promised_bytes?": COUNT,
    "shared?": _TEXT,
    "store?": _TEXT,
}
_GUEST = {
    "uuid?": str,
    "state?": str,
    "vcpus?": COUNT,
    "memory_kib?": COUNT,
    "type?": _TEXT,
    "max_memory_kib?": COUNT,
    "page_kib?": (COUNT, None),
    "arch?": _TEXT,
    "cpu_model?": _TEXT,
    "bridges?": [str],
    "networks?": [str],
    "groups?": [str],
    "deployment?": _TEXT,
    "group_policy?": _TEXT,
    "labels?": {str: object},
    "prefer?": {str: object},
    "disks?": [_DISK],
}
_NEEDS = {
    "problem?": _TEXT,
    "vcpus?": COUNT,
    "memory_kib?": COUNT,
    "max_memory_kib?": COUNT,
    "page_kib?": (COUNT, None),
    "disk_bytes?": COUNT,
    "disks?": [_DISK],
    "pools?": {str: COUNT},
    "bridges?": [str],
    "networks?": [str],
    "cpu_model?": _TEXT,
    "cpu_models?": ([str], None),
}
_INVENTORY = {
    "cpus": COUNT,
    "memory_kib": COUNT,
    "guests?": {str: _GUEST},
    "arch?": str,
    "arches?": [str],
    "types?": [str],
    "bridges?": [str],
    "networks?": [str],
    "images?": [str],
    "hugepages?": {str: COUNT},
    "hugepage_kib?": (COUNT, None),
    "stores?": {str: _STORE},
    "pools?": {str: _STORE},
    "images_folder?": _STORE,
    "mounts?": STATES,
    "maintenance?": _TEXT,
    "arriving?": {str: {"vcpus": COUNT, "memory_kib": COUNT, "page_kib?": (COUNT, None)}},
    "guest?": (_NEEDS, None),
}
_SHOWN = {
    "graphics?": ({str: object}, None),
    "disks?": ({str: {str: object}}, None),
    "nics?": ({str: {str: object}}, None),
    "state?": str,
}
_MADE_DISKS = {"what": str, "disks": [str], "unsure": STATES}
_PURGED = (
    {"delete?": [str], "keep?": {str: str}, "shared?": {str: object}, "unsure?": [str]},
    bool,
)
_SNAPSHOT = {"name": str, "parent": _TEXT, "current": bool}
# function to what it returns: a type, several of them, COUNT, [of each], {str: of each value}, or
# the keys that must be there ("key?": may be there)
ANSWERS = {
    "virt.vm_state": STATES,
    "virt.full_info": {"vm_info?": ({str: _SHOWN}, None)},
    "virt.list_domains": [str],
    "virt.names_on_disk": [str],
    "virt.inventory": _INVENTORY,
    "virt.leftovers": {
        "guests": STATES, "unfinished": [str], "migrations": {str: {"target": str}}, "left?": [str],
        "leavings?": [str],
        "at_work?": {str: str}, "operations?": STATES, "made?": {str: _MADE_DISKS},
    },
    "virt.migrate_census": {"guests": STATES, "unfinished": [str], "leavings?": [str]},
    "virt.maintenance": ({"guests": [str]}, None),
    "virt.guest_addresses": {str: {str: {str: object}}},
    "virt.list_snapshots": {str: ([_SNAPSHOT], {"error": str}, str)},
    "virt.snapshot": {"name": str},
    "virt.migrate": {
        "outcome": str, "kept?": {str: str}, "time_ms?": (*NUMBER, None),
        "downtime_ms?": (*NUMBER, None),
    },
    "virt.migrate_recover": {
        "outcome?": str, "left?": {str: str}, "deleted?": [str], "kept?": {str: str},
    },
    "virt.migrate_clean": {
        "delete?": [str], "keep?": {str: str}, "shared?": {str: object}, "deleted?": [str],
        "kept?": {str: str},
    },
    "virt.vm_info": {str: _SHOWN},
    "virt.migrate_unfinished": {str: {str: object}},
    "virt.purge": _PURGED, "virt.remove_made": _PURGED,
    "virt.revert_snapshot": {
        "reverted": str, "deleted": ([str], str), "shared?": {str: object}, "own?": {str: object},
    },
    "virt.delete_snapshots": {
        "deleted": {str: object}, "shared?": {str: object}, "own?": {str: object},
    },
    "virt.shared_disks": {str: str},
    "virt.storage_users": {str: (str, None)},
    "virt.migratable": {
        "migratable": bool, "reasons": [str], "standing?": bool, "disks?": (STATES, None),
        "certificates?": ([_SHOWN_CERT], None),
    },
    "virt.tls_info": _TLS,
    "virt.tls_update": {"changes": {str: object}, "info": _TLS},
}  # fmt: skip


def fits(data, shape):
    """True when the data is of the shape."""
    if isinstance(shape, tuple):
        return any(fits(data, one) for one in shape)
    if shape is None or isinstance(shape, type):
        return isinstance(data, shape or type(None))
    if shape is COUNT or not isinstance(data, type(shape)):
        return shape is COUNT and _counts(data)
    if isinstance(shape, list):
        return all(fits(one, shape[0]) for one in data)
    if str in shape:
        return all(isinstance(k, str) and fits(v, shape[str]) for k, v in data.items())
    return all(
        fits(data[key.rstrip("?")], of) if key.rstrip("?") in data else key.endswith("?")
        for key, of in shape.items()
    )


def _counts(data):
    return isinstance(data, NUMBER) and not isinstance(data, bool) and 0 <= data < _MOST


def check(fun, kwarg, data):
    """Raises InvalidInput when the answer is none to this question."""
    if fun in _MADE:
        good = fits(data, {str: object} if (kwarg or {}).get("test") else _MADE[fun])
    else:
        good = fits(data, ANSWERS.get(fun, object))
    if not good:
        raise errors.InvalidInput(f"its answer to {fun} is not what this version expects")


def clean(data, depth=0):
    """The data without escape sequences and control characters in any text of it, text for bytes,
    and None for what is no number: infinity and NaN.

    depth: how deep in the data this is. Raises RecursionError where it is nested more deeply than
    any answer is meant to be: how deep Python itself goes is another number in each version.
    """
    if depth > _DEEP:
        raise RecursionError(f"nested more than {_DEEP} deep")
    if isinstance(data, (bytes, bytearray)):
        data = data.decode(errors="replace")
    if isinstance(data, float) and not math.isfinite(data):
        return None
    if isinstance(data, str):
        return plain.text(data)
    if isinstance(data, dict):
        return {clean(key): clean(value, depth + 1) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        return [clean(one, depth + 1) for one in data]
    return data


def seconds(said):
    """A time that a host tells, None when it is none."""
    good = isinstance(said, NUMBER) and not isinstance(said, bool)
    return said if good and math.isfinite(said) and said >= 0 else None


def step(said):
    """What a host says of its steps, with the number that is to be one."""
    found = clean(said)
    percent = found.get("percent")
    if percent is not None and (isinstance(percent, bool) or not isinstance(percent, NUMBER)):
        del found["percent"]
    return found
