"""All of the user's arguments for a guest."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

from saltvirt import names, settings
from saltvirt.spec import guest_devices, profiles, rules
from saltvirt.spec.base import unknown
from saltvirt.spec.deploy import DeploySpec
from saltvirt.spec.guest_spec import GuestSpec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from saltvirt.spec.base import Parser
    from saltvirt.spec.profiles import Profiles


# Salt's names of arguments that have another name here
_ALIASES = {
    "mem": "memory",
    "hypervisor_features": "features",
    "vm_type": "hypervisor",
    "hypervisor_type": "hypervisor",
}
_SHAPED = {"disk", "disk_profile", "disks", "nic", "nic_profile", "interfaces"}
_SHORTHANDS = {"enable_vnc", "serial_type", "stop_on_reboot", "kvm_hidden"}


def _fields() -> dict[str, Parser[Any]]:
    return {f.name: f.metadata["parse"] for f in fields(GuestSpec) if f.metadata}


def arguments() -> list[str]:
    """All argument names that :func:`parse` accepts, except ``name``."""
    plain = set(_fields()) - set(_ALIASES.values()) | {"hypervisor"}
    return sorted(plain | set(_ALIASES) | _SHAPED | _SHORTHANDS | set(DeploySpec.keys()))


def refuse_unknown(options: Mapping[str, Any]) -> None:
    """Raise InvalidInput for an argument that :func:`parse` does not accept, with the closest valid
    name."""
    for word in settings.user_kwargs(options):
        if word not in arguments():
            raise unknown(word, arguments(), "argument")


def parse(
    name: object,
    cpu: Any = None,
    mem: Any = None,
    *,
    known_profiles: Profiles | None = None,
    update: bool = False,
    hypervisor: Any = None,
    deploy: DeploySpec | None = None,
    **options: Any,
) -> GuestSpec:
    """A GuestSpec from the arguments of virt.init, virt.update, virt.defined, virt.running.

    cpu: a number, or a dictionary. mem: MiB, a size with a unit, or a dictionary. known_profiles:
    :class:`saltvirt.spec.profiles.Profiles`. update: for an existing guest: settings that are not
    given are unchanged, and no profile applies by default. hypervisor: kvm, qemu, xen, lxc and
    others; None: from the host's capabilities. deploy: unchecked arguments of the deployment, by
    default those in options. options: all other arguments by name, see :func:`arguments`.

    Raises InvalidInput with the name of the argument.
    """
    spec = GuestSpec(names.existing_guest(name) if update else names.guest(name))
    options = settings.user_kwargs(options)
    refuse_unknown(options)
    all_options = {"cpu": cpu, "mem": mem, "hypervisor": hypervisor, **options}
    for word, value in all_options.items():
        target = _ALIASES.get(word, word)
        if target in _fields() and (value is not None or getattr(spec, target) is None):
            setattr(spec, target, _fields()[target](value, word))
    rules.shorthands(spec, options)
    guest_devices.fill(spec, options, known_profiles or profiles.Profiles(), update)
    deploying = DeploySpec.keys()
    deploy_options = {key: value for key, value in options.items() if key in deploying}
    spec.deploy = DeploySpec.parse({**vars(deploy or DeploySpec()), **deploy_options}, "init")
    rules.agree(spec)
    if not update:
        rules.complete(spec, options)
    return spec
