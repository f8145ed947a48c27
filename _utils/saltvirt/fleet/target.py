"""Which minions are hypervisors, and which of them are connected, as the master knows it."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Any

import salt.cache
import salt.utils.minions

from saltvirt import errors, settings

# our grain, see _grains/virt_host.py
DEFAULT_TARGET = "G@virt_host:hypervisor:True"
# of so many claims in one target each combination is tried; of more, all or none
_CLAIMS = 6
# what a minion may claim of itself, and whether it holds; None: any claim
Claims = dict[str | None, bool]
_NOBODY = "-"  # no minion has this id, for no guest can


def expression(opts: Mapping[str, Any]) -> str:
    """The compound target of hypervisors: ``virt:hosts`` of the master's configuration; the
    default are minions that report themselves (grain ``virt_host:hypervisor``)."""
    target = settings.option(settings.of_master(opts), "hosts", DEFAULT_TARGET)
    if not isinstance(target, str):
        raise settings.invalid("hosts", target, "a compound target")
    return target


def no_host_reason(opts: Mapping[str, Any]) -> str:
    """Why there is no hypervisor, when no minion is one."""
    configured = expression(opts)
    if configured == DEFAULT_TARGET:
        return (
            "the master's configuration has no virt:hosts, and no accepted minion says that it is "
            "one (its grain virt_host)"
        )
    return f"no accepted minion matches virt:hosts, {configured!r}, in the master's configuration"


def hosts(opts: Mapping[str, Any], target: str | None = None) -> list[str]:
    """The accepted minions that are hypervisors, sorted.

    opts: the master's configuration. target: a compound target that replaces the configured
    one.

    The match is not greedy: a minion without cached grains does not match a grain. What Salt
    3008 calls a resource, which any minion registers under any name, is none.
    """
    minions = salt.utils.minions.CkMinions(opts)
    matches = minions.check_minions(target or expression(opts), "compound", greedy=False)
    return sorted(set(matches["minions"]) & set(minions._pki_minions()))


def accepted(opts: dict[str, Any]) -> list[str]:
    """All minions that this master itself accepted, sorted."""
    return hosts(opts, "*")


def connected(opts: dict[str, Any], ids: Iterable[str] | None = None) -> set[str]:
    """Those of the ids (default: of all minions) with a connection to this master, as a set."""
    subset = None if ids is None else set(ids)
    return set(salt.utils.minions.CkMinions(opts).connected_ids(subset=subset))


def reported(opts: dict[str, Any], minion_id: str) -> bool:
    """True when a minion with the key of this id has reached this master: it has its grains."""
    return bool(salt.utils.minions.get_minion_data(minion_id, opts)[1])


def forget(opts: dict[str, Any], minion_id: str) -> None:
    """What an earlier minion of this id has told is no sign of the one whose key comes now."""
    if opts.get("minion_data_cache", False):
        cache = salt.cache.factory(opts)
        for bank, key in (
            (f"minions/{minion_id}", "data"), ("grains", minion_id), ("pillar", minion_id),
        ):  # fmt: skip
            cache.flush(bank, key)


class _OneMinion(salt.utils.minions.CkMinions):  # type: ignore[misc]
    """Salt's own reading of a target, on a master whose only minion has this id.

    What a minion says of itself, or of its pillar nobody knows yet, is a claim: ``claims`` says
    for each whether it holds, and ``met`` collects them.
    """

    def __init__(self, opts: dict[str, Any], minion_id: str, claims: Claims | None = None) -> None:
        self.opts = {"minion_data_cache": True, "nodegroups": opts.get("nodegroups") or {}}
        self.key, self.minion_id = None, minion_id
        self.claims = claims or {}
        self.met: list[str] = []

    registry = None  # resources are no minions

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
        """Whether the minion would match."""
        return bool(self._check_compound_minions(target, ":", True)["minions"])


def _outcomes(opts: dict[str, Any], minion_id: str, target: str) -> set[bool]:
    """What the target says of the id: a set of booleans, for the claims that it could make."""
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
    """True when ``virt:hosts`` makes a hypervisor of this id, or would by what it may claim."""
    return True in _outcomes(opts, minion_id, expression(opts))


def by_name(opts: dict[str, Any], minion_id: str) -> bool:
    """True when ``virt:hosts`` makes a hypervisor of this id, whatever the minion claims."""
    return _outcomes(opts, minion_id, expression(opts)) == {True}


def refuse_host(opts: dict[str, Any], name: str) -> str:
    """The name, unless ``virt:hosts`` is there for hypervisors of such a name.

    A target of claims alone, as the default is, says nothing of names.
    Raises InvalidInput.
    """
    target = expression(opts)
    outcomes = _outcomes(opts, name, target)
    if True in outcomes and (False not in outcomes or True not in _outcomes(opts, _NOBODY, target)):
        raise errors.InvalidInput(
            f"{name} cannot be a guest's name: virt:hosts ({target}) in the master's "
            "configuration would make a hypervisor of it"
        )
    return name
