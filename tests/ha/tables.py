"""The tables of docs/ha.md, made from the code: ``make docs``."""

import dataclasses
import inspect

from saltvirt.ha import policy, safety, transitions


def states(found):
    """What the states are."""
    return ["| state | what it means |", "|---|---|", *(f"| {s.name} | {s.says} |" for s in found)]


def rows(found):
    """What leads from state to state: rows that differ in their first state alone are one."""
    together = {}
    for row in found:
        together.setdefault((row.when, row.to, row.why), []).append(row.state)
    lines = ["| from | to | because | condition |", "|---|---|---|---|"]
    for (when, to, why), names in together.items():
        target = "the same" if names == [to] else to
        lines.append(f"| {', '.join(dict.fromkeys(names))} | {target} | {why} | `{when}` |")
    return lines


def conditions():
    """The safety conditions, with what they say."""
    found = [
        (name, one)
        for name, one in vars(safety).items()
        if inspect.isfunction(one) and one.__module__ == safety.__name__
    ]
    return [
        "| condition | what it holds |",
        "|---|---|",
        *(f"| `{name}` | {' '.join(inspect.getdoc(one).split())} |" for name, one in found),
    ]


def settings():
    """The settings and their defaults."""
    fields = dataclasses.fields(policy.HaPolicy)
    return [
        "| setting | default |",
        "|---|---|",
        *(f"| `{f.name}` | {f.default} |" for f in fields),
    ]


def page(text):
    """The text of docs/ha.md with the tables of the code."""
    for word, made in (
        ("states of hosts", states(transitions.HOST_STATES)),
        ("hosts", rows(transitions.HOSTS)),
        ("states of guests", states(transitions.GUEST_STATES)),
        ("guests", rows(transitions.GUESTS)),
        ("conditions", conditions()),
        ("settings", settings()),
    ):
        begin, end = f"<!-- {word} -->\n", f"<!-- end of {word} -->\n"
        before, rest = text.split(begin)
        table = "\n".join(made)
        text = f"{before}{begin}\n{table}\n\n{end}{rest.split(end)[1]}"
    return text
