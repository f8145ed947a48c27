"""libvirt events as plain data.

An event is available if the binding and the driver support it. Names of numbers are looked up only
in their own enumeration.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from saltvirt import errors
from saltvirt.host.connection import libvirt, translate

log = logging.getLogger(__name__)

# converts the values of libvirt's callback to plain data
Converter = Callable[..., dict[str, Any]]
# called with the object type, the event and its data
Send = Callable[[str, str, dict[str, Any]], object]


@dataclass(frozen=True)
class Enum:
    """An enumeration of libvirt: its prefix and names."""

    prefix: str
    names: tuple[str, ...]

    def __call__(self, number: int) -> str:
        """Return the name of a number in lower case with spaces, or ``unknown``."""
        for name in self.names:
            if getattr(libvirt, self.prefix + name, None) == number:
                return name.lower().replace("_", " ")
        return "unknown"


def _unused(_number: int) -> str:
    """Return ``unknown`` for a detail that libvirt reserves but does not use."""
    return "unknown"


def _enum(prefix: str, names: str) -> Enum:
    return Enum(prefix, tuple(names.split()))


_LIFE = _enum(
    "VIR_DOMAIN_EVENT_",
    "DEFINED UNDEFINED STARTED SUSPENDED RESUMED STOPPED SHUTDOWN PMSUSPENDED CRASHED",
)
_LIFE_DETAILS = {
    "defined": "ADDED UPDATED RENAMED FROM_SNAPSHOT",
    "undefined": "REMOVED RENAMED",
    "started": "BOOTED MIGRATED RESTORED FROM_SNAPSHOT WAKEUP RECOVERED",
    "suspended": "PAUSED MIGRATED IOERROR WATCHDOG RESTORED FROM_SNAPSHOT API_ERROR "
    "POSTCOPY POSTCOPY_FAILED",
    "resumed": "UNPAUSED MIGRATED FROM_SNAPSHOT POSTCOPY POSTCOPY_FAILED",
    "stopped": "SHUTDOWN DESTROYED CRASHED MIGRATED SAVED FAILED FROM_SNAPSHOT RECOVERED",
    "shutdown": "FINISHED GUEST HOST",
    "pmsuspended": "MEMORY DISK",
    "crashed": "PANICKED CRASHLOADED",
}
_AGENT = "VIR_CONNECT_DOMAIN_EVENT_AGENT_LIFECYCLE_"
_GRAPHICS_ADDRESS = _enum("VIR_DOMAIN_EVENT_GRAPHICS_ADDRESS_", "IPV4 IPV6 UNIX")


def _lifecycle(event: int, detail: int) -> dict[str, Any]:
    name = _LIFE(event)
    details = _enum(f"VIR_DOMAIN_EVENT_{name.upper()}_", _LIFE_DETAILS.get(name, ""))
    return {"event": name, "detail": details(detail)}


def _simple_lifecycle(prefix: str, names: str) -> Converter:
    kinds = _enum(prefix, names)
    return lambda event, _detail: {"event": kinds(event), "detail": "unknown"}


def _graphics(
    phase: int, local: Any, remote: Any, scheme: str, subject: Iterable[Any]
) -> dict[str, Any]:
    def address(endpoint: dict[str, Any]) -> dict[str, Any]:
        family = _GRAPHICS_ADDRESS(endpoint["family"])
        return {"family": family, "node": endpoint["node"], "service": endpoint["service"]}

    return {
        "phase": _enum("VIR_DOMAIN_EVENT_GRAPHICS_", "CONNECT INITIALIZE DISCONNECT")(phase),
        "local": address(local),
        "remote": address(remote),
        "authScheme": scheme,
        "subject": [{"type": item[0], "name": item[1]} for item in subject],
    }


def _fields(*names: str, **enums: Callable[[int], str]) -> Converter:
    """Return a converter that names each value and translates it through its Enum, if any."""

    def convert(*values: Any) -> dict[str, Any]:
        pairs = zip(names, values, strict=False)
        return {name: enums[name](v) if name in enums else v for name, v in pairs}

    return convert


_REASON = _fields("reason", reason=_unused)
_DEVICE = _fields("dev")
_PARAMS = _fields("params")
# {object type: {event: (alternative names of its id in libvirt, converter)}}
EVENTS: dict[str, dict[str, tuple[str, Converter]]] = {
    "domain": {
        "lifecycle": ("LIFECYCLE", _lifecycle),
        "reboot": ("REBOOT", _fields()),
        "rtc_change": ("RTC_CHANGE", _fields("utcoffset")),
        "watchdog": ("WATCHDOG", _fields("action", action=_enum(
            "VIR_DOMAIN_EVENT_WATCHDOG_", "NONE PAUSE RESET POWEROFF SHUTDOWN DEBUG INJECTNMI"))),
        "graphics": ("GRAPHICS", _graphics),
        "io_error": ("IO_ERROR_REASON IO_ERROR", _fields(
            "srcPath", "dev", "action", "reason",
            action=_enum("VIR_DOMAIN_EVENT_IO_ERROR_", "NONE PAUSE REPORT"))),
        "control_error": ("CONTROL_ERROR", _fields()),
        "disk_change": ("DISK_CHANGE", _fields(
            "oldSrcPath", "newSrcPath", "dev", "reason", reason=_enum(
                "VIR_DOMAIN_EVENT_DISK_", "CHANGE_MISSING_ON_START DROP_MISSING_ON_START"))),
        "tray_change": ("TRAY_CHANGE", _fields(
            "dev", "reason", reason=_enum("VIR_DOMAIN_EVENT_TRAY_CHANGE_", "OPEN CLOSE"))),
        "pmwakeup": ("PMWAKEUP", _REASON),
        "pmsuspend": ("PMSUSPEND", _REASON),
        "balloon_change": ("BALLOON_CHANGE", _fields("actual")),
        "pmsuspend_disk": ("PMSUSPEND_DISK", _REASON),
        "device_removed": ("DEVICE_REMOVED", _DEVICE),
        "block_job": ("BLOCK_JOB_2 BLOCK_JOB", _fields(
            "disk", "type", "status",
            type=_enum("VIR_DOMAIN_BLOCK_JOB_TYPE_",
                       "UNKNOWN PULL COPY COMMIT ACTIVE_COMMIT BACKUP"),
            status=_enum("VIR_DOMAIN_BLOCK_JOB_", "COMPLETED FAILED CANCELED READY"))),
        "tunable": ("TUNABLE", _PARAMS),
        "agent_lifecycle": ("AGENT_LIFECYCLE", _fields(
            "state", "reason",
            state=_enum(f"{_AGENT}STATE_", "CONNECTED DISCONNECTED"),
            reason=_enum(f"{_AGENT}REASON_", "UNKNOWN DOMAIN_STARTED CHANNEL"))),
        "device_added": ("DEVICE_ADDED", _DEVICE),
        "migration_iteration": ("MIGRATION_ITERATION", _fields("iteration")),
        "job_completed": ("JOB_COMPLETED", _PARAMS),
        "device_removal_failed": ("DEVICE_REMOVAL_FAILED", _DEVICE),
        "metadata_change": ("METADATA_CHANGE", _fields(
            "type", "nsuri", type=_enum("VIR_DOMAIN_METADATA_", "DESCRIPTION TITLE ELEMENT"))),
        "block_threshold": ("BLOCK_THRESHOLD", _fields("dev", "path", "threshold", "excess")),
    },
    "network": {
        "lifecycle": ("LIFECYCLE", _simple_lifecycle(
            "VIR_NETWORK_EVENT_", "DEFINED UNDEFINED STARTED STOPPED")),
    },
    "pool": {
        "lifecycle": ("LIFECYCLE", _simple_lifecycle(
            "VIR_STORAGE_POOL_EVENT_", "DEFINED UNDEFINED STARTED STOPPED CREATED DELETED")),
        "refresh": ("REFRESH", _fields()),
    },
    "nodedev": {
        "lifecycle": ("LIFECYCLE", _simple_lifecycle(
            "VIR_NODE_DEVICE_EVENT_", "CREATED DELETED DEFINED UNDEFINED")),
        "update": ("UPDATE", _fields()),
    },
    "secret": {
        "lifecycle": ("LIFECYCLE", _simple_lifecycle("VIR_SECRET_EVENT_", "DEFINED UNDEFINED")),
        "value_changed": ("VALUE_CHANGED", _fields()),
    },
}  # fmt: skip
# names of the object types in libvirt's methods and constants
_METHOD_NAMES = {
    "domain": ("domain", "DOMAIN"),
    "network": ("network", "NETWORK"),
    "pool": ("storagePool", "STORAGE_POOL"),
    "nodedev": ("nodeDevice", "NODE_DEVICE"),
    "secret": ("secret", "SECRET"),
}


def parse_filters(filters: object) -> list[tuple[str, str]]:
    """Return the (object, event) pairs that filters select. Raises InvalidInput for an unknown
    filter.

    filters: ``all``, an object (``domain``) or an event (``domain/lifecycle``), or a list of them.
    """
    filters = [filters] if isinstance(filters, str) else filters
    if not isinstance(filters, list) or not all(isinstance(item, str) for item in filters):
        raise errors.InvalidInput("filters must be a list of object and event names")
    pairs = [(kind, event) for kind, events in EVENTS.items() for event in events]
    filter_names = {"all", *EVENTS, *(f"{kind}/{event}" for kind, event in pairs)}
    unknown = [str(name) for name in filters if name not in filter_names]
    if unknown:
        raise errors.InvalidInput(
            f"unknown filter {', '.join(unknown)}; known filters: {', '.join(sorted(filter_names))}"
        )
    return [
        (kind, event) for kind, event in pairs if {"all", kind, f"{kind}/{event}"} & set(filters)
    ]


def register(
    conn: libvirt.virConnect, pairs: Iterable[tuple[str, str]], send: Send
) -> list[Callable[[], object]]:
    """Call ``send(object, event, data)`` for each event of these pairs from now on.

    Returns functions that deregister the callbacks. Unsupported events are logged and omitted.
    """
    undos = []
    for kind, event in pairs:
        method_prefix, prefix = _METHOD_NAMES[kind]
        names, convert = EVENTS[kind][event]
        numbers = [getattr(libvirt, f"VIR_{prefix}_EVENT_ID_{n}", None) for n in names.split()]
        number = next((n for n in numbers if n is not None), None)
        if number is None:
            log.info("this libvirt binding has no %s/%s events", kind, event)
            continue
        callback = _callback(kind, event, convert, send)
        try:
            callback_id = getattr(conn, f"{method_prefix}EventRegisterAny")(
                None, number, callback, None
            )
        except libvirt.libvirtError as exc:
            log.info("no %s/%s events from %s: %s", kind, event, conn.getURI(), translate(exc))
            continue
        undos.append(_undo(getattr(conn, f"{method_prefix}EventDeregisterAny"), callback_id))
    return undos


def _undo(deregister: Callable[[int], object], number: int) -> Callable[[], object]:
    return lambda: deregister(number)


def _callback(kind: str, event: str, convert: Converter, send: Send) -> Callable[..., None]:
    def callback(_conn: libvirt.virConnect, subject: Any, *values: Any) -> None:
        try:
            data = {kind: _identity(kind, subject), "event": event}
            send(kind, event, {**data, **convert(*values[:-1])})
        except Exception:  # an exception must not reach libvirt's event loop
            log.exception("could not send a %s/%s event", kind, event)

    return callback


def _identity(kind: str, subject: Any) -> dict[str, Any]:
    if kind == "domain":
        return {"name": subject.name(), "id": subject.ID(), "uuid": subject.UUIDString()}
    if kind == "nodedev":
        return {"name": subject.name()}
    if kind == "secret":
        return {"uuid": subject.UUIDString()}
    return {"name": subject.name(), "uuid": subject.UUIDString()}
