"""Which disk or interface of a guest is the one that a request means."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from saltvirt.design.source import places

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from saltvirt.design.source import Source
    from saltvirt.spec.disk import DiskSpec
    from saltvirt.spec.nic import NicSpec
    from saltvirt.xml.disk import Disk
    from saltvirt.xml.interface import Interface

S = TypeVar("S")
A = TypeVar("A")


def disks(
    specs: Sequence[DiskSpec],
    actual: Iterable[Disk],
    source_of: Callable[[DiskSpec], Source | None],
) -> tuple[list[tuple[DiskSpec, Disk | None]], list[Disk]]:
    """[(DiskSpec, Disk or None)] and the Disks that no request means.

    A disk is known by its target, else by where its data is; CD drives and floppies,
    whose medium may change, by their order. ``source_of(spec)`` gives a Source or None.
    """
    return _pair(
        specs,
        actual,
        lambda spec, disk: spec.target and disk.target == spec.target,
        lambda spec, disk: _same_place(source_of(spec), disk),
        lambda spec, disk: spec.removable and disk.device == spec.device,
    )


def _same_place(source: Source | None, disk: Disk) -> bool:
    return source is not None and bool(source.places() & places(disk))


def nics(
    specs: Sequence[NicSpec], actual: Iterable[Interface]
) -> tuple[list[tuple[NicSpec, Interface | None]], list[Interface]]:
    """[(NicSpec, Interface or None)] and the Interfaces that no request means.

    An interface is known by its MAC, else by what it is joined to and its model, else by
    its order: so that moving a guest to another bridge keeps the MAC.
    """
    return _pair(
        specs,
        actual,
        lambda spec, nic: spec.mac and (nic.mac or "").lower() == spec.mac,
        lambda spec, nic: _joined(spec, nic) and spec.model in (None, nic.model),
        _joined,
        lambda spec, nic: not spec.mac,
    )


def _joined(spec: NicSpec, nic: Interface) -> bool:
    return not spec.mac and (nic.type, nic.source) == (spec.type, spec.source)


def _pair(
    specs: Sequence[S], actual: Iterable[A], *tests: Callable[[S, A], object]
) -> tuple[list[tuple[S, A | None]], list[A]]:
    """Each spec with the first actual one that fits, trying the tests one after the other."""
    left = list(actual)
    found = {}
    for fits in tests:
        for number, spec in enumerate(specs):
            if number in found:
                continue
            hit = next((item for item in left if fits(spec, item)), None)
            if hit is not None:
                found[number] = hit
                left.remove(hit)
    return [(spec, found.get(number)) for number, spec in enumerate(specs)], left
