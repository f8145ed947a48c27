"""``python -m tests.corpus``: all definitions, a table, and each failure in one line."""

import argparse
import os
import sys
import time
from pathlib import Path

from tests.corpus import run, source

COLUMNS = ("definitions", "read", "written", "unchanged", "valid before", "valid written",
           "edits", "edits that were so", "edits refused", "defined", "read back", "updates",
           "libvirt changes more",
           "more than we can say")  # fmt: skip


def table(reports):
    """The lines of the table of counts."""
    rows = [["", *COLUMNS]]
    rows += [[kind, *(str(r.counts[c]) for c in COLUMNS)] for kind, r in sorted(reports.items())]
    rows.append(["together", *(str(sum(r.counts[c] for r in reports.values())) for c in COLUMNS)])
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    return ["  ".join(f"{w:>{n}}" for w, n in zip(row, widths, strict=True)) for row in rows]


def main(arguments):
    parser = argparse.ArgumentParser(prog="corpus")
    parser.add_argument("--folder", type=Path, help="an unpacked source package of libvirt")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="only each N-th")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--no-schema", action="store_true", help="without libvirt's schemas")
    parser.add_argument("--live", type=int, metavar="N", help="define them; N edits of each guest")
    parser.add_argument("--edits", type=int, metavar="N", help="N edits of each guest, not all")
    parser.add_argument("--show", action="store_true", help="each edit: changed, so, refused")
    asked = parser.parse_args(arguments)
    start = time.monotonic()
    try:
        tree = asked.folder or source.folder(lambda text: print(text, file=sys.stderr))
    except source.NotReachable as exc:
        print(f"libvirt's source package is not reachable: {exc}", file=sys.stderr)
        return 1
    wish = run.Wish(not asked.no_schema, asked.every, asked.edits, asked.live)
    reports = run.everything(tree, asked.workers, wish)
    print("\n".join(table(reports)))
    failures = [line for kind in sorted(reports) for line in reports[kind].failures]
    if asked.show:
        for name, counts in sorted(reports["domain"].edits.items()):
            print(f"{name}: {dict(counts)}")
        for kind, report in sorted(reports.items()):
            for line, count in report.refusals.most_common(25):
                print(f"{kind}: {count} refused: {line}")
    print("\n".join(failures))
    print(f"{len(failures)} failures, {time.monotonic() - start:.0f} s")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
