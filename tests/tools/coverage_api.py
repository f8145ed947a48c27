"""Is every function of Salt 3007's ``virt`` here, with its parameters, and tested in the lab?

    make coverage-api          # the execution module and the states
    make coverage-api ARGS=--all

Lists each function and state with the lab tests that call it, and what is wrong; exit code 1
then. Each parameter of a state must be given in a lab test of states.
"""

import argparse
import sys

from tests.tools import api

LAB = "tests/integration"
# parameters that need what no lab has: a card with virtual functions
NEEDS_HARDWARE = {"addresses"}


def problems(section):
    """What is wrong with a section's functions and parameters, as lines."""
    found = {}
    for function in api.ours(section):
        if function.name in found:
            where = f"{found[function.name].path} and {function.path}"
            yield f"{section}: {function.name} is in two files: {where}"
        found[function.name] = function
    for name, wanted in api.salts(section).items():
        if name not in found:
            yield f"{section}: {name} is missing"
        else:
            yield from _differences(found[name], wanted)


def _differences(function, wanted):
    """Parameters that Salt's users give, by position or name, and ours does not take."""
    named = [p for p in wanted if not p.startswith("*")]
    ours = [p for p in function.parameters if not p.startswith("*")]
    where = f"{function.path}: {function.name}"
    names = [p.partition("=")[0] for p in ours]
    for index, parameter in enumerate(named):
        name, _, default = parameter.partition("=")
        if name not in names:
            yield f"{where}: no parameter {name}"
        elif names[index] != name:
            yield f"{where}: parameter {name} is not at place {index + 1}"
        elif default and "=" not in ours[index]:
            yield f"{where}: {name} must be given, where Salt has {parameter}"
    for star in (p for p in wanted if p.startswith("*")):
        if not any(p.startswith("*" * star.count("*")) for p in function.parameters):
            yield f"{where}: no {star}"


def untested_states():
    """What Salt's states have and no lab test of states gives, as lines."""
    tested, given = api.applied(LAB), api.words_given(LAB)
    for state, parameters in api.salts("states.virt").items():
        if state not in tested:
            yield f"states.virt: no lab test applies {state}"
        for parameter in (p.partition("=")[0] for p in parameters if not p.startswith("*")):
            if parameter not in given | NEEDS_HARDWARE | {"name"}:
                yield f"states.virt: no lab test gives {state} its {parameter}"


def main(argv=None):
    """Prints the table; 1 when something is missing."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--all", action="store_true", help="also runner, pillar, outputter, …")
    options = parser.parse_args(argv)
    sections = list(api.FILES) if options.all else ["modules.virt", "states.virt"]
    wrong = [line for section in sections for line in problems(section)]
    tested = api.mentions(LAB)
    for name in api.salts("modules.virt"):
        print(f"{name:26} {', '.join(tested.get(name, ['-']))}")
        if name not in tested:
            wrong.append(f"modules.virt: no lab test calls {name}")
    applied = api.applied(LAB)
    for name in api.salts("states.virt"):
        print(f"state {name:20} {', '.join(applied.get(name, ['-']))}")
    wrong.extend(untested_states())
    for line in wrong:
        print(line, file=sys.stderr)
    count = len(api.salts("modules.virt")), len(api.salts("states.virt"))
    print(f"{count[0]} functions, {count[1]} states, {len(wrong)} problems", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
