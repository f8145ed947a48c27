"""Commands and outputs of a manual, as a test types them in a lab.

A block of code with prompts (``master# command``, or ``# command`` on the master) is a session: the
lines below a command are its output, in which ``…`` stands for any text, and a line ``…`` for any
lines. A command continues on the next line after a backslash. Numbers of spaces are not compared.
An HTML comment before a block changes its reading:

``<!-- varies: 26.9 1476 -->``  these words of the output differ in each run
``<!-- fails -->``              the last command exits with a code other than 0
``<!-- not typed: REASON -->``  the block is not typed
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

# an optional comment, and a fenced block below it
BLOCK = re.compile(
    r"(?:^[ ]*<!-- (?P<note>[^>]*?) -->\n)?"
    r"^(?P<indent>[ ]*)```(?P<kind>\w*)\n(?P<text>.*?)^[ ]*```$",
    re.M | re.S,
)
PROMPT = re.compile(r"(?:master)?# (?P<command>\S.*)")
ANY = "…"


class Typed(NamedTuple):
    """A command and the lines that it prints. lines: None if the manual does not show them."""

    command: str
    lines: list[str] | None


@dataclass(frozen=True)
class Session:
    """A block of a manual. varies: words that differ in each run. fails: the last command fails.
    skipped: why it is not typed, or None."""

    steps: tuple[Typed, ...]
    varies: tuple[str, ...] = ()
    fails: bool = False
    skipped: str | None = None


def sessions(text: str) -> list[Session]:
    """Return the sessions of a page, in its order."""
    return [read for match in BLOCK.finditer(joined(text)) if (read := session(match)).steps]


def joined(text: str) -> str:
    """Return a page whose commands are on one line each."""
    return re.sub(r" \\\n\s*", " ", text)


def session(block: re.Match[str]) -> Session:
    """Return the session of a match of BLOCK; without a prompt it has no steps."""
    note, steps = (block["note"] or "").strip(), list[Typed]()
    for raw in block["text"].splitlines():
        line = raw.removeprefix(block["indent"]).rstrip()
        prompt = None if block["kind"] in ("sh", "yaml") else PROMPT.match(line)
        if prompt:
            steps.append(Typed(prompt["command"].split("  #")[0].strip(), None))
        elif steps and line:
            command, lines = steps[-1]
            steps[-1] = Typed(command, [*(lines or []), line])
    keyword, _, rest = note.partition(":")
    return Session(
        tuple(steps),
        tuple(rest.split()) if keyword == "varies" else (),
        keyword == "fails",
        rest.strip() if keyword == "not typed" else None,
    )


def mismatch(wanted: list[str] | None, printed: str, varies: tuple[str, ...] = ()) -> str | None:
    """Return the first line of the manual that was not printed where the manual has it, or None.

    A final line ``…`` may stand for further output; otherwise the output ends with the last line.
    """
    if wanted is None:
        return None
    rows = [" ".join(line.split()) for line in printed.splitlines() if line.strip()]
    at, gap = 0, False
    for line in wanted:
        if line.strip() == ANY:
            gap = True
            continue
        pattern = _pattern(line, varies)
        last = len(rows) if gap else min(at + 1, len(rows))
        hit = next((n for n in range(at, last) if pattern.fullmatch(rows[n])), None)
        if hit is None:
            return line
        at, gap = hit + 1, False
    return None if gap or at == len(rows) else f"(end of the output), not: {rows[at]}"


def _pattern(line: str, varies: tuple[str, ...]) -> re.Pattern[str]:
    words = [
        rf"(?<![\w.]){re.escape(word)}(?!\w)" for word in sorted(varies, key=len, reverse=True)
    ]
    parts = re.split(f"({'|'.join([ANY, *words])})", " ".join(line.split()))
    return re.compile(
        "".join(
            ".*" if part == ANY else r"\S+" if part in varies else re.escape(part) for part in parts
        )
    )
