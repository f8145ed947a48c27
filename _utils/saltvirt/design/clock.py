"""The guest's clock."""

from saltvirt.design.put import merge
from saltvirt.spec.base import given
from saltvirt.xml.timer import Timer

_TIMER = ("track", "tickpolicy", "frequency", "mode", "present", "slew", "threshold", "limit")


def apply(spec, domain, context):
    """Lays a ClockSpec onto a domain: what it does not say of the time is UTC."""
    del context
    if spec is None:
        return
    clock = domain.clock
    clock.offset = spec.offset()
    clock.basis = spec.basis() if clock.offset == "variable" else None
    clock.timezone, clock.adjustment = given(spec.timezone), given(spec.adjustment)
    clock.start = None
    merge(
        clock, "timers", spec.timers,
        key=lambda child: child.name,
        edit=_timer,
        make=lambda name: Timer(name=name),
    )  # fmt: skip


def _timer(timer, spec):
    for name in _TIMER:
        setattr(timer, name, given(getattr(spec, name)))


def default(domain, context):
    """The clock of a new guest whose user said nothing of it."""
    if not domain.clock.offset and not context.container:
        domain.clock.offset = "utc"
