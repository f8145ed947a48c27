"""Match the requested interfaces with those of a guest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from saltvirt.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from saltvirt.spec.nic import NicSpec
    from saltvirt.xml.devices.interface import Interface

    Fits = Callable[[NicSpec, Interface], object]


def nics(
    specs: Sequence[NicSpec], actual: Iterable[Interface], names: Mapping[str, str]
) -> tuple[list[tuple[NicSpec, Interface | None]], list[Interface]]:
    """[(NicSpec, Interface or None)] and the Interfaces without a request.

    An interface is identified by its MAC, otherwise by its recorded name. If neither decides: by
    its network and model; an interface without a recorded name, or a request without a name, by its
    position, so that moving a guest to another bridge keeps the MAC.

    names: {MAC in lower case: recorded name}. Raises InvalidInput if an interface would be removed
    while another one that matches as well would be kept.
    """

    def name(nic: Interface) -> str | None:
        return names.get((nic.mac or "").lower())

    certain: tuple[Fits, ...] = (
        lambda spec, nic: spec.mac and (nic.mac or "").lower() == spec.mac,
        lambda spec, nic: not spec.mac and spec.name and name(nic) == spec.name,
    )
    likely: tuple[Fits, ...] = (
        lambda spec, nic: _joined(spec, nic) and spec.model in (None, nic.model),
        _joined,
        lambda spec, nic: not spec.mac and not (spec.name and name(nic)),
    )
    unmatched = list(actual)
    matches: dict[int, Interface] = {}
    for fits in certain:
        _matched(specs, unmatched, matches, fits)
    hits = [
        (number, fits) for fits in likely for number in _matched(specs, unmatched, matches, fits)
    ]
    for number, fits in hits:
        _refuse_unclear(
            number, specs[number], [nic for nic in unmatched if fits(specs[number], nic)]
        )
    return [(spec, matches.get(number)) for number, spec in enumerate(specs)], unmatched


def _matched(
    specs: Sequence[NicSpec], unmatched: list[Interface], matches: dict[int, Interface], fits: Fits
) -> list[int]:
    """Move interfaces from ``unmatched`` to ``matches``, each to the first spec that it matches;
    returns the numbers of these specs."""
    hits = []
    for number, spec in enumerate(specs):
        hit = (
            None if number in matches else next((nic for nic in unmatched if fits(spec, nic)), None)
        )
        if hit is not None:
            matches[number] = hit
            unmatched.remove(hit)
            hits.append(number)
    return hits


def _refuse_unclear(number: int, spec: NicSpec, candidates: Sequence[Interface]) -> None:
    """Raise InvalidInput if other interfaces fit a spec as well as its match, and would be removed.
    candidates: these interfaces."""
    if candidates:
        raise InvalidInput(
            f"interfaces: {spec.name or f'item {number}'} matches more than one interface of the "
            f"guest, and {', '.join(str(nic.mac) for nic in candidates)} would be removed: give "
            "the mac of the intended interface"
        )


def _joined(spec: NicSpec, nic: Interface) -> bool:
    return not spec.mac and (nic.type, nic.source) == (spec.type, spec.source)
