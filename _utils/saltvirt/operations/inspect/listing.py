"""The networks, storage pools and images of all hosts."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from saltvirt import errors, schema, units
from saltvirt.answers import inspect_calls
from saltvirt.answers.calls import Call
from saltvirt.answers.guest_calls import HostRequest
from saltvirt.answers.inspection import (
    HostNetworks,
    ImageSummary,
    NetworkSummary,
    PoolSummary,
    PoolVolumes,
    VolumeSummary,
)
from saltvirt.fleet.client import Fleet
from saltvirt.operations.inspect import master_images

Row = list[Any]
HostAnswer = TypeVar("HostAnswer")


def with_failed(rows: list[Row], failed: Mapping[str, str]) -> list[Row]:
    """Return the rows of a table, whose first column is the host, with a row for each host that
    failed, and its error in a further column."""
    if not failed:
        return rows
    head, *body = rows
    blank = [None] * (len(head) - 1)
    failures = [[host, *blank, text] for host, text in sorted(failed.items())]
    return [[*head, "error"], *([*row, None] for row in body), *failures]


@dataclass(frozen=True)
class Listing:
    """What hosts have. noun: of one entry. columns, rows: of the table, of which the first column
    is the host. hosts: host to its answer as plain data. failed: host to its error. master_rows,
    details: what this master has."""

    noun: str
    columns: Sequence[str]
    hosts: Mapping[str, Any]
    rows: Sequence[Row]
    failed: Mapping[str, str]
    master_rows: Sequence[Row] = ()
    details: Mapping[str, Any] = field(default_factory=dict)

    def answer(self) -> dict[str, Any]:
        """Return the answer of the runner; its exit code is 1 if a host did not answer."""
        hosts = {**self.hosts, **{host: {"error": text} for host, text in self.failed.items()}}
        rows = with_failed([[*self.columns], *self.rows, *self.master_rows], self.failed)
        entry = {
            "title": self._title(),
            "table": rows,
            "hosts": dict(sorted(hosts.items())),
            **self.details,
        }
        return {f"{self.noun}s": entry, **({"retcode": 1} if self.failed else {})}

    def _title(self) -> str:
        count = units.pluralize(len(self.rows), self.noun) if self.rows else f"no {self.noun}s"
        answered = sorted(self.hosts)
        title = f"{count} on {units.pluralize(len(answered), 'host')}"
        if len(answered) == 1:
            title = f"{count} on {answered[0]}"
        return title + (f", {len(self.master_rows)} on this master" if self.master_rows else "")


def _gather(
    fleet: Fleet, host: str | None, call: Call[HostRequest, HostAnswer]
) -> tuple[dict[str, HostAnswer], dict[str, str]]:
    answers, failed = call.gather(fleet, fleet.hosts(host), HostRequest())
    return dict(sorted(answers.items())), failed


def networks(fleet: Fleet, host: str | None = None) -> Listing:
    """Return the networks of libvirt and the bridges of the hosts. Raises NotFound."""
    answers, failed = _gather(fleet, host, inspect_calls.NETWORKS)
    columns = ["host", "network", "state", "autostart", "forward", "bridge", "address", "guests"]
    hosts = {name: answer.to_answer() for name, answer in answers.items()}
    return Listing("network", columns, hosts, [*_network_rows(answers)], failed)


def _network_rows(answers: Mapping[str, HostNetworks]) -> Iterable[Row]:
    for host, answer in answers.items():
        for name, network in sorted(answer.networks.items()):
            yield [host, name, *_network_cells(network)]
        for name, bridge in sorted(answer.bridges.items()):
            yield [host, None, "host bridge", None, None, name, None, len(bridge.guests)]


def _network_cells(network: NetworkSummary) -> Row:
    if network.error:
        return [network.error, None, None, None, None, len(network.guests)]
    state = "active" if network.active else "inactive"
    return [
        _with_pending(state, network.pending), _yes_no(network.autostart),
        network.forward or "isolated", network.bridge, ", ".join(network.addresses) or None,
        len(network.guests),
    ]  # fmt: skip


def _with_pending(state: str, pending: bool) -> str:
    return f"{state}, changes at next start" if pending else state


def _yes_no(value: bool) -> str:
    return "yes" if value else "no"


def pools(fleet: Fleet, host: str | None = None) -> Listing:
    """Return the storage pools of the hosts. Raises NotFound."""
    answers, failed = _gather(fleet, host, inspect_calls.POOLS)
    columns = ["host", "pool", "type", "state", "autostart", "capacity", "allocated", "free"]
    hosts = {name: {"pools": schema.plain(answer)} for name, answer in answers.items()}
    rows = [
        [name, pool_name, *_pool_cells(pool)]
        for name, answer in answers.items()
        for pool_name, pool in sorted(answer.items())
    ]
    return Listing("pool", columns, hosts, rows, failed)


def _pool_cells(pool: PoolSummary) -> Row:
    if pool.error:
        return [pool.type, pool.error, None, None, None, None]
    sizes = (pool.capacity, pool.allocation, pool.free)
    return [
        pool.type, _with_pending(pool.state, pool.pending), _yes_no(pool.autostart),
        *({"bytes": size} if pool.capacity else None for size in sizes),
    ]  # fmt: skip


def volumes(fleet: Fleet, host: str | None = None, pool: str | None = None) -> Listing:
    """Return the volumes in the running storage pools of the hosts. pool: of this pool only. Raises
    NotFound, also for a pool that does not run on any host that answered."""
    answers, failed = _gather(fleet, host, inspect_calls.VOLUMES)
    if pool is not None and not any(pool in answer for answer in answers.values()):
        raise _unknown_pool(pool, host, answers, failed)
    columns = ["host", "pool", "volume", "format", "size", "allocated", "guests"]
    selected = {
        name: {key: of_pool for key, of_pool in sorted(answer.items()) if pool in (None, key)}
        for name, answer in answers.items()
    }
    hosts = {name: {"pools": schema.plain(answer)} for name, answer in selected.items()}
    return Listing("volume", columns, hosts, [*_volume_rows(selected)], failed)


def _unknown_pool(
    pool: str,
    host: str | None,
    answers: Mapping[str, Mapping[str, PoolVolumes]],
    failed: Mapping[str, str],
) -> errors.NotFound:
    text = f"no storage pool {pool!r} is running on {host or 'any hypervisor'}"
    if failed:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in sorted(failed.items()))
        text += f" that answered ({reasons})"
    existing = sorted({name for answer in answers.values() for name in answer})
    near = difflib.get_close_matches(pool, existing, n=1)
    return errors.NotFound(f"{text}, did you mean {near[0]!r}?" if near else text)


def _volume_rows(answers: Mapping[str, Mapping[str, PoolVolumes]]) -> Iterable[Row]:
    for host, pools_of_host in answers.items():
        for pool, answer in pools_of_host.items():
            if answer.error:
                yield [host, pool, answer.error, None, None, None, None]
            for name, volume in answer.volumes.items():
                yield [host, pool, name, *_volume_cells(volume)]


def _volume_cells(volume: VolumeSummary) -> Row:
    guests = ", ".join(volume.used_by) or None
    if volume.error:
        return [volume.error, None, None, guests]
    return [volume.format, {"bytes": volume.capacity}, {"bytes": volume.allocation}, guests]


def images(fleet: Fleet, host: str | None = None) -> Listing:
    """Return the images in the caches of the hosts, and those that this master serves. Raises
    NotFound."""
    answers, failed = _gather(fleet, host, inspect_calls.IMAGES)
    columns = ["host", "image", "format", "size", "on disk", "guests", "source"]
    hosts = {name: {"images": schema.plain(answer)} for name, answer in answers.items()}
    rows = [
        [name, file, *_image_cells(image)]
        for name, answer in answers.items()
        for file, image in sorted(answer.items())
    ]
    served = [] if host else [
        {**image.to_answer(), "cached_on": _cached_on(answers, image.source)}
        for image in master_images.listed(fleet.opts)
    ]  # fmt: skip
    master_rows = [
        ["master", None, None, None, {"bytes": image["size_bytes"]}, None, image["source"]]
        for image in served
    ]
    return Listing("image", columns, hosts, rows, failed, master_rows, {"master": served})


def _image_cells(image: ImageSummary) -> Row:
    return [
        image.format, {"bytes": image.size_bytes}, {"bytes": image.allocated_bytes},
        len(image.used_by), image.source,
    ]  # fmt: skip


def _cached_on(answers: Mapping[str, Mapping[str, ImageSummary]], source: str) -> list[str]:
    return [
        name
        for name, images_of_host in answers.items()
        if any(image.source == source for image in images_of_host.values())
    ]
