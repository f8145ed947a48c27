"""The options of a migration, with Salt's names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, fields
from typing import Any

from saltvirt import settings, units
from saltvirt.errors import InvalidInput

COPY_STORAGE = {
    None: None,
    "": None,
    "auto": None,
    "all": "all",
    "inc": "incremental",
    "incremental": "incremental",
    False: "never",
    "never": "never",
}
COMPRESSIONS = ("mt", "xbzrle")
POLICIES = ("safe", "converge", "postcopy", "pause")
# meaningless for a guest that is paused
LIVE_ONLY = ("policy", "max_downtime", "auto_converge", "postcopy")
# removed arguments, and their replacements
REPLACEMENTS = {
    "ssh": "name the target by its URI instead: qemu+ssh://HOST/system",
    "force": "target volumes are prepared, and checked, by virt.migrate itself",
}


@dataclass(frozen=True)
class Options:
    """Bandwidths in MiB/s, downtime in ms, percentages as integers; None: libvirt's default.

    other_cpu: a guest with its host's own CPU may move to a host with another CPU. live: None:
    live, unless QEMU emulates the guest's CPU, see is_not_live.
    """

    live: bool | None = None
    persistent: bool = True
    undefinesource: bool = True
    offline: bool = False
    max_bandwidth: int | None = None
    max_downtime: int | None = None
    parallel_connections: int | None = None
    compressed: bool = False
    comp_methods: tuple[str, ...] = ()
    comp_mt_level: int | None = None
    comp_mt_threads: int | None = None
    comp_mt_dthreads: int | None = None
    comp_xbzrle_cache: int | None = None
    copy_storage: str | None = None
    auto_converge: bool = False
    auto_converge_initial: int | None = None
    auto_converge_increment: int | None = None
    postcopy: bool = False
    postcopy_bandwidth: int | None = None
    abort_on_error: bool = True
    keep_source: bool = False
    tunnel: bool = False
    policy: str = "converge"
    timeout: int | None = None
    other_cpu: bool = False


def parse(
    arguments: Mapping[str, Any], tunnel: bool = False, policy: str = Options.policy
) -> Options:
    """Return the Options in the ``**kwargs`` of a call.

    arguments: without connection, username, password and Salt's dunder arguments. tunnel, policy:
    the (checked) settings ``virt:tunnel`` and ``virt:migration:policy``, used if the call has none.
    An option of LIVE_ONLY implies ``live=True``. Raises InvalidInput, which names the argument.
    """
    option_fields = {f.name: f for f in fields(Options)}
    for name in arguments:
        if name in REPLACEMENTS:
            raise InvalidInput(f"{name} was removed: {REPLACEMENTS[name]}")
        if name not in option_fields:
            raise InvalidInput(
                f"unknown argument: {name}; known: {', '.join(sorted(option_fields))}"
            )
    values = {name: _value(name, option_fields[name], value) for name, value in arguments.items()}
    if any(values.get(name) for name in LIVE_ONLY):
        values.setdefault("live", True)
    values.setdefault("tunnel", tunnel)
    values.setdefault("policy", policy)
    options = Options(**values)
    _consistent(options)
    return options


@dataclass(frozen=True)
class MigrationSettings:
    """``virt:migration`` of a hypervisor; None: not set. bandwidth: in MiB/s; times in seconds.
    address: at which the target's QEMU is reached in this migration."""

    policy: str = Options.policy
    bandwidth: int | None = None
    timeout_per_gib: float | None = None
    timeout: float | None = None
    stall_timeout: float | None = None
    downtime_step: float | None = None
    longest_pause: float | None = None
    address: str | None = None


