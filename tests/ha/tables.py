"""The tables of ha.md and ha-design.md, generated from the code: ``make docs``."""

import inspect
import re
import textwrap

from saltvirt.ha.model import safety, transitions


def states(found):
    """What the states are."""
    rows = (f"| {s.name} | {s.description} |" for s in found)
    return ["| state | what it means |", "|---|---|", *rows]


def rows(found):
    """What leads from state to state: rows that differ in their first state alone are one."""
    together = {}
    for row in found:
        together.setdefault((row.condition.__name__, row.to, row.reason), []).extend(row.states)
    lines = ["| from | to | reason | condition |", "|---|---|---|---|"]
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
        textwrap.fill(
            f"- `{name}`: {' '.join(inspect.getdoc(one).split())}",
            120,
            subsequent_indent="  ",
            break_long_words=False,
            break_on_hyphens=False,
        )
        for name, one in found
    ]


def page(text):
    """The text of a page with the tables of the code, each between its two comments."""
    tables = {
        "states of hosts": states(transitions.HOST_STATES),
        "hosts": rows(transitions.HOSTS),
        "states of guests": states(transitions.GUEST_STATES),
        "guests": rows(transitions.GUESTS),
        "conditions": conditions(),
    }
    for name in re.findall("^<!-- end of (.+) -->$", text, re.MULTILINE):
        begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->\n"
        before, rest = text.split(begin)
        table = "\n".join(tables[name])
        text = f"{before}{begin}\n{table}\n\n{end}{rest.split(end)[1]}"
    return text
