"""Running the tests: all of them where a lab can be, the unit tests elsewhere."""

import os
import subprocess
from concurrent.futures import ThreadPoolExecutor

from tests.lab import layers, packages, paths, testenv
from tests.lab.recipe import Recipe

ALL = ("tests/unit", "tests/functional", "tests/integration")


def everything(arguments, say):
    """Prepare what is missing and run all tests; pytest's exit code."""
    reason = packages.why_not()
    if reason:
        say(f"only the unit tests run: {reason}")
        return pytest(["tests/unit", *arguments], say)
    packages.ensure(say)
    with ThreadPoolExecutor() as pool:
        jobs = [pool.submit(testenv.python, say), pool.submit(layers.layers, Recipe(), say)]
        for job in jobs:
            job.result()
    there = [folder for folder in ALL if (paths.REPOSITORY / folder).exists()]
    return pytest([*there, "--durations=15", *arguments], say)


def pytest(arguments, say):
    """Run pytest in the tests' environment; its exit code."""
    return module("pytest", arguments, say)


def module(name, arguments, say):
    """Run a module of the tests' environment; its exit code."""
    argv = [str(testenv.python(say)), "-m", name, *arguments]
    env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(argv, cwd=paths.REPOSITORY, env=env, check=False).returncode
