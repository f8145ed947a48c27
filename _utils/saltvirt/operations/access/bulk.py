"""Apply a verb of the runner to several guests: a list of names, a pattern, or all guests of a
host, with a label or in a state.

The set is resolved once. For each of its guests, the verb is called as for a single guest, with
the same checks and rights; a failure does not stop the others.
"""

from __future__ import annotations

import contextvars
import fnmatch
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from saltvirt import errors, sanitize, units
from saltvirt.fleet import progress
from saltvirt.fleet.client import Fleet
from saltvirt.operations.access import access_check, owners
from saltvirt.operations.cluster import find, inventory
from saltvirt.operations.core import report
from saltvirt.operations.core.result import Answer, key
from saltvirt.operations.journal import location_cache
from saltvirt.spec import values

# arguments that select guests, and how the verb is applied to them
SELECTORS = ("host", "label", "state")
OPTIONS = ("at_once", "confirm")
AT_ONCE, MAX_AT_ONCE = 4, 32
STATES = ("running", "paused", "shutdown", "crashed", "pmsuspended")
# other words for a state of libvirt
_SYNONYMS = {"off": "shutdown", "stopped": "shutdown", "shut off": "shutdown"}
# names in the first line of the output; the table at the end has all of them
_NAMES_SHOWN = 10

Call = Callable[[tuple[Any, ...], dict[str, Any]], Answer]


