"""The counts, and each failure in one line."""

import traceback
from collections import Counter, defaultdict
from contextlib import contextmanager


class Report:
    """Counts and failures of definitions of one kind; reports of a kind add up."""

    def __init__(self, kind):
        self.kind = kind
        self.counts = Counter()
        self.failures = []
        self.refusals = Counter()
        self.edits = defaultdict(Counter)

    def add(self, what, number=1):
        """Counts something."""
        self.counts[what] += number

    def fail(self, file, text):
        """One failure."""
        self.failures.append(f"{file}: {text}")

    def refused(self, edit, text):
        """An edit that was refused in one line, as a user's mistake."""
        self.add("edits refused")
        self.edits[edit]["refused"] += 1
        self.refusals[f"{edit}: {text}"] += 1

    def edited(self, edit, changed):
        """An edit that was made, or was so already."""
        self.edits[edit]["changed" if changed else "was so"] += 1

    @contextmanager
    def step(self, what, file):
        """What is raised within is a failure of this file, and the run goes on."""
        try:
            yield
        except Exception as exc:
            where = traceback.extract_tb(exc.__traceback__)[-1]
            place = "" if type(exc).__name__ == "Failure" else f" ({where.filename}:{where.lineno})"
            said = " ".join(str(exc).split())
            self.fail(file, f"{what}: {type(exc).__name__}: {said}{place}")

    def merge(self, other):
        """Takes over what another report of this kind has."""
        self.counts += other.counts
        self.failures += other.failures
        self.refusals += other.refusals
        for name, counts in other.edits.items():
            self.edits[name] += counts


def together(reports):
    """{kind: Report} of many."""
    found = {}
    for report in reports:
        found.setdefault(report.kind, Report(report.kind)).merge(report)
    return found