def configured(get: Callable[..., Any]) -> MigrationSettings:
    """Return the MigrationSettings of this host, without an address. get: Salt's ``config.get``.

    Raises InvalidInput, which names the setting.
    """
    return MigrationSettings(
        policy=settings.choice(get, "migration:policy", Options.policy, POLICIES),
        bandwidth=settings.integer(get, "migration:bandwidth", None),
        timeout_per_gib=settings.number(get, "migration:timeout_per_gib"),
        timeout=settings.number(get, "migration:timeout"),
        stall_timeout=settings.number(get, "migration:stall_timeout"),
        downtime_step=settings.number(get, "migration:downtime_step"),
        longest_pause=settings.number(get, "migration:longest_pause"),
    )


def is_not_live(options: Options, virt_type: str | None) -> bool:
    """Return whether a running guest is paused while its memory is transferred, after its disks.

    If QEMU emulates the CPU (TCG, domains of type ``qemu``) it can clear the dirty mark of a page
    just when the CPU sets it, most often on a busy host; later writes to that page are then lost,
    and programs in the guest crash after the migration. Seen with QEMU 7.2, also with ``virsh
    migrate``; never with a paused guest. KVM keeps its dirty marks itself.
    """
    return virt_type == "qemu" and options.live is None


def _value(name: str, field: Field[Any], value: Any) -> Any:
    if name == "copy_storage":
        return _copy_storage(value)
    if name == "comp_methods":
        return _comp_methods(value)
    if name == "policy":
        return _one_of(name, value, POLICIES)
    if name == "live":
        return None if value is None else _flag(name, value)
    if isinstance(field.default, bool):
        return _flag(name, value)
    return _number(name, value)


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise InvalidInput(f"{name} {value!r} is not True or False")
    return value


def _number(name: str, value: Any) -> int | None:
    if value is None:
        return None
    if name == "comp_mt_level" and str(value) == "0":
        return 0
    number = units.parse_count(value, name)
    limits = {"comp_mt_level": 9, "auto_converge_initial": 99, "auto_converge_increment": 99}
    if number > limits.get(name, number):
        raise InvalidInput(f"{name} {value!r} is more than {limits[name]}")
    return number


def _one_of(name: str, value: Any, allowed: tuple[str, ...]) -> str:
    if value not in allowed:
        raise InvalidInput(f"{name} {value!r} is not one of {', '.join(allowed)}")
    return str(value)


def _copy_storage(value: Any) -> str | None:
    if not isinstance(value, (str, bool, type(None))) or value not in COPY_STORAGE:
        raise InvalidInput(
            f"copy_storage {value!r} is not one of all, incremental, never; "
            "leave it out to copy what is not shared"
        )
    return COPY_STORAGE[value]


def _comp_methods(value: Any) -> tuple[str, ...]:
    names = [n.strip() for n in value.split(",")] if isinstance(value, str) else value or []
    if not isinstance(names, (list, tuple)):
        raise InvalidInput(f"comp_methods {value!r} is not a list such as mt,xbzrle")
    return tuple(_one_of("comp_methods", n, COMPRESSIONS) for n in names)


def _consistent(options: Options) -> None:
    """Raise InvalidInput for options that libvirt cannot combine."""
    if options.tunnel and options.parallel_connections:
        raise InvalidInput(
            "parallel_connections and virt:tunnel exclude each other: set virt:tunnel to False"
        )
    if options.tunnel and (options.postcopy or options.policy == "postcopy"):
        raise InvalidInput("postcopy and virt:tunnel exclude each other: set virt:tunnel to False")
    if options.parallel_connections and (options.postcopy or options.policy == "postcopy"):
        raise InvalidInput(
            "parallel_connections and postcopy exclude each other: QEMU knows no such migration "
            "before 10.1; drop one"
        )
    if options.compressed and options.parallel_connections:
        raise InvalidInput("compressed and parallel_connections exclude each other: drop one")
    if not options.compressed and options.comp_methods:
        raise InvalidInput("comp_methods needs compressed=True")
    if options.undefinesource and not options.persistent:
        raise InvalidInput(
            "persistent=False with undefinesource=True would leave no definition of the guest: "
            "set undefinesource=False too"
        )
