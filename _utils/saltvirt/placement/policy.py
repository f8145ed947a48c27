"""What the operator wants of placement, from ``virt:placement`` of the master's configuration.

The default ratios are Nova's (cpu 4, ram 1, disk 1), whose operators have run them for years.
"""

from dataclasses import dataclass, field, fields, replace

from saltvirt.errors import InvalidInput

# a host with all the labels that are preferred comes before all that the others could make up for
WEIGHTS = {
    "memory": 1.0, "vcpu": 0.5, "disk": 0.5, "image": 0.25, "labels": 4.0, "spread": 1.0,
}  # fmt: skip


@dataclass(frozen=True)
class Policy:
    """How full a host may get, and what makes one host better than another.

    cpu_ratio, memory_ratio, disk_ratio: promised over physical; a host may set its own.
    stopped_ratio: how much of a stopped guest counts, 0 to 1; autostarted ones count full.
    reserved_memory_kib: what the host keeps for itself.
    reserved_disk_bytes: what must stay free in the images folder.
    weights: name of a weigher to its multiplier; 0 switches it off.
    exclude: hosts that get no guest.
    """

    cpu_ratio: float = 4.0
    memory_ratio: float = 1.0
    disk_ratio: float = 1.0
    stopped_ratio: float = 1.0
    reserved_memory_kib: int = 512 * 1024
    reserved_disk_bytes: int = 1024**3
    weights: dict = field(default_factory=lambda: dict(WEIGHTS))
    exclude: tuple = ()


def of_master(opts):
    """The Policy of the master whose options these are."""
    configured = opts.get("virt") or {}
    return from_config(configured.get("placement"), configured.get("exclude"))


def from_config(placement, exclude=()):
    """The Policy in the mapping ``virt:placement``. Raises InvalidInput for unknown keys."""
    placement = dict(placement or {})
    known = {f.name for f in fields(Policy)} - {"exclude", "weights"}
    weights = placement.pop("weights", None) or {}
    unknown = sorted(set(placement) - known) + sorted(set(weights) - set(WEIGHTS))
    if unknown:
        raise InvalidInput(
            f"virt:placement: unknown setting {', '.join(unknown)}; "
            f"known: {', '.join(sorted(known))}, weights of {', '.join(sorted(WEIGHTS))}"
        )
    for key, value in {**placement, **weights}.items():
        if isinstance(value, bool) or not isinstance(value, (int, float)) or value < 0:
            raise InvalidInput(f"virt:placement: {key} must be a number from 0, not {value!r}")
    return replace(
        Policy(**placement), weights={**WEIGHTS, **weights}, exclude=tuple(exclude or ())
    )
