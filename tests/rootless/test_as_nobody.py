"""Root runs these tests as an unprivileged user."""

import subprocess
import sys

from tests.lab import paths, process


def test_they_pass_without_any_privilege():
    argv = [sys.executable, "tests/lab/lab", "rootless", "-q"]
    done = subprocess.run(
        argv, cwd=paths.REPOSITORY, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, check=False, preexec_fn=process.die_with_parent,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-8000:]
