"""TPM, random number generator, watchdog and balloon."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from saltvirt.design.put import clear, put
from saltvirt.errors import Unsupported
from saltvirt.spec.devices import NONE, BalloonSpec, RngSpec
from saltvirt.xml.base import Element, Elements
from saltvirt.xml.devices.rng import Rng
from saltvirt.xml.devices.tpm import Tpm
from saltvirt.xml.devices.watchdog import Watchdog

if TYPE_CHECKING:
    from saltvirt.design.context import Context
    from saltvirt.spec.devices import TpmSpec, WatchdogSpec
    from saltvirt.spec.guest_spec import GuestSpec
    from saltvirt.xml.domain.domain import Domain

D = TypeVar("D", bound=Element)


def apply(spec: GuestSpec, domain: Domain, context: Context) -> None:
    """Apply a GuestSpec's tpm, rng, watchdog and memballoon to a domain."""
    if spec.tpm is not None:
        _tpm(spec.tpm, domain, context)
    if spec.rng is not None:
        _rng(spec.rng, domain, context)
    if spec.watchdog is not None:
        _watchdog(spec.watchdog, domain)
    if spec.memballoon is not None:
        _balloon(spec.memballoon, domain)


def _single_device(domain: Domain, name: str, cls: type[D]) -> D:
    view: Elements[D] = getattr(domain, name)
    return view[0] if len(view) else view.append(cls())


def _tpm(spec: TpmSpec | str, domain: Domain, context: Context) -> None:
    if isinstance(spec, str):  # no such device
        domain.tpms = []
        return
    if not context.has("tpm"):
        raise Unsupported("tpm: this host's guests have none (is swtpm installed?)")
    kind = spec.type or "emulator"
    if not context.allows("tpm", "backendModel", kind):
        raise Unsupported(f"tpm: this host has no {kind} (is swtpm installed?)")
    if any(tpm.backend not in (None, kind) for tpm in domain.tpms):
        domain.tpms = []
    tpm = _single_device(domain, "tpms", Tpm)
    tpm.backend = kind
    if kind == "emulator":
        tpm.version = spec.version or tpm.version or "2.0"
    newer = tpm.version != "1.2" and context.allows("tpm", "model", "tpm-crb")
    if tpm.model == "tpm-crb" and tpm.version == "1.2":
        tpm.model = None  # only TPM 2.0 has this interface
    tpm.model = spec.model or tpm.model or ("tpm-crb" if newer else "tpm-tis")
    put(tpm, spec)


def _rng(spec: RngSpec | str, domain: Domain, context: Context) -> None:
    if isinstance(spec, str):  # no such device
        domain.rngs = []
        return
    if not context.has("rng"):
        raise Unsupported("rng: this host's guests have no random number device")
    rng = _single_device(domain, "rngs", Rng)
    rng.model = spec.model or rng.model or "virtio"
    rng.backend = spec.backend or rng.backend or "random"
    if rng.backend == "random":
        rng.source = spec.source or rng.source or "/dev/urandom"
    put(rng, spec)


def _watchdog(spec: WatchdogSpec | str, domain: Domain) -> None:
    if isinstance(spec, str) or spec.model == NONE:
        domain.watchdogs = []
        return
    watchdog = _single_device(domain, "watchdogs", Watchdog)
    watchdog.model = spec.model or watchdog.model or "i6300esb"
    watchdog.action = spec.action or watchdog.action or "reset"


def _balloon(spec: BalloonSpec | str, domain: Domain) -> None:
    balloon = domain.memballoon
    if isinstance(spec, str):  # no such device
        balloon.model = NONE
        clear(balloon, BalloonSpec)
        return
    existing_model = None if balloon.model == NONE else balloon.model
    balloon.model = spec.model or existing_model or "virtio"
    put(balloon, spec)


def default(domain: Domain, context: Context, spec: GuestSpec) -> None:
    """Add the default devices of new QEMU guests: random number generator and balloon."""
    if not context.qemu:
        return
    if spec.rng is None and context.allows("rng", "backendModel", "random"):
        _rng(RngSpec(), domain, context)
    if spec.memballoon is None:
        domain.memballoon.model = "virtio"
        domain.memballoon.stats_period_s = 10
