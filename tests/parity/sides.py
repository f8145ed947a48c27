"""The two sides: child processes that answer rows, each in its own Python."""

import json
import os
import subprocess
from pathlib import Path

from tests.lab import process
from tests.lab.paths import REPOSITORY
from tests.parity import daemon

# what a row's arguments and an answer have in place of the folder of a side
FOLDER = "/FOLDER"
SPENT = 75


def answers(python, whose, rows):
    """Row's id → answer. Each row has a fresh host."""
    found = {}
    for host in sorted({row["host"] for row in rows}):
        left = [row for row in rows if row["host"] == host]
        while left:
            got, code, said = ask(python, whose, host, left)
            found.update({answer["id"]: answer for answer in got})
            left = left[len(got) :]
            if left and code != SPENT:
                if not found:
                    raise RuntimeError(f"{whose} on {host}: {said}")
                # the whole process is gone with this row
                row = left.pop(0)
                found[row["id"]] = {"id": row["id"], "died": f"{code}: {said}"}
    return found


def ask(python, whose, host, rows):
    """(answers, exit code, last words) of one child, which may end before the last row."""
    with process.folder("sv-") as folder:
        lines = "".join(json.dumps(row) + "\n" for row in rows).replace(FOLDER, folder)
        Path(folder, "rows").write_text(lines, encoding="utf-8")
        own = daemon.NAMESPACES if host == "daemon" else []
        argv = [*own, str(python), "-m", "tests.parity.serve", whose, host, folder]
        env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": "0"}
        with open(f"{folder}/rows", encoding="utf-8") as given:
            child = subprocess.run(
                argv,
                stdin=given,
                capture_output=True,
                text=True,
                cwd=REPOSITORY,
                env=env,
                check=False,
                preexec_fn=process.die_with_parent,
            )
        lines = child.stdout.replace(folder, FOLDER).splitlines()
        said = (child.stderr.strip().splitlines() or [""])[-1]
        return [json.loads(line) for line in lines], child.returncode, said
