"""`make parity`: Salt 3007 and this tree, row by row; ARGS="PART" for rows whose id has it."""

import sys
import time

from tests.lab import packages
from tests.parity import compare, handed, known, recorded, rows, salt3007, sides


def main(words):
    """Run, print what differs without a line, and what each line is still needed for."""
    packages.ensure(print)
    table = [row for row in rows.table() if not words or any(word in row["id"] for word in words)]
    record = "--record" in sys.argv
    began = time.monotonic()
    theirs = sides.answers(salt3007.python(print), "salt", table)
    ours = sides.answers(sys.executable, "ours", table)
    if record:
        fast = [row for row in table if row["host"] == "test"]
        recorded.write(fast, theirs)
    differing = [(row, compare.differences(row, theirs[row["id"]], ours[row["id"]]))
                 for row in table]  # fmt: skip
    again = handed.rows(table, theirs)
    answers = sides.answers(sys.executable, "ours", again)
    differing += [(row, handed.wrong(answers[row["id"]])) for row in again]
    missing, stale = known.unnamed(differing, known.lines())
    for name, difference in missing:
        print(f"no line for: {name}: {difference}")
    if not words:
        for line in stale:
            print(f"names nothing any more: {line.functions} {line.differences}")
    alike = sum(not found for _, found in differing)
    print(
        f"{len(table)} rows and {len(again)} definitions handed over: {alike} the same, "
        f"{len(differing) - alike} differ as tests/parity/README.md says, but for {len(missing)}; "
        f"{time.monotonic() - began:.0f} s"
    )
    return 1 if missing or (stale and not words) else 0


if __name__ == "__main__":
    sys.exit(main([word for word in sys.argv[1:] if not word.startswith("--")]))
