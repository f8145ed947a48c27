"""What a host's answer must look like before anything reads it, and what is taken out of it.

A host may run another version, or have turned bad: what does not fit is an error of that host.
"""

import math

from saltvirt import errors, plain

NUMBER = (int, float)
STATES = {str: str}
_TLS = {"certs": {str: {str: object}}, "trusted": [str], "daemon": str}
_MADE = {"name": str, "pub_key?": (str, None), "disks": [{str: object}]}
# function to what it returns: a type, several of them, [of each], {str: of each value}, or the
# keys that must be there ("key?": may be there)
ANSWERS = {
    "virt.vm_state": STATES,
    "virt.full_info": {str: object},
    "virt.list_domains": [str],
    "virt.names_on_disk": [str],
    "virt.inventory": {"cpus": NUMBER, "memory_kib": NUMBER, "guests?": {str: {str: object}}},
    "virt.leftovers": {
        "guests": STATES, "unfinished": [str], "migrations": {str: {"target": str}}, "left?": [str],
    },
    "virt.migrate_census": {"guests": STATES, "unfinished": [str]},
    "virt.maintenance": ({"guests": [str]}, None),
    "virt.guest_addresses": {str: {str: {str: object}}},
    "virt.list_snapshots": {str: object},
    "virt.snapshot": {"name": str},
    "virt.migrate": {
        "outcome": str, "kept?": {str: str}, "time_ms?": (*NUMBER, None),
        "downtime_ms?": (*NUMBER, None),
    },
    "virt.migrate_recover": {"outcome?": str, "left?": {str: str}},
    "virt.vm_info": {str: object},
    "virt.migrate_unfinished": {str: {str: object}},
    "virt.purge": (
        {"delete?": [str], "keep?": {str: str}, "shared?": {str: object}, "unsure?": [str]},
        bool,
    ),
    "virt.revert_snapshot": {
        "reverted": str, "deleted": ([str], str), "shared?": {str: object}, "own?": {str: object},
    },
    "virt.delete_snapshots": {
        "deleted": {str: object}, "shared?": {str: object}, "own?": {str: object},
    },
    "virt.storage_users": {str: (str, None)},
    "virt.migratable": {"migratable": bool, "reasons": [str]},
    "virt.tls_info": _TLS,
    "virt.tls_update": {"changes": {str: object}, "info": _TLS},
}  # fmt: skip


def fits(data, shape):
    """True when the data is of the shape."""
    if isinstance(shape, tuple):
        return any(fits(data, one) for one in shape)
    if shape is None or isinstance(shape, type):
        return isinstance(data, shape or type(None))
    if not isinstance(data, type(shape)):
        return False
    if isinstance(shape, list):
        return all(fits(one, shape[0]) for one in data)
    if str in shape:
        return all(isinstance(k, str) and fits(v, shape[str]) for k, v in data.items())
    return all(
        fits(data[key.rstrip("?")], of) if key.rstrip("?") in data else key.endswith("?")
        for key, of in shape.items()
    )


def check(fun, kwarg, data):
    """Raises InvalidInput when the answer is none to this question."""
    if fun in ("virt.init", "virt.clone", "virt.rename"):
        good = (kwarg or {}).get("test") or fits(data, _MADE)
    else:
        good = fits(data, ANSWERS.get(fun, object))
    if not good:
        raise errors.InvalidInput(f"its answer to {fun} is not what this version expects")


def clean(data):
    """The data without escape sequences and control characters in any text of it, and None for
    what is no number: infinity and NaN."""
    if isinstance(data, float) and not math.isfinite(data):
        return None
    if isinstance(data, str):
        return plain.text(data)
    if isinstance(data, dict):
        return {clean(key): clean(value) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        return [clean(one) for one in data]
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
