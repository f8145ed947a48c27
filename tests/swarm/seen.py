"""The table and the plot of limits.md, from the figures in seen.json."""

import datetime
import json
import os
import platform
from dataclasses import asdict
from html import escape
from pathlib import Path

from tests.swarm import kinds

FIGURES = Path(__file__).with_name("seen.json")
# key of a Cost, its column, and its format; those with a title have a plot
COLUMNS = (
    ("wall_s", "time s", "{:.1f}", "time, s"),
    ("master_s", "master CPU s", "{:.1f}", "CPU of the master, s"),
    ("run_s", "salt-run CPU s", "{:.1f}", "CPU of salt-run, s"),
    ("master_mib", "master MiB", "{:.0f}", None),
    ("run_mib", "salt-run MiB", "{:.0f}", None),
    ("jobs", "jobs", "{}", "published jobs"),
    ("told", "questions to hosts", "{}", None),
)
_COLOURS = ("#2e7d5b", "#2f6db5", "#9a5b13", "#a02c5a", "#5b5f66", "#6a3fa0")
_WIDTH, _HEIGHT, _LEFT, _TOP, _GAP, _LEGEND = 400, 220, 56, 40, 24, 40


def head():
    """The first lines of the table."""
    names = ["hosts", "verb", *(name for _, name, *_ in COLUMNS), "answer"]
    return [_line(names), _line(["---:", "---", *("---:" for _ in COLUMNS), "---"])]


def row(number, verb, cost, wrong=False):
    """One line of it. cost: a Cost, or a dict of one."""
    figures = cost if isinstance(cost, dict) else asdict(cost)
    shown = [how.format(figures[key]) for key, _, how, _ in COLUMNS]
    return _line([number, f"`virt.{verb}`", *shown, "WRONG" if wrong else "right"])


def _line(cells):
    return f"| {' | '.join(map(str, cells))} |"


def read():
    """Number of hosts to what was seen with so many."""
    found = json.loads(FIGURES.read_text(encoding="utf-8"))
    return {int(number): found[number] for number in sorted(found, key=int)}


def keep(swarm, deployed, found):
    """Write down what was seen. found: verb to its Cost."""
    import salt.version

    kept = read() if FIGURES.exists() else {}
    number = len(swarm.kinds)
    kept[number] = {
        "when": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d"),
        "load": round(os.getloadavg()[2], 1),
        "cores": os.cpu_count(),
        "salt": salt.version.__version__,
        "python": platform.python_version(),
        "ill": {kind: len(swarm.of(kind)) for kind in kinds.ILL},
        "deployed": deployed,
        "timeout_s": swarm.timeout_s,
        "verbs": {
            verb: {k: round(v, 2) for k, v in asdict(c).items()} for verb, c in found.items()
        },
    }
    ordered = {str(one): kept[one] for one in sorted(kept)}
    FIGURES.write_text(json.dumps(ordered, indent=1) + "\n", encoding="utf-8")


def table():
    """All that was seen, as Markdown."""
    lines = head()
    for number, one in read().items():
        lines += [row(number, verb, cost) for verb, cost in one["verbs"].items()]
    return "\n".join(lines)


def conditions():
    """How it was seen, as Markdown."""
    names = [
        "hosts", "dead, hung, slow", "guests deployed", "`timeout`", "date", "cores",
        "load of the machine", "Salt", "Python",
    ]  # fmt: skip
    lines = [_line(names), _line(["---:"] * len(names))]
    for number, one in read().items():
        ill = ", ".join(map(str, one["ill"].values()))
        words = ("deployed", "timeout_s", "when", "cores", "load", "salt", "python")
        lines.append(_line([number, ill, *(one[word] for word in words)]))
    return "\n".join(lines)


def plot():
    """The same as SVG: a plot for each of some columns, over the number of hosts."""
    seen = read()
    verbs = list(dict.fromkeys(verb for one in seen.values() for verb in one["verbs"]))
    plots = [(key, title) for key, *_, title in COLUMNS if title]
    width = 2 * _WIDTH + 3 * _GAP
    high = _LEGEND + (len(plots) + 1) // 2 * (_HEIGHT + _TOP + _GAP) + _GAP
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {high}" role="img" '
        'font-family="sans-serif" font-size="13">',
        "<title>What verbs cost the master, by the number of hosts</title>",
        f'<rect width="{width}" height="{high}" fill="#fff"/>',
    ]
    for at, (verb, colour) in enumerate(zip(verbs, _COLOURS, strict=False)):
        x = _GAP + at * (width - 2 * _GAP) // len(verbs)
        lines.append(f'<rect x="{x}" y="16" width="18" height="4" fill="{colour}"/>')
        lines.append(_text(x + 24, 23, f"virt.{verb}"))
    for at, (key, title) in enumerate(plots):
        left = _GAP + at % 2 * (_WIDTH + _GAP)
        top = _LEGEND + at // 2 * (_HEIGHT + _TOP + _GAP)
        lines += _plotted(seen, verbs, key, title, left, top)
    return "\n".join([*lines, "</svg>", ""])


def _plotted(seen, verbs, key, title, left, top):
    """One plot, of a key of Cost."""
    widest = max(seen)
    most = _round(max(cost[key] for one in seen.values() for cost in one["verbs"].values()))
    x0, y0, wide, tall = left + _LEFT, top + _TOP + _HEIGHT, _WIDTH - _LEFT - 8, _HEIGHT - 20

    def place(number, value):
        return f"{x0 + wide * number / widest:.1f},{y0 - 20 - (tall - 20) * value / most:.1f}"

    lines = [_text(left + _LEFT, top + 28, title, "font-weight='bold'")]
    for part in range(5):
        value = most * part / 4
        y = place(0, value).split(",")[1]
        lines.append(f'<path d="M{x0} {y}h{wide}" stroke="#ddd"/>')
        lines.append(_text(x0 - 8, float(y) + 4, f"{value:g}", "text-anchor='end'"))
    for number in seen:
        x = place(number, 0).split(",")[0]
        lines.append(_text(x, y0 - 2, number, "text-anchor='middle'"))
    for verb, colour in zip(verbs, _COLOURS, strict=False):
        with_it = {n: one["verbs"][verb] for n, one in seen.items() if verb in one["verbs"]}
        points = [place(number, cost[key]) for number, cost in with_it.items()]
        way = f'points="{" ".join(points)}" fill="none" stroke="{colour}" stroke-width="2"'
        lines.append(f"<polyline {way}/>")
        for x, y in (point.split(",") for point in points):
            lines.append(f'<circle cx="{x}" cy="{y}" r="3" fill="{colour}"/>')
    return lines


def page(text):
    """The text of docs/explanation/limits.md with what was seen."""
    for word, made in (("figures", table()), ("conditions", conditions())):
        begin, end = f"<!-- {word} -->\n", f"<!-- end of {word} -->\n"
        before, rest = text.split(begin)
        text = f"{before}{begin}\n{made}\n\n{end}{rest.split(end)[1]}"
    return text


def _round(most):
    """A round number that is not smaller, and above 0."""
    step = 10 ** (len(str(int(most))) - 1)
    return next(n * step for n in (1, 2, 4, 5, 8, 10, 20) if n * step >= max(most, 1))


def _text(x, y, words, more=""):
    return f'<text x="{x}" y="{y}" fill="#222" {more}>{escape(str(words))}</text>'
