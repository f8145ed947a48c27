"""Which lines of what is published the tests reach, by package: `make coverage`.

The tests run with a coverage.py that is put beside their Python, and so do the processes that
they start, and Salt in a lab's machines (not in guests). ARGS names some tests, as for pytest;
``--add`` adds what they reach to what the last run of the same tree reached.
"""

import os
import shutil
import sys

from tests.lab import cache, layers, measured, packages, paths, suite, testenv
from tests.lab.recipe import Recipe
from tests.lab.sh import run

PUBLISHED = ("_utils", "_modules", "_runners", "_states", "_pillar", "_engines", "_grains",
             "_output")  # fmt: skip
START = "import coverage\n\ncoverage.process_startup()\n"
CONFIG = """[run]
parallel = True
concurrency = multiprocessing,thread
data_file = {data}
source =
{source}
disable_warnings = no-data-collected,module-not-measured

[paths]
{machines}
"""


def tool(say):
    """The folder with coverage.py, which PYTHONPATH names; made when it is not there."""
    python = testenv.python(say)

    def build(part):
        pip = [python, "-m", "pip", "--disable-pip-version-check", "install", "-q", "coverage>=7"]
        run([*pip, "--target", part])
        (part / "sitecustomize.py").write_text(START, encoding="utf-8")

    return cache.built(f"coverage-{cache.key(START, python)}", build, say, paths.python_cache())


def run_tests(arguments, say):
    """Run tests and print what they reached; pytest's exit code."""
    add = "--add" in arguments
    arguments = [word for word in arguments if word != "--add"]
    lab = not packages.why_not()
    if lab:
        packages.ensure(say)
    folder = paths.python_cache() / "measured"
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
    suite.module("tests.tools.coverage", [str(config)], say, shown)
    return code


def settings(data):
    """coverage.py's configuration: what is measured, and where Salt has it in a machine."""
    source = "\n".join(f"    {paths.REPOSITORY / name}" for name in PUBLISHED)
    machines = "\n".join(
        f"{name.strip('_')} =\n    {paths.REPOSITORY / name}\n"
        f"    **/{measured.AT_HOME}/{name.strip('_')}\n"
        f"    /tmp/sv*/{measured.TREE}/{name}"
        for name in PUBLISHED
    )
    return CONFIG.format(data=data, source=source, machines=machines)


def package(path):
    """``_utils/saltvirt/design/cpu.py`` as ``saltvirt.design``."""
    parts = path.parts[:-1]
    return ".".join(parts[1:]) if parts[0] == "_utils" else parts[0]


def ranges(lines):
    """1, 2, 3, 7 as ``1-3, 7``."""
    found = []
    for line in lines:
        if found and found[-1][1] == line - 1:
            found[-1][1] = line
        else:
            found.append([line, line])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in found)


def report(config):
    """Print the table by package, and the lines that nothing reaches."""
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
            if missing:
                left.append(f"{short}: {ranges(missing)}")
    print("\n".join(left))
    table["together"] = [sum(row[at] for row in table.values()) for at in (0, 1)]
    for name, (all_, missing) in table.items():
        share = 100 * (all_ - missing) / all_ if all_ else 100
        print(f"{name:24} {all_:6} lines {missing:5} not reached {share:6.1f} %")


if __name__ == "__main__":
    os.environ.pop("COVERAGE_PROCESS_START", None)
    report(sys.argv[1])
