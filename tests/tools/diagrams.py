"""Draw the sequence diagrams of the manuals as SVG from ``docs/diagrams/*.txt``: ``make docs``.

A source has ``title: …``, ``lanes: A | B``, and one event a line, from top to bottom:
``A -> B, C: text`` (an arrow from each sender to each receiver) or ``note A: text``. A lane is
named by its text before ``(``.
"""

import textwrap
from html import escape

from tests.tools import api

SOURCES = api.REPOSITORY / "docs/diagrams"
_WIDTH, _PAD, _LINE, _GAP = 960, 16, 17, 14
_NOTE, _LETTER = 190, 6.6


def pictures():
    """Return {name of the SVG: its text} of every diagram."""
    return {
        f"{path.stem}.svg": picture(path.read_text(encoding="utf-8"))
        for path in sorted(SOURCES.glob("*.txt"))
    }


def picture(source):
    """Return a diagram as SVG; ValueError for a line that is none."""
    title, lanes, events = parse(source)
    step = (_WIDTH - 2 * _PAD) / len(lanes)
    at = {name: _PAD + step * (number + 0.5) for number, name in enumerate(lanes)}
    y, lines = 112, []
    for event in events:
        drawn, y = _note(at, y, *event[1:]) if event[0] == "note" else _arrows(at, y, *event[1:])
        lines += drawn
    heads = [part for name, text in lanes.items() for part in _head(at[name], step, text)]
    rails = [f'<path d="M{x:.0f} 94V{y}" stroke="#9aa4ae" stroke-dasharray="4 4"/>'
             for x in at.values()]  # fmt: skip
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {y + _PAD}" role="img" '
        'font-family="sans-serif" font-size="13">',
        f"<title>{escape(title)}</title>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="9" '
        'markerHeight="9" orient="auto"><path d="M0 0 8 4 0 8z" fill="#2f6db5"/></marker></defs>',
        f'<rect width="{_WIDTH}" height="{y + _PAD}" fill="#fff"/>',
        f'<text x="{_PAD}" y="34" font-size="18" font-weight="bold" fill="#222">'
        f"{escape(title)}</text>",
        *heads, *rails, *lines, "</svg>", "",
    ])  # fmt: skip


def parse(source):
    """Return the title, {lane: its text} and the events of a source."""
    title, lanes, events = "", {}, []
    for line in filter(None, map(str.strip, source.splitlines())):
        subject, colon, text = line.partition(": ")
        if not colon:
            raise ValueError(f"no event: {line}")
        if subject == "title":
            title = text
        elif subject == "lanes":
            lanes = {one.partition("(")[0].strip(): one.strip() for one in text.split("|")}
        elif subject.startswith("note "):
            events.append(("note", *_named(lanes, subject.removeprefix("note ")), text))
        else:
            senders, _, receivers = subject.partition(" -> ")
            events.append(("arrow", _named(lanes, senders), _named(lanes, receivers), text))
    return title, lanes, events


def _named(lanes, names):
    found = [name.strip() for name in names.split(",")]
    if set(found) - set(lanes):
        raise ValueError(f"no lane of the diagram: {names}")
    return found


def _head(x, step, text):
    name, _, role = text.partition("(")
    width = step - 12
    return [
        f'<rect x="{x - width / 2:.0f}" y="52" width="{width:.0f}" height="42" rx="6" '
        'fill="#eef3f9" stroke="#2f6db5"/>',
        _text(x, 71 if role else 78, name.strip(), "#222", bold=True),
        *([_text(x, 87, role.rstrip(")"), "#444")] if role else []),
    ]


def _arrows(at, y, senders, receivers, text):
    """Return the lines of an event's arrows with its text above, and the y below them."""
    ends = [at[name] for name in (*senders, *receivers)]
    middle = (min(ends) + max(ends)) / 2
    wrapped = textwrap.wrap(text, max(24, int((max(ends) - min(ends) - 24) / _LETTER)))
    lines = []
    for line in wrapped:
        y += _LINE
        lines.append(_label(middle, y, line))
    y += 8
    for sender in senders:
        for receiver in receivers:
            lines.append(
                f'<path d="M{at[sender]:.0f} {y}H{at[receiver]:.0f}" stroke="#2f6db5" '
                'stroke-width="1.5" marker-end="url(#tip)"/>'
            )
            y += 9
    return lines, y + _GAP - 9


def _note(at, y, name, text):
    """Return the lines of a note on a lane, and the y below it."""
    wrapped = textwrap.wrap(text, int((_NOTE - 12) / _LETTER))
    left = min(max(at[name] - _NOTE / 2, _PAD), _WIDTH - _PAD - _NOTE)
    height = _LINE * len(wrapped) + 10
    lines = [
        f'<rect x="{left:.0f}" y="{y + 4}" width="{_NOTE}" height="{height}" rx="3" '
        'fill="#fdf6dd" stroke="#c9a227"/>'
    ]
    for number, line in enumerate(wrapped):
        lines.append(_text(left + _NOTE / 2, y + 20 + _LINE * number, line, "#222"))
    return lines, y + height + _GAP


def _label(x, y, text):
    width = len(text) * _LETTER + 8
    back = (
        f'<rect x="{x - width / 2:.0f}" y="{y - 13}" width="{width:.0f}" height="17" fill="#fff"/>'
    )
    return back + _text(x, y, text, "#222")


def _text(x, y, text, colour, bold=False):
    weight = ' font-weight="bold"' if bold else ""
    place = f'x="{x:.0f}" y="{y}" text-anchor="middle"'
    return f'<text {place} fill="{colour}"{weight}>{escape(text)}</text>'