@dataclass(frozen=True)
class Selection:
    """The guests of a call.

    names: names and shell patterns; empty: all guests. host, label: patterns. state: of libvirt.
    args, kwargs: the arguments of the verb, without the name.
    """

    names: tuple[str, ...]
    host: str | None = None
    label: str | None = None
    state: str | None = None
    at_once: int = AT_ONCE
    confirm: int | None = None
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The selection as the user typed it; never the name of a guest."""
        terms = [",".join(self.names)] if self.names else []
        for word in SELECTORS:
            value = getattr(self, word)
            terms += [f"{word}={value}"] if value is not None else []
        text = " ".join(terms)
        return text if len(self.names) != 1 or len(terms) > 1 or is_pattern(text) else f"[{text}]"

    @property
    def is_list(self) -> bool:
        """Whether each guest was named."""
        return bool(self.names) and not self.is_narrowed and not any(map(is_pattern, self.names))

    @property
    def is_narrowed(self) -> bool:
        """Whether guests are selected by their host, label or state."""
        return any(getattr(self, word) is not None for word in SELECTORS)

    def is_on(self, host: str) -> bool:
        """Return whether guests of the host are selected."""
        return self.host is None or fnmatch.fnmatchcase(host, self.host)

    def matches(self, name: str) -> bool:
        """Return whether the guest has one of the names or patterns."""
        return not self.names or any(
            name == pattern or (is_pattern(pattern) and fnmatch.fnmatchcase(name, pattern))
            for pattern in self.names
        )


@dataclass(frozen=True)
class Target:
    """A selected guest. host: None if no host reports the guest. error: why the verb cannot be
    applied to it."""

    name: str
    host: str | None = None
    error: str | None = None


def is_pattern(text: str) -> bool:
    """Return whether the text is a shell pattern: no guest of Salt Virt has such a name."""
    return "*" in text or "?" in text or ("[" in text and "]" in text)


def selectors(function: Callable[..., Answer]) -> tuple[str, ...]:
    """Return the arguments by which guests can be selected for the function: those that it does not
    need for itself."""
    parameters = inspect.signature(function).parameters
    needed = parameters.keys() - {"host"}
    if "host" in parameters and parameters["host"].default is inspect.Parameter.empty:
        needed |= {"host"}
    if "labels" in parameters:  # of virt.label: a slip must not replace the labels of other guests
        needed |= {"label"}
    return tuple(word for word in (*SELECTORS, *OPTIONS) if word not in needed)


def selection(
    function: Callable[..., Answer], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Selection | None:
    """Return the Selection, or None for a call with the name of one guest.

    ``host`` beside the name of one guest belongs to the function, if the function has it. Raises
    InvalidInput.
    """
    is_named = bool(args) or "name" in kwargs
    kwargs = dict(kwargs)
    given = args[0] if args else kwargs.pop("name", None)
    selecting = [word for word in selectors(function) if kwargs.get(word) is not None]
    names = _names(given)
    if is_named and not names and set(selecting) & set(SELECTORS):
        raise errors.InvalidInput(
            f"name is empty: leave it out to select all guests by {', '.join(SELECTORS)}"
        )
    is_single = isinstance(given, (str, int)) and names == (str(given).strip(),)
    is_single = is_single and not is_pattern(names[0])
    if is_single and "host" in inspect.signature(function).parameters:
        selecting = [word for word in selecting if word != "host"]
    if not selecting and (is_single or not names):
        return None
    if not names and not set(selecting) & set(SELECTORS):
        return None
    options = {word: kwargs.pop(word) for word in selecting}
    for word in selectors(function):
        if not is_single:
            kwargs.pop(word, None)
    return Selection(
        names,
        _text(options, "host"),
        _text(options, "label"),
        _state(options.get("state")),
        _count(options.get("at_once", AT_ONCE), "at_once", MAX_AT_ONCE),
        _count(options["confirm"], "confirm") if "confirm" in options else None,
        tuple(args[1:]),
        kwargs,
    )


def _names(given: object) -> tuple[str, ...]:
    """Return the names and patterns of the first argument. Raises InvalidInput."""
    if isinstance(given, str) and "," in given:
        given = given.split(",")
    items = given if isinstance(given, (list, tuple)) else [] if given in (None, "") else [given]
    names = []
    for item in items:
        if isinstance(item, bool) or not isinstance(item, (str, int)) or not str(item).strip():
            raise errors.InvalidInput(
                f"name must be a name, a pattern or a list of them, not {units.short_repr(given)}"
            )
        names.append(str(item).strip())
    return tuple(dict.fromkeys(names))


def _text(options: Mapping[str, Any], word: str) -> str | None:
    value = options.get(word)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (str, int)) or value == "":
        raise errors.InvalidInput(f"{word} must be a name or a pattern, not {value!r}")
    return str(value)


def _state(value: object) -> str | None:
    if value is None:
        return None
    # YAML reads off as False
    text = "off" if value is False else str(value).lower()
    state = _SYNONYMS.get(text, text)
    if state not in STATES:
        raise errors.InvalidInput(
            f"state must be one of {', '.join(STATES)}, not {units.short_repr(value)}"
        )
    return state


def _count(value: object, word: str, maximum: int | None = None) -> int:
    number = units.parse_number(value, word)
    if number != int(number) or number < 1 or (maximum is not None and number > maximum):
        limit = f" to {maximum}" if maximum else ""
        raise errors.InvalidInput(f"{word} must be a whole number from 1{limit}, not {value!r}")
    return int(number)


def answer(
    function: Callable[..., Answer],
    chosen: Selection,
    call: Call,
    user: str | None,
    destructive: bool,
) -> Answer:
    """Call the verb for each selected guest and return the answers, with a summary under the
    selection's text; ``retcode`` is 1 if one failed.

    call: calls the verb with its arguments for one guest, and returns an answer for errors, too.
    user: the limited user, or None. Raises NotFound if no guest is selected, InvalidInput if a
    destructive verb is not confirmed, or another number of guests is.
    """
    verb, opts = f"virt.{function.__name__}", function.__globals__["__opts__"]
    test = _is_test(function, chosen)
    with Fleet(opts) as fleet:
        targets, missing = resolve(fleet, chosen, user)
    names = [target.name for target in targets]
    if not targets:
        text = f"no guest matches {chosen.text}"
        reasons = "; ".join(f"{host}: {reason}" for host, reason in sorted(missing.items()))
        if user is not None and missing:  # who learns no more about hosts
            reasons = f"not: {', '.join(sorted(missing))}"
        raise errors.NotFound(
            f"{text} on any hypervisor that answered ({reasons})" if reasons else text
        )
    needs_confirmation = destructive and not (test or chosen.is_list)
    if chosen.confirm != len(names) and (needs_confirmation or chosen.confirm is not None):
        raise errors.InvalidInput(
            f"{verb} would affect {_counted(names)}; to confirm, add confirm={len(names)}"
        )
    screen = report.screen(function.__globals__["__salt__"], opts)
    screen.line(f"{verb}: {_counted(names)}")
    with progress.several():
        answers = _call_each(chosen, targets, call)
    return _merged(chosen, targets, answers, missing, test)


def _is_test(function: Callable[..., Answer], chosen: Selection) -> bool:
    """Return whether the verb is only tested, also if ``test`` was given by its position."""
    bound = inspect.signature(function).bind("", *chosen.args, **chosen.kwargs)
    return values.boolean(bound.arguments.get("test", False), "test")


def _counted(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_NAMES_SHOWN])
    hidden = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
    return f"{units.pluralize(len(names), 'guest')}: {shown}{hidden}"


def resolve(
    fleet: Fleet, chosen: Selection, user: str | None
) -> tuple[list[Target], dict[str, str]]:
    """Return (the selected guests, selected host to why its guests are not known).

    A limited user gets only guests that the user can see. Guests that a silent host had when it
    last answered are selected, with an error, unless labels or rights cannot be known. A name that
    is no pattern is selected even if no host reports such a guest: the verb says so, or, with a
    host, label or state, an error, because the guest may be found meanwhile and not have them.
    """
    locations = find.locations(fleet)
    missing = dict(locations.unreachable)
    limits = access_check.guest_filter(fleet.opts, user)
    identities = None
    if chosen.label is not None or limits is not None:
        identities = _identities(fleet, chosen.label, limits, missing)
    targets = []
    for name, hosts in locations.guests.items():
        places = {
            host: state for host, state in hosts.items()
            if chosen.is_on(host) and chosen.state in (None, state)
        }  # fmt: skip
        if places and chosen.matches(name) and (identities is None or identities.get(name)):
            host = next(iter(places)) if len(hosts) == 1 else ", ".join(sorted(hosts))
            targets.append(Target(name, host))
    if identities is None and chosen.state is None:
        targets += _last_seen(fleet, chosen, locations)
    # guests that the user can see; the host, label or state can exclude them
    visible = locations.guests.keys() if identities is None else identities.keys()
    excluded = {*visible, *(target.name for target in targets)}
    for name in chosen.names:
        if not is_pattern(name) and name not in excluded:
            targets.append(_unseen(name, chosen, locations if limits is None else None, missing))
    missing = {host: reason for host, reason in missing.items() if chosen.is_on(host)}
    if locations.unknown:
        missing["syndics"] = locations.unknown
    return sorted(targets, key=lambda target: target.name), missing


def _unseen(
    name: str, chosen: Selection, locations: find.Locations | None, missing: Mapping[str, str]
) -> Target:
    """Return the Target of a named guest that no host reports. locations: None if a limited user
    must not learn where the guest was last seen."""
    if not chosen.is_narrowed:
        return Target(name)
    error = f"no guest {name!r} on any hypervisor"
    if missing:
        error += f" that answered (not: {', '.join(sorted(missing))})"
    error += find.quoting_hint(name)
    if locations is not None:
        try:
            locations.host_of(name)
        except errors.VirtError as exc:
            error = exc.text
    return Target(name, error=error)


def _identities(
    fleet: Fleet,
    label: str | None,
    limits: access_check.GuestFilter | None,
    missing: dict[str, str],
) -> dict[str, bool]:
    """Return each guest that the user can see on all of its hosts, and whether it has the label by
    the master's record. missing: gets the hosts that do not report their guests' UUIDs."""
    hosts, unreachable = inventory.gather(fleet)
    missing.update(unreachable)
    labelled: dict[str, bool] = {}
    hidden = set()
    for host in hosts:
        for guest in host.guests:
            if limits is not None and not limits(guest.name, guest.uuid):
                hidden.add(guest.name)
                continue
            labels = owners.load(fleet.opts, guest.uuid).labels if label is not None else ()
            fits = label is None or any(fnmatch.fnmatchcase(item, label) for item in labels)
            labelled[guest.name] = labelled.get(guest.name, True) and fits
    return {name: fits for name, fits in labelled.items() if name not in hidden}


def _last_seen(fleet: Fleet, chosen: Selection, locations: find.Locations) -> Iterable[Target]:
    """Yield the selected guests that only a silent host had when it last answered."""
    for host in sorted(locations.unreachable):
        if chosen.is_on(host):
            names, _ = location_cache.unseen_guests(fleet.opts, host)
            for name in names:
                if name not in locations.guests and chosen.matches(name) and not chosen.is_list:
                    try:
                        locations.host_of(name)
                    except errors.VirtError as exc:
                        yield Target(name, host, exc.text)


def _call_each(chosen: Selection, targets: Sequence[Target], call: Call) -> dict[str, Answer]:
    """Call the verb for each guest, several at once; after Ctrl-C, for no further one. Salt's
    dunders are context variables: each thread gets a copy of the context."""
    futures: dict[str, Future[Answer]] = {}
    with ThreadPoolExecutor(chosen.at_once) as pool:
        try:
            for target in targets:
                if target.error is None:
                    futures[target.name] = pool.submit(
                        contextvars.copy_context().run,
                        call, (target.name, *chosen.args), dict(chosen.kwargs),
                    )  # fmt: skip
            return {name: future.result() for name, future in futures.items()}
        finally:
            for future in futures.values():
                future.cancel()


def _merged(
    chosen: Selection,
    targets: Sequence[Target],
    answers: Mapping[str, Answer],
    missing: Mapping[str, str],
    test: bool,
) -> Answer:
    """Return the answers of all guests and the summary. missing: hosts whose guests are not
    known."""
    data: Answer = {}
    rows: list[list[Any]] = [["guest", "host", "result", "comment"]]
    failed = 0
    for target in targets:
        entry = _entry(target, answers.get(target.name, {}))
        data[key(target.name)] = entry
        result = entry.get("result")
        failed += result is False
        word = {False: "failed", None: "would change"}.get(result, "ok")
        host = entry.get("host") or target.host
        rows.append([target.name, host, word, entry.get("comment")])
    total = units.pluralize(len(targets), "guest")
    comment = f"{total}: {len(targets) - failed} {'would succeed' if test else 'succeeded'}"
    comment += f", {failed} failed" if failed else ""
    silent = ""
    if missing and not chosen.is_list:
        silent = f"; {', '.join(sorted(missing))} did not answer: guests there may be missing"
    complete = not failed and not silent
    summary_result = False if not complete else None if test else True
    data[chosen.text] = {
        "result": summary_result, "comment": sanitize.one_line(comment + silent), "changes": {},
        "summary": True, "table": rows,
    }  # fmt: skip
    return data if complete else {**data, "retcode": 1}


def _entry(target: Target, given: Answer) -> Answer:
    """Return the entry of one guest. An entry without ``result``, as of a query, succeeded unless
    its answer has ``retcode``."""
    if target.error is not None:
        return {"result": False, "comment": target.error, "changes": {}, "host": target.host}
    entries = {word: entry for word, entry in given.items() if word != "retcode"}
    entry = entries.get(target.name)
    if entry is None and len(entries) == 1:
        (entry,) = entries.values()
    entry = dict(entry) if isinstance(entry, dict) else {"answer": entry}
    if given.get("retcode"):
        return {**entry, "result": False}
    return {"result": True, **entry}
