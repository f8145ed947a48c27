"""Which lines of what is published the tests reach, by package: `make coverage`.

The tests run with a coverage.py that is put beside their Python, and so do the processes that
they start, and Salt in a lab's machines (not in guests). ARGS names some tests, as for pytest;
``--add`` adds what they reach to what the last run of the same tree reached. What nothing reaches
is printed; where all tests have run, each such passage has its line in unreached.txt, or it is a
failure.
"""

import os
import shutil
import sys

from tests.lab import cache, layers, measured, packages, paths, suite, testenv
from tests.lab.recipe import Recipe
from tests.lab.sh import run
from tests.tools import unreached

PUBLISHED = ("_utils", "_modules", "_runners", "_states", "_pillar", "_engines", "_grains",
             "_output")  # fmt: skip
# to the process that reports: all tests have run
WHOLE = "--whole"
TOOL = "coverage>=7.10"  # which can patch _exit
START = "import coverage\n\ncoverage.process_startup()\n"
CONFIG = """[run]
parallel = True
concurrency = multiprocessing,thread
patch = _exit
data_file = {data}
include =
{include}
disable_warnings = no-data-collected,module-not-measured

[paths]
{machines}
"""


def tool(say):
    """The folder with coverage.py, which PYTHONPATH names; made when it is not there."""
    python = testenv.python(say)

    def build(part):
        pip = [python, "-m", "pip", "--disable-pip-version-check", "install", "-q", TOOL]
        run([*pip, "--target", part])
        (part / "sitecustomize.py").write_text(START, encoding="utf-8")

    return cache.built(
        f"coverage-{cache.key(TOOL, START, python)}", build, say, paths.python_cache()
    )


def run_tests(arguments, say):
    """Run tests and print what they reached; pytest's exit code."""
    add = "--add" in arguments
    arguments = [word for word in arguments if word != "--add"]
    lab = not packages.why_not()
    if lab:
        packages.ensure(say)
    folder = paths.python_cache() / f"measured-{cache.key(str(paths.REPOSITORY))}"
    if not add:
        shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    config, found = folder / "config", tool(say)
    config.write_text(settings(folder / "data"), encoding="utf-8")
    env = {
        "PYTHONPATH": str(found), "COVERAGE_PROCESS_START": str(config),
        measured.WANTED: f"{found}:{folder}",
    }  # fmt: skip
    named = [word for word in arguments if word.startswith("tests/")]
    if not named and lab:
        layers.layers(Recipe(), say)
    more = [] if named else [*(suite.ALL if lab else ["tests/unit"]), *suite.side_by_side()]
    code = suite.pytest(["-q", *more, *arguments], say, env)
    shown = {"PYTHONPATH": f"{found}:{paths.REPOSITORY}"}
    whole = [] if named or not lab else [WHOLE]
    told = suite.module("tests.tools.coverage", [str(config), *whole], say, shown)
    return code or told


def settings(data):
    """coverage.py's configuration: what is measured, and where Salt has it in a machine."""
    # source_dirs must be there, or a process is not measured at all: some have a /run of their own
    folders = [*(paths.REPOSITORY / name for name in PUBLISHED), measured.PROGRAMS]
    include = "\n".join(f"    {folder}/*" for folder in folders)
    machines = "\n".join(
        f"{name.strip('_')} =\n    {paths.REPOSITORY / name}\n"
        f"    **/{measured.AT_HOME}/{name.strip('_')}\n"
        f"    /tmp/sv*/{measured.TREE}/{name}"
        for name in PUBLISHED
    )
    # each version of it is in a folder of its own; a pattern must not end with a wildcard
    library = paths.REPOSITORY / "_utils" / "saltvirt"
    machines += f"\nlibrary =\n    {library}\n    **/{measured.UNPACKED}/*/saltvirt"
    machines += f"\n    {measured.PROGRAMS}/**/saltvirt"
    return CONFIG.format(data=data, include=include, machines=machines)


def package(path):
    """``_utils/saltvirt/design/cpu.py`` as ``saltvirt.design``."""
    parts = path.parts[:-1]
    return ".".join(parts[1:]) if parts[0] == "_utils" else parts[0]


def report(config, whole):
    """Print the table by package, and what nothing reaches and no line names; 1 when there is
    such a passage, or a line names none, after a run of all tests."""
    import coverage

    reached = coverage.Coverage(config_file=config)
    reached.load()
    reached.combine()
    reached.save()
    table, left = {}, []
    for name in PUBLISHED:
        for path in sorted((paths.REPOSITORY / name).rglob("*.py")):
            _, statements, _, missing, _ = reached.analysis2(str(path))
            short = path.relative_to(paths.REPOSITORY)
            row = table.setdefault(package(short), [0, 0])
            row[0] += len(statements)
            row[1] += len(missing)
            source = path.read_text(encoding="utf-8")
            left += unreached.passages(str(short), source, statements, missing)
    unnamed, stale = unreached.judged(left, unreached.reasons())
    print("\n".join(one.shown() for one in unnamed))
    table["together"] = [sum(row[at] for row in table.values()) for at in (0, 1)]
    for name, (all_, missing) in table.items():
        share = 100 * (all_ - missing) / all_ if all_ else 100
        print(f"{name:24} {all_:6} lines {missing:5} not reached {share:6.1f} %")
    if whole:
        print("".join(f"is reached, or gone: {name}\n" for name in stale), end="")
    print(f"{len(left)} passages that nothing reaches, {len(unnamed)} of them without a reason")
    return 1 if whole and (unnamed or stale) else 0


if __name__ == "__main__":
    os.environ.pop("COVERAGE_PROCESS_START", None)
    sys.exit(report(sys.argv[1], WHOLE in sys.argv))
