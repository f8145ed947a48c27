"""``python3 -m tests.ha.simulate SCENARIO.yaml``: runs the real decisions in simulated time and
prints what happened, and how it ends, as JSON. Exit code 1: a guest was written to by two hosts, or
it ended otherwise than the scenario expects; 2: the scenario is none."""

import json
import sys
from pathlib import Path

from tests.ha import commands, scenario


def outcome(text, most_s=commands.MOST_S):
    """What a scenario in YAML comes to, as plain data. most_s: as in :func:`commands.run`."""
    given = scenario.load(text)
    world = commands.run(given, most_s=most_s)
    end = world.end()
    return {
        "timeline": world.timeline,
        "end": end,
        "violations": world.violations,
        "unexpected": unexpected(given.expect, end, world),
    }


def unexpected(expect, end, world):
    """What ends otherwise than is expected, one sentence each."""
    found = []
    for kind in ("hosts", "guests"):
        for name, wanted in (expect.get(kind) or {}).items():
            for key, value in wanted.items():
                is_there = end[kind].get(name, {}).get(key)
                said = {True: "on", False: "off"}.get(value, value) if key == "power" else value
                allowed = said if isinstance(said, list) else [said]
                if is_there not in allowed:
                    found.append(f"{name}: {key} is {is_there}, not {said}")
    counts = {"fences": len({name for _, name in world.fenced}),
              "self_fenced": len(world.self_fenced)}  # fmt: skip
    for key, count in counts.items():
        if key in expect and expect[key] != count:
            found.append(f"{key} is {count}, not {expect[key]}")
    if "armed" in expect and expect["armed"] != end["armed"]:
        found.append(f"armed is {end['armed']}")
    return found


def main():
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        found = outcome(Path(sys.argv[1]).read_text(encoding="utf-8"))
    except (scenario.BadScenario, OSError, UnicodeDecodeError) as exc:
        print(f"{sys.argv[1]}: {exc}", file=sys.stderr)
        return 2
    json.dump(found, sys.stdout, indent=1, ensure_ascii=False)
    print()
    return 1 if found["violations"] or found["unexpected"] else 0


if __name__ == "__main__":
    sys.exit(main())
