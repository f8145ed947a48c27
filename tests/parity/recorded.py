"""The answers of Salt 3007, recorded: facts about its outputs for our inputs, no code of it."""

import hashlib
import json

from tests.golden import HOME

PATH = HOME / "recorded" / "parity-3007.json"


def key(row):
    """A row's id and a short hash of all that it says: another row was not answered."""
    text = json.dumps(row, sort_keys=True)
    return f"{row['id']} {hashlib.sha256(text.encode()).hexdigest()[:10]}"


def read():
    """Row's key → answer."""
    return json.loads(PATH.read_text(encoding="utf-8"))


def write(rows, answers):
    """Record what was answered: a line a row, so that a difference can be read."""
    lines = []
    for row in rows:
        answer = {name: value for name, value in answers[row["id"]].items() if name != "id"}
        lines.append(f"{json.dumps(key(row))}: {json.dumps(answer)}")
    PATH.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
