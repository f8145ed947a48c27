"""The guest's clock."""

from saltvirt.design.put import merge, put
from saltvirt.spec.base import REMOVE
from saltvirt.xml.timer import Timer

_TIMER = ("track", "tickpolicy", "frequency", "mode", "present", "slew", "threshold", "limit")


def apply(spec, domain, context):
    """Lays a ClockSpec onto a domain."""
    del context
    if spec is None:
        return
    clock = domain.clock
    offset = spec.offset() or _fallback(spec, clock)
    if offset:
        clock.offset = offset
        clock.basis = spec.basis() if offset == "variable" else None
    put(clock, spec, "timezone", "adjustment")
    if offset and offset != "timezone":
        clock.timezone = None
    if offset and spec.adjustment in (None, REMOVE):
        clock.adjustment = None
    merge(
        clock, "timers", spec.timers,
        key=lambda child: child.name,
        edit=lambda child, value: put(child, value, *_TIMER),
        make=lambda name: Timer(name=name),
    )  # fmt: skip


def _fallback(spec, clock):
    """UTC, when what the clock went by is taken away."""
    gone = {"timezone": spec.timezone, "variable": spec.adjustment}.get(clock.offset)
    return "utc" if gone is REMOVE else None


def default(domain, context):
    """The clock of a new guest whose user said nothing of it."""
    if not domain.clock.offset and not context.container:
        domain.clock.offset = "utc"
