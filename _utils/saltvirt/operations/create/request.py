"""Parse the arguments of virt.init."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from saltvirt import errors, names, settings, units
from saltvirt.fleet import secret
from saltvirt.operations.cluster import ha_provider
from saltvirt.operations.create import served_image
from saltvirt.placement import facts
from saltvirt.placement.calls import CreateRequest
from saltvirt.spec import base, deploy, guest, memory

GROUP_POLICIES = ("spread", "separate", "gather")

# key in the guest's record: the operation that created it, so that no other operation's guest is
# mistaken for it
OPERATION = "operation"


# arguments of a new guest that its host does not get
PLACEMENT_WORDS = (
    *("host", "groups", "group_policy", "labels", "prefer"),
    *("wait", "wait_for", "timeout", "pillar", "name_is_free", "ha"),
)
# further arguments of the host's ``virt.init``, and of the runner's
_MODULE_WORDS = ("hypervisor_type", "overcommit", "size", "vm_type")
_RUNNER_WORDS = ("at_once", "name", "test", *PLACEMENT_WORDS)
# only read inside the guest, as the secret arguments are
_SEED_ARGUMENTS = frozenset({"grains", "pub_key", "startup_states"})


@dataclass
class InitRequest:
    """The arguments of the runner's init.

    cpu: count. mem: MiB, or a size with a unit. labels: required labels of the host; prefer:
    preferred ones. wait_for: one of wait.KINDS, for at most wait_s seconds. pillar: for the guest's
    minion. name_is_free: no host that does not answer has a guest of that name. ha: the HA options,
    for the HaProvider. arguments: all other arguments of the host's ``virt.init``. operation:
    distinguishes this guest from one that another operation creates under its name.
    """

    name: str
    cpu: Any
    mem: Any
    image: str | None
    hypervisor: str = "kvm"
    host: str | None = None
    start: bool = True
    groups: tuple[str, ...] | str = ()
    group_policy: str = "spread"
    labels: dict[str, Any] = field(default_factory=dict)
    prefer: dict[str, Any] = field(default_factory=dict)
    wait_for: str | None = None
    wait_s: float = 300
    pillar: dict[str, Any] | None = field(default=None, repr=False)
    name_is_free: bool = False
    ha: Any = None
    arguments: dict[str, Any] = field(default_factory=dict)
    operation: str = field(default_factory=lambda: secrets.token_hex(16), repr=False)

    def __post_init__(self) -> None:
        self.name = str(self.name)  # the command line turns 123 into a number
        self.arguments = dict(self.arguments)
        for word in ("vm_type", "hypervisor_type"):  # Salt's other words for it
            self.hypervisor = self.arguments.pop(word, None) or self.hypervisor
        if self.hypervisor is not None and not isinstance(self.hypervisor, str):
            raise errors.InvalidInput(
                f"hypervisor {units.short_repr(self.hypervisor)} is not a text"
            )
        if "size" in self.arguments:
            self.arguments["disks"] = deploy.system_disk(self.arguments)
        if self.arguments.get("seed") is not None:
            self.arguments["seed"] = deploy.seed(self.arguments["seed"], "seed")
        self.groups = _groups(self.groups)
        base.mapping(self.arguments.get("metadata") or {}, "metadata")

    @property
    def seeded(self) -> bool:
        """Return whether the host seeds the guest, so that the guest has a key: the default of
        ``virt.init``."""
        seed = self.arguments.get("seed")
        return seed is None or bool(seed)

    def host_request(self) -> CreateRequest:
        """Return the request to the host, which creates the guest and leaves it off."""
        metadata = self.arguments.get("metadata") or {}
        return CreateRequest(
            name=self.name,
            cpu=self.cpu,
            mem=self.mem,
            image=self.image,
            hypervisor=self.hypervisor,
            metadata={**metadata, **self.placement_metadata(), OPERATION: self.operation},
            options=self.arguments,
        )

    def placement_metadata(self) -> dict[str, str]:
        """Return the placement arguments for the guest's metadata: they apply on every later host,
        too."""
        placement_values = {name: getattr(self, name) for name in ("labels", "prefer")}
        metadata = {
            name: json.dumps(_labels(value, name), sort_keys=True)
            for name, value in placement_values.items()
            if value
        }
        if self.groups:
            metadata.update(groups=" ".join(self.groups), group_policy=self.group_policy)
        return metadata

    def sizing_arguments(self) -> dict[str, Any]:
        """Return the arguments from which every host computes the guest's size: without those that
        are secret or only read inside the guest."""
        arguments = secret.cleaned(self.host_request().to_answer())
        public = {k: v for k, v in arguments.items() if k not in _SEED_ARGUMENTS}
        public["metadata"] = {k: v for k, v in public["metadata"].items() if k != OPERATION}
        return public

    def ha_options(self, provider: ha_provider.HaProvider | None) -> Any:
        """Return the HA options, parsed by the provider; None without. Raises InvalidInput."""
        return ha_provider.parse_ha_options(provider, self.ha, bool(self.start))

    def validators(self) -> list[Callable[[], object]]:
        """Return checks of single arguments; each raises InvalidInput."""
        return [
            lambda: names.guest(self.name),
            self._vcpus,
            self._memory_kib,
            lambda: _labels(self.labels, "labels"),
            lambda: _labels(self.prefer, "prefer"),
            lambda: _group_policy(self.group_policy),
        ]

    def check_image(self, opts: Mapping[str, Any]) -> None:
        """Raise NotFound if the image is a file that the master should serve, and does not."""
        served_image.check(opts, self.image, self.arguments.get("saltenv"))

    def _vcpus(self) -> int:
        cpu = self.cpu.get("maximum", 1) if isinstance(self.cpu, dict) else self.cpu
        return units.parse_count(cpu, "cpu")

    def _memory_kib(self) -> tuple[int, int]:
        """Return (at boot, maximum; 0 for none)."""
        mem, max_mem = self.mem, None
        if isinstance(mem, dict):
            max_mem, mem = mem.get("max"), mem.get("boot") or mem.get("current")
        boot_kib = memory.kib_at_start(mem)
        return boot_kib, units.parse_kib(max_mem, argument="mem max") if max_mem else 0

    def request(self) -> facts.PlacementRequest:
        """Return the placement request. Raises InvalidInput for a bad name, cpu or mem."""
        name, vcpus = names.guest(self.name), self._vcpus()
        memory_kib, max_memory_kib = self._memory_kib()
        return facts.PlacementRequest(
            name=name,
            vcpus=vcpus,
            memory_kib=memory_kib,
            max_memory_kib=max_memory_kib,
            hypervisor=self.hypervisor or "kvm",
            arch=self.arguments.get("arch"),
            image=self.image,
            labels=_labels(self.labels, "labels"),
            prefer=_labels(self.prefer, "prefer"),
            groups=tuple(self.groups),
            group_policy=_group_policy(self.group_policy),
            only=self.host,
            by_profile=True,
        )


def refuse_unknown(options: Mapping[str, Any]) -> None:
    """Raise InvalidInput, with the closest valid word, for an argument that virt.init lacks.

    options: the arguments that InitRequest does not declare.
    """
    accepted = {*guest.arguments(), *settings.CONNECTION, *_MODULE_WORDS}
    for word in settings.user_kwargs(options):
        if word not in accepted:
            raise base.unknown(word, sorted({*accepted, *_RUNNER_WORDS}), "virt.init")


def _groups(value: object) -> tuple[str, ...]:
    """Return the names of groups from a list or a text."""
    if isinstance(value, str):
        value = value.replace(",", " ").split()
    if not isinstance(value, (list, tuple)):
        raise errors.InvalidInput(f"groups must be a list of names, not {units.short_repr(value)}")
    for group in value:
        if not isinstance(group, str) or not group.isprintable():
            raise errors.InvalidInput(f"groups: {units.short_repr(group)} is not a name")
    return tuple(value)


def _labels(value: Any, argument: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise errors.InvalidInput(f"{argument}: give a dictionary of labels, not {value!r}")
    try:
        json.dumps(value, sort_keys=True)
    except (TypeError, ValueError, RecursionError) as exc:
        raise errors.InvalidInput(
            f"{argument}: {units.short_repr(value)} must contain only names with texts and numbers"
        ) from exc
    return value


def _group_policy(value: str) -> str:
    if value not in GROUP_POLICIES:
        choices = ", ".join(GROUP_POLICIES)
        raise errors.InvalidInput(f"group_policy {value!r}: must be one of {choices}")
    return value
