"""Which minions are hypervisors, and which of them are connected, as far as the master knows."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Any

import salt.cache
import salt.utils.minions

from saltvirt import errors, settings

# the grain of _grains/virt_host.py
DEFAULT_TARGET = "G@virt_host:hypervisor:True"
# up to this number of claims in a target every combination is tried; beyond it, all or none
_CLAIMS = 6
# claims that a minion may make about itself, and whether they hold; None: any claim
Claims = dict[str | None, bool]
_NOBODY = "-"  # neither a minion nor a guest can have this id


def expression(opts: Mapping[str, Any]) -> str:
    """Return the compound target of hypervisors, ``virt:hosts`` of the master's configuration.

    The default matches minions that report themselves (grain ``virt_host:hypervisor``).
    """
    target = settings.option(settings.of_master(opts), "hosts", DEFAULT_TARGET)
    if not isinstance(target, str):
        raise settings.invalid("hosts", target, "a compound target")
    return target


def no_host_reason(opts: Mapping[str, Any]) -> str:
    """Return why no minion is a hypervisor."""
    configured = expression(opts)
    if configured == DEFAULT_TARGET:
        return (
            "virt:hosts is not set in the master's configuration, and no accepted minion reports "
            "that it is a hypervisor (grain virt_host)"
        )
    return f"no accepted minion matches virt:hosts, {configured!r}, in the master's configuration"


def hosts(opts: Mapping[str, Any], target: str | None = None) -> list[str]:
    """Return the accepted minions that are hypervisors, sorted.

    opts: the master's configuration. target: a compound target that replaces the configured
    one.

    The match is not greedy: a minion without cached grains does not match a grain. Resources of
    Salt 3008, which any minion registers under any name, are not minions.
    """
    minions = salt.utils.minions.CkMinions(opts)
    matches = minions.check_minions(target or expression(opts), "compound", greedy=False)
    return sorted(set(matches["minions"]) & set(minions._pki_minions()))


def accepted(opts: dict[str, Any]) -> list[str]:
    """Return all minions that this master itself accepted, sorted."""
    return hosts(opts, "*")


def connected(opts: dict[str, Any], ids: Iterable[str] | None = None) -> set[str]:
    """Return the ids (default: of all minions) that are connected to this master."""
    subset = None if ids is None else set(ids)
    return set(salt.utils.minions.CkMinions(opts).connected_ids(subset=subset))


def reported(opts: dict[str, Any], minion_id: str) -> bool:
    """Return whether a minion with this id has sent its grains to this master."""
    return bool(salt.utils.minions.get_minion_data(minion_id, opts)[1])


def forget(opts: dict[str, Any], minion_id: str) -> None:
    """Forget the data of an earlier minion with this id before a new key is accepted."""
    if opts.get("minion_data_cache", False):
        cache = salt.cache.factory(opts)
        for bank, key in (
            (f"minions/{minion_id}", "data"), ("grains", minion_id), ("pillar", minion_id),
        ):  # fmt: skip
            cache.flush(bank, key)


class _OneMinion(salt.utils.minions.CkMinions):  # type: ignore[misc]
    """Salt's evaluation of a target, on a master whose only minion has this id.

    Grains, and a pillar that is not known yet, are claims of the minion: ``claims`` defines whether
    each of them holds, and ``met`` collects them.
    """

    def __init__(self, opts: dict[str, Any], minion_id: str, claims: Claims | None = None) -> None:
        self.opts = {"minion_data_cache": True, "nodegroups": opts.get("nodegroups") or {}}
        self.key, self.minion_id = None, minion_id
        self.claims = claims or {}
        self.met: list[str] = []

    registry = None  # resources are not minions

    def _pki_minions(self) -> set[str]:
        return {self.minion_id}

    def _claim(self, expr: Any = None, *_args: Any, **_kwargs: Any) -> dict[str, list[str]]:
        self.met.append(str(expr))
        holds = self.claims.get(str(expr), self.claims.get(None))
        return {"minions": [self.minion_id] if holds else [], "missing": []}

    _check_grain_minions = _check_grain_pcre_minions = _claim
    _check_pillar_minions = _check_pillar_pcre_minions = _check_pillar_exact_minions = _claim
    _check_ipcidr_minions = _all_minions = _check_resource_minions = _claim

    def matches(self, target: str) -> bool:
        """Return whether the minion would match."""
        return bool(self._check_compound_minions(target, ":", True)["minions"])


def _outcomes(opts: dict[str, Any], minion_id: str, target: str) -> set[bool]:
    """Return the results of the target for the id, for all claims that the minion could make."""
    first = _OneMinion(opts, minion_id)
    outcomes = {first.matches(target)}
    claims = sorted(set(first.met))
    if len(claims) > _CLAIMS:
        every: list[Claims] = [{None: True}]
    else:
        holds = itertools.product((True, False), repeat=len(claims))
        every = [dict(zip(claims, values, strict=True)) for values in holds]
    return outcomes | {_OneMinion(opts, minion_id, each).matches(target) for each in every}


def may_match(opts: dict[str, Any], minion_id: str) -> bool:
    """Return whether the id is, or could claim to be, a hypervisor according to ``virt:hosts``."""
    return True in _outcomes(opts, minion_id, expression(opts))


def by_name(opts: dict[str, Any], minion_id: str) -> bool:
    """Return whether the id is a hypervisor according to ``virt:hosts``, without any claim."""
    return _outcomes(opts, minion_id, expression(opts)) == {True}


def refuse_host(opts: dict[str, Any], name: str) -> str:
    """Return the name, unless ``virt:hosts`` reserves it for hypervisors.

    A target that consists of claims only, such as the default, reserves no names. Raises
    InvalidInput.
    """
    target = expression(opts)
    outcomes = _outcomes(opts, name, target)
    if True in outcomes and (False not in outcomes or True not in _outcomes(opts, _NOBODY, target)):
        raise errors.InvalidInput(
            f"{name} cannot be a guest's name: virt:hosts ({target}) in the master's "
            "configuration would make a hypervisor of it"
        )
    return name
