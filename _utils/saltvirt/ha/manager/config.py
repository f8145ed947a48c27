"""The master's settings ``virt:ha``. Without members nothing is configured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from saltvirt import errors, settings, units
from saltvirt.ha.fencing import setting
from saltvirt.ha.fencing.setting import FenceSetting
from saltvirt.ha.model.policy import CONDITIONAL, SHUTDOWN_POLICIES, HaPolicy, settings_digest
from saltvirt.ha.transport import addresses

PORT = 16516
WATCHDOG = "/dev/watchdog"
# policies for operations that would violate the reserve
REFUSE, WARN = "refuse", "warn"
# twice this time, plus a margin, is TimeoutStopSec of the agent's unit
_MAX_WAIT_S = 600

_COUNTS = ("max_fences", "starts_at_once")
_NUMBERS = tuple(
    item.name
    for item in fields(HaPolicy)
    if item.name not in (*_COUNTS, "reserve", "shutdown_policy")
)


@dataclass(frozen=True)
class Member:
    """A hypervisor with high availability. address: where its agent listens. fences: in the order
    in which they are tried. watchdog: its device; None: none."""

    address: str
    port: int = PORT
    fences: tuple[FenceSetting, ...] = ()
    watchdog: str | None = WATCHDOG


@dataclass(frozen=True)
class HaConfig:
    """The settings ``virt:ha``. name: of this master; masters: of all. pools: folders that all
    members share, for heartbeats. reserve_policy: REFUSE or WARN. leases: folders on storage that
    accepts no write of a host whose lock it gave to another one."""

    name: str
    masters: tuple[str, ...]
    members: dict[str, Member]
    pools: tuple[str, ...] = ()
    policy: HaPolicy = field(default_factory=HaPolicy)
    reserve_policy: str = REFUSE
    leases: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """The digest of the settings that must be the same on all machines."""
        return settings_digest(self.policy, self.members, self.masters, self.pools)


def is_configured(opts: Mapping[str, Any]) -> bool:
    """Whether there are members. This is all that a cloud without members evaluates."""
    return bool(settings.option(settings.of_master(opts), "ha:members"))


def of_master(opts: Mapping[str, Any]) -> HaConfig:
    """Parse the HaConfig from the options of a master. Raises InvalidInput."""
    get = settings.of_master(opts)
    members = settings.mapping(get, "ha:members")
    if not members:
        raise errors.InvalidInput(
            "high availability is not configured: set virt:ha:members in the master's configuration"
        )
    port = settings.integer(get, "ha:port", PORT, maximum=65535)
    name = settings.text(get, "ha:name", str(opts.get("id") or "master").removesuffix("_master"))
    masters = settings.name_list(get, "ha:masters") or (name,)
    if name not in masters:
        raise errors.InvalidInput(
            f"virt:ha:masters must include this master, {name} (virt:ha:name)"
        )
    if set(masters) & set(members):
        raise errors.InvalidInput("virt:ha:masters: a master must not have the name of a member")
    parsed_members = {
        host: _member(host, value, port) for host, value in sorted(members.items(), key=str)
    }
    for host, member in parsed_members.items():
        _check_fence_hosts(host, member, parsed_members)
    reserve_policy = settings.choice(get, "ha:reserve_policy", REFUSE, (REFUSE, WARN))
    pools, leases = _folders(get, "ha:pools"), _folders(get, "ha:leases")
    return HaConfig(name, masters, parsed_members, pools, _policy(get), reserve_policy, leases)


def _check_fence_hosts(host: str, member: Member, members: Mapping[str, Member]) -> None:
    """Raise InvalidInput for a fence that would run on the host itself or on a host that is no
    member."""
    for level, fence in enumerate(member.fences, start=1):
        invalid = [name for name in fence.hosts if name == host or name not in members]
        if invalid:
            other_names = ", ".join(name for name in members if name != host) or "none"
            raise errors.InvalidInput(
                f"virt:ha:members:{host}: fence {level}: from must name other members, not "
                f"{units.short_repr(invalid[0])}; others: {other_names}"
            )


def _folders(get: settings.Get, key: str) -> tuple[str, ...]:
    folders = settings.name_list(get, key)
    for folder in folders:
        if not folder.startswith("/"):
            raise settings.invalid(key, list(folders), "a list of absolute paths")
    return folders


def _member(host: object, given: object, port: int) -> Member:
    label = f"virt:ha:members:{host}"
    if not isinstance(host, str) or not host:
        raise errors.InvalidInput(f"virt:ha:members: {units.short_repr(host)} is not a minion id")
    given = {"address": given} if isinstance(given, str) else given
    allowed = {"address", "port", "fences", "watchdog"}
    values = setting.mapping(given, label, allowed)
    address = addresses.ip(label, values.get("address"))
    own_port = values.get("port", port)
    if isinstance(own_port, bool) or not isinstance(own_port, int) or not 0 < own_port < 2**16:
        raise errors.InvalidInput(f"{label}: port must be from 1 to 65535")
    watchdog = values.get("watchdog", WATCHDOG) or None
    if watchdog is not None and not (isinstance(watchdog, str) and watchdog.startswith("/dev/")):
        raise errors.InvalidInput(f"{label}: watchdog must be a device such as {WATCHDOG}, or null")
    fences = values.get("fences") or []
    if not isinstance(fences, list):
        raise errors.InvalidInput(f"{label}: fences must be a list")
    levels = tuple(
        setting.parse(f"{label}: fence {level}", fence)
        for level, fence in enumerate(fences, start=1)
    )
    return Member(address, own_port, levels, watchdog)


def _policy(get: settings.Get) -> HaPolicy:
    """Parse the HaPolicy. Raises InvalidInput for times with which nothing can be proven."""
    defaults, numbers = HaPolicy(), {}
    for key in _NUMBERS:
        numbers[key] = settings.number(get, f"ha:{key}", getattr(defaults, key))
    counts = {key: settings.integer(get, f"ha:{key}", getattr(defaults, key)) for key in _COUNTS}
    reserve = settings.number(get, "ha:reserve", defaults.reserve)
    if reserve != int(reserve):
        raise settings.invalid("ha:reserve", reserve, "a whole number from 0")
    policy = replace(
        defaults,
        **numbers,
        **counts,
        reserve=int(reserve),
        shutdown_policy=settings.choice(get, "ha:shutdown_policy", CONDITIONAL, SHUTDOWN_POLICIES),
    )
    _check_times(policy)
    return policy


def _check_times(policy: HaPolicy) -> None:
    """Raise InvalidInput for times with which a single lost message would count as a failure."""
    if policy.beat_s < 0.1:
        raise settings.invalid("ha:beat_s", policy.beat_s, "0.1 or more")
    if not policy.clock_drift < 0.5:
        raise settings.invalid("ha:clock_drift", policy.clock_drift, "less than 0.5")
    for key in ("suspect_s", "feed_lease_s", "lead_lease_s"):
        if getattr(policy, key) < 3 * policy.beat_s:
            raise settings.invalid(f"ha:{key}", getattr(policy, key), "three times beat_s or more")
    if policy.watchdog_s < 2 * policy.beat_s:
        raise settings.invalid("ha:watchdog_s", policy.watchdog_s, "twice beat_s or more")
    if policy.shutdown_wait_s > _MAX_WAIT_S:
        raise settings.invalid(
            "ha:shutdown_wait_s", policy.shutdown_wait_s,
            f"at most {_MAX_WAIT_S}, because systemd kills an agent that takes longer",
        )  # fmt: skip
