"""The operator's configuration.

``get`` is Salt's ``config.get`` (or any function of key and default): it reads the minion's
configuration, grains, pillar and the master's configuration. Both forms are supported:
``virt:images`` and the old dotted ``virt.images``. ``of_master`` returns the ``get`` of a master's
configuration.

Each reader returns a value of its type, or raises InvalidInput with the setting, the expected and
the actual value. An empty value means "not set". An unknown key (``KEYS``) is refused when another
key of its section is read: below ``virt`` in a master's own configuration, and in each section of
Salt Virt everywhere. A minion's pillar may have other keys below ``virt``.
"""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, overload

from saltvirt import units
from saltvirt.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Iterable

# as in Salt's documentation
IMAGES_FOLDER = "/srv/salt-images"
# the arguments that override the configured connection for one call
CONNECTION = ("connection", "username", "password")
# timeout of a connection to libvirt
TIMEOUT_S = 20

# all keys below virt, as passed to option(); see docs/reference/configuration.md
KEYS = (
    "attempts", "backup:address", "backup:at_once_per_host", "backup:at_once_per_target",
    "backup:bandwidth", "backup:chain", "backup:port", "backup:retention",
    "backup:scratch_mib", "backup:target", "backup:targets",
    "connection:auth:password", "connection:auth:username", "connection:timeout",
    "connection:uri", "disk", "exclude",
    "ha:beat_s", "ha:clock_drift", "ha:feed_lease_s", "ha:fence_retry_s", "ha:fence_window_s",
    "ha:lead_lease_s", "ha:leases", "ha:margin_s", "ha:masters", "ha:max_fences", "ha:members",
    "ha:name", "ha:pools", "ha:port", "ha:reserve", "ha:reserve_policy", "ha:shutdown_policy",
    "ha:shutdown_wait_s", "ha:stable_s", "ha:starts_at_once", "ha:storage_lost_s",
    "ha:suspect_s", "ha:watchdog_s",
    "hosts", "image_copies", "images", "inits_at_once",
    "job_timeout", "labels", "lock", "migration:address", "migration:at_once",
    "migration:at_once_per_host", "migration:bandwidth", "migration:disks_port",
    "migration:downtime_step", "migration:longest_pause", "migration:policy",
    "migration:stall_timeout", "migration:timeout", "migration:timeout_per_gib", "nic",
    "overcommit", "pki:ca_days", "pki:ca_name", "pki:country", "pki:days", "pki:domain", "pki:key",
    "pki:locality", "pki:mode", "pki:names", "pki:organization", "pki:state", "pki:trust_grains",
    "placement", "queue_timeout", "ratios", "reach:addresses", "reach:port",
    "rights:eauth", "rights:grants", "rights:groups", "rights:quotas",
    "screenshots", "seed:backend", "seed:bootstrap",
    "seed:bootstrap_args", "seed:config", "seed:install", "seed:keysize", "seed:reset_machine_id",
    "seed:reset_ssh_keys", "stall_timeout", "storagepool", "tunnel",
)  # fmt: skip

# Salt's config.get, or any function of a key and a default
Get = Callable[[str, Any], Any]

_MISSING = object()
# default limit: seconds that every clock can wait
_MAX_INTEGER = 2**31 - 1
_UNFIT = re.compile("[\\x00-\\x1f\\x7f\\ud800-\\udfff]")


def option(get: Get, key: str, default: Any = None) -> Any:
    """The value of ``virt:<key>``, of the dotted ``virt.<key>``, or the default.

    key: without the leading ``virt``, for example ``images`` or ``connection:uri``.
    """
    for name in (f"virt:{key}", "virt." + key.replace(":", ".")):
        value = get(name, _MISSING)
        if value is not _MISSING and value is not None and value != "":
            return value
    _sections(get, key)
    return default


def _sections(get: Get, key: str) -> None:
    """Raise InvalidInput if a section of the key is not a dictionary, or has an unknown key, which
    may be the misspelt setting."""
    parts = ["virt", *key.split(":")[:-1]]
    for end in range(1, len(parts) + 1):
        section_path = ":".join(parts[:end])
        section = get(section_path, None)
        if section in (None, ""):
            continue
        if not isinstance(section, Mapping):
            raise InvalidInput(f"{section_path} must be a mapping, not {units.short_repr(section)}")
        if end > 1 or isinstance(get, Master):
            _check_keys(section_path, section)


@functools.cache
def _known_keys(section_path: str) -> list[str]:
    """Return the keys of a section, sorted."""
    begin = f"{section_path}:".removeprefix("virt:")
    return sorted({key[len(begin) :].split(":")[0] for key in KEYS if key.startswith(begin)})


def _check_keys(section_path: str, section: Mapping[Any, Any]) -> None:
    """Raise InvalidInput, with the closest valid key, for an unknown key."""
    known_keys = _known_keys(section_path)
    for key in section:
        if key not in known_keys:
            near = difflib.get_close_matches(key, known_keys, n=1) if isinstance(key, str) else []
            hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(known_keys)}"
            raise InvalidInput(f"{section_path}: unknown setting {units.short_repr(key)}; {hint}")


class Master:
    """The ``get`` function of a master's own configuration."""

    def __init__(self, opts: Mapping[str, Any]) -> None:
        self._opts = opts

    def __call__(self, key: str, default: Any = None) -> Any:
        value = self._opts
        for word in key.split(":"):
            if not isinstance(value, Mapping) or word not in value:
                return default
            value = value[word]
        return value


def of_master(opts: Mapping[str, Any]) -> Master:
    """Return the ``get`` function of a master's configuration."""
    return Master(opts)


