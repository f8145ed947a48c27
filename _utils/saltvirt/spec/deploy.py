"""The user's arguments for the deployment of a guest: image, seeding, start."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from saltvirt.errors import InvalidInput
from saltvirt.spec import values
from saltvirt.spec.base import Spec, key, mapping

CLOUD_INIT = "seed.cloud_init"


def _anything(value: Any, argument: str) -> Any:
    return value


def seed(value: Any, argument: str) -> bool | str:
    """True, False, or ``cloud-init``, which implies seeding."""
    return value if value == "cloud-init" else values.boolean(value, argument)


def system_disk(arguments: dict[str, Any], subject: str = "") -> list[dict[str, Any]]:
    """Remove ``size`` from the arguments of a new guest, and return its disks: the system disk of
    the default profile has this size. subject: names the arguments in errors. Raises
    InvalidInput."""
    size = arguments.pop("size")
    profiles = (arguments.get("disk", "default"), arguments.get("disk_profile"))
    if arguments.get("disks") or "default" not in profiles:
        prefix = f"{subject}: " if subject else ""
        raise InvalidInput(
            f"{prefix}size requires the default disk profile; use disks, a list of name and size"
        )
    values.size_bytes(size, "size")
    return [{"name": "system", "size": size}]


@dataclass
class DeploySpec(Spec):
    """Arguments of ``init`` that do not affect the XML."""

    NONE_REMOVES = False

    start: bool | None = key(values.boolean)
    image: str | None = key(values.text)
    image_hash: str | None = key(values.text)
    overlay: bool | None = key(values.boolean)
    enable_qcow: bool | None = key(values.boolean)
    saltenv: str | None = key(values.text)
    seed: bool | str | None = key(seed)
    install: bool | None = key(values.boolean)
    seed_cmd: str | None = key(values.text)
    config: dict[str, Any] | None = key(mapping)
    pub_key: str | None = key(values.text)
    priv_key: str | None = key(values.secret, repr=False)
    grains: dict[str, Any] | None = key(mapping)
    pillar: dict[str, Any] | None = key(mapping, repr=False)
    autosign_grains: dict[str, Any] | None = key(mapping)
    startup_states: str | list[Any] | None = key(_anything)
    user_data: str | None = key(values.secret, repr=False)
    approve_key: bool | None = key(values.boolean)

    def check(self, argument: str) -> None:
        for name in ("start", "seed", "install", "approve_key"):
            if getattr(self, name) is None:
                setattr(self, name, True)
        if self.pillar:
            raise InvalidInput(
                "pillar is not accepted by a hypervisor: pass it to "
                "salt-run virt.init, or to salt-run virt.authorize"
            )
        if self.seed == "cloud-init":
            self.seed, self.seed_cmd = True, CLOUD_INIT
        if self.user_data and not self.cloud_init:
            raise InvalidInput("user_data is for cloud-init: give seed=cloud-init")
        self.saltenv = self.saltenv or "base"
        self.overlay = bool(self.overlay or self.enable_qcow)

    @property
    def seeds_by_us(self) -> bool:
        """Whether Salt Virt's own module seeds, not another function of Salt."""
        return self.seed_cmd in (None, "seed.apply", CLOUD_INIT)

    @property
    def cloud_init(self) -> bool:
        """Whether the guest is seeded with a cloud-init volume."""
        return bool(self.seed) and self.seed_cmd == CLOUD_INIT
