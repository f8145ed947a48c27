"""Permitted skips of a run of all tests: tests/allowed-skips.txt. A test that is skipped for any
other reason fails the run."""

import re
from collections import Counter

from tests.lab import paths

ALLOWED = paths.REPOSITORY / "tests/allowed-skips.txt"
# in the environment: the run fails when something was skipped that is not on the list
STRICT = "SALTVIRT_NO_SKIPS"
# the exit code of a run with failures and with skips that are not on the list: a second run of
# what failed cannot make it good
BESIDE_FAILURES = 10


def allowed(text=None):
    """The regular expressions on the list; each matches a whole reason."""
    text = ALLOWED.read_text(encoding="utf-8") if text is None else text
    lines = (line.strip() for line in text.splitlines())
    return [re.compile(line) for line in lines if line and not line.startswith("#")]


def reason(report):
    """Why pytest skipped something, from its report."""
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return text.removeprefix("Skipped: ").strip()


def counted(reasons):
    """(The line that counts what was skipped and why, the reasons that are not on the list)."""
    counts, known = Counter(reasons), allowed()
    wrong = [why for why in counts if not any(each.fullmatch(why) for each in known)]
    if not counts:
        return "skipped: nothing", wrong
    parts = (f"{number} ({why})" for why, number in counts.most_common())
    return f"skipped: {counts.total()}: {', '.join(parts)}", wrong