def invalid(key: str, value: object, expected: str) -> InvalidInput:
    """The InvalidInput for ``virt:<key>``."""
    return InvalidInput(f"virt:{key} must be {expected}, not {units.short_repr(value)}")


@overload
def integer(get: Get, key: str, default: int, maximum: int = _MAX_INTEGER) -> int: ...
@overload
def integer(get: Get, key: str, default: None, maximum: int = _MAX_INTEGER) -> int | None: ...
def integer(get: Get, key: str, default: int | None, maximum: int = _MAX_INTEGER) -> int | None:
    """An integer from 1."""
    value = option(get, key, default)
    if value is None:
        return None
    fits = isinstance(value, (int, str)) and not isinstance(value, bool)
    digits = isinstance(value, int) or (fits and re.fullmatch("[0-9]{1,20}", value.strip()))
    if not fits or not digits or not 1 <= int(value) <= maximum:
        bounds = "from 1" if maximum == _MAX_INTEGER else f"from 1 to {maximum}"
        raise invalid(key, value, f"a whole number {bounds}")
    return int(value)


@overload
def number(get: Get, key: str, default: float) -> float: ...
@overload
def number(get: Get, key: str, default: None = None) -> float | None: ...
def number(get: Get, key: str, default: float | None = None) -> float | None:
    """A number from 0, integer or not."""
    value = option(get, key, default)
    return None if value is None else units.parse_number(value, f"virt:{key}")


def boolean(get: Get, key: str, default: bool) -> bool:
    """True or False."""
    value = option(get, key, default)
    if not isinstance(value, bool):
        raise invalid(key, value, "True or False")
    return value


@overload
def text(get: Get, key: str, default: str) -> str: ...
@overload
def text(get: Get, key: str, default: None = None) -> str | None: ...
def text(get: Get, key: str, default: str | None = None) -> str | None:
    """A text of one line; a number is converted as YAML reads it."""
    value = option(get, key, default)
    if isinstance(value, int) and not isinstance(value, bool):
        value = units.short_repr(value)
    if value is not None and (not isinstance(value, str) or _UNFIT.search(value)):
        raise invalid(key, value, "a text of one line")
    return value


def folder(get: Get, key: str, default: str) -> str:
    """An absolute path."""
    value = text(get, key, default)
    if not value.startswith("/"):
        raise invalid(key, value, "an absolute path")
    return value


@overload
def choice(get: Get, key: str, default: str, choices: Iterable[str]) -> str: ...
@overload
def choice(get: Get, key: str, default: None, choices: Iterable[str]) -> str | None: ...
def choice(get: Get, key: str, default: str | None, choices: Iterable[str]) -> str | None:
    """One of the words."""
    value = option(get, key, default)
    if not isinstance(value, (str, type(None))) or value not in (*choices, default):
        raise invalid(key, value, f"one of {', '.join(choices)}")
    return value


def mapping(get: Get, key: str) -> dict[str, Any]:
    """A dictionary; ``{}`` if not set."""
    value = option(get, key, {})
    if not isinstance(value, Mapping):
        raise invalid(key, value, "a mapping")
    return dict(value)


def name_list(get: Get, key: str) -> tuple[str, ...]:
    """A tuple of texts, from a list or from text with commas."""
    value = option(get, key, ())
    items = value.split(",") if isinstance(value, str) else value
    fits = isinstance(items, (list, tuple)) and all(isinstance(item, str) for item in items)
    if not fits or any(_UNFIT.search(item) for item in items):
        raise invalid(key, value, "a list of names")
    return tuple(item.strip() for item in items if item.strip())


@dataclass(frozen=True)
class Connection:
    """The libvirt to connect to, and the credentials. ``uri=None``: libvirt's default."""

    uri: str | None = None
    username: str | None = None
    password: str | None = None
    timeout_s: int = TIMEOUT_S

    def __repr__(self) -> str:
        return f"Connection(uri={self.uri!r}, username={self.username!r})"


def _text(value: object, setting: str) -> str | None:
    """A text that libvirt accepts, or None. Errors do not contain it, because it may be a
    password."""
    if isinstance(value, int) and not isinstance(value, bool):
        value = units.short_repr(value)  # as YAML reads it
    if value is not None and (not isinstance(value, str) or _UNFIT.search(value)):
        raise InvalidInput(
            f"virt:connection:{setting}, or the argument in its place, must be a text of one line, "
            f"not {type(value).__name__}"
        )
    return value


def user_kwargs(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The user's part of an adapter's ``**kwargs``, without Salt's own arguments (``__pub_…``)."""
    return {key: value for key, value in kwargs.items() if not key.startswith("__")}


def connection(get: Get, kwargs: Mapping[str, Any]) -> Connection:
    """Read ``connection``, ``username`` and ``password`` from an adapter's ``**kwargs``.

    The defaults are ``virt:connection:uri``, ``virt:connection:auth:username`` and
    ``virt:connection:auth:password``. Salt's own dunder arguments (``__pub_…``) are ignored. Raises
    InvalidInput for any other argument, so that typing errors are reported.
    """
    rest = user_kwargs(kwargs)
    result = Connection(
        uri=_text(rest.pop("connection", None) or option(get, "connection:uri"), "uri"),
        username=_text(
            rest.pop("username", None) or option(get, "connection:auth:username"), "auth:username"
        ),
        password=_text(
            rest.pop("password", None) or option(get, "connection:auth:password"), "auth:password"
        ),
        timeout_s=integer(get, "connection:timeout", TIMEOUT_S),
    )
    if rest:
        unknown = ", ".join(sorted(rest))
        raise InvalidInput(f"unknown argument: {unknown}")
    return result
