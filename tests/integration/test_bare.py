"""The minimal Debian in which CI runs: its content, and that nothing of it remains."""

import signal
import subprocess

import pytest

from tests.clock import until
from tests.lab import bare, paths, process
from tests.lab.fixtures import skip_without_lab

pytestmark = [pytest.mark.lab, pytest.mark.slow]
LAB = str(paths.REPOSITORY / "tests/lab/lab")
ABSENT = ("gcc", "qemu-img", "virsh", "pip", "pkg-config", "mmdebstrap")


@pytest.fixture(autouse=True)
def roots():
    """The roots that were there before; no other is there after the test."""
    skip_without_lab()
    before = set(bare.HOME.glob("root-*"))
    yield before
    assert set(bare.HOME.glob("root-*")) <= before


def test_it_has_what_the_readme_asks_for_and_the_tree():
    absent = " || ".join(f"command -v {name}" for name in ABSENT)
    script = f"if {absent}; then exit 9; fi; make help >/dev/null && git log -1 --format=%H"
    done = subprocess.run(
        [LAB, "bare", "sh", "-c", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    head = ["git", "-C", str(paths.REPOSITORY), "log", "-1", "--format=%H"]
    wanted = subprocess.run(head, capture_output=True, text=True, check=True).stdout
    assert done.stdout == wanted


def test_the_exit_code_is_the_commands():
    assert subprocess.run([LAB, "bare", "sh", "-c", "exit 7"], check=False).returncode == 7


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_nothing_stays_when_it_is_interrupted(roots, how):
    script = "mkdir -p /run/x; setsid sleep 9999 & echo begun; exec sleep 9999"
    with subprocess.Popen(
        ["env", "--default-signal=INT", LAB, "bare", "sh", "-c", script],
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout.readline() == "begun\n"
        [root] = {path for path in bare.HOME.glob("root-*") if path.is_dir()} - roots
        assert len(bare.inside(root)) >= 2
        child.send_signal(how)
        child.wait(timeout=900)
    assert bare.inside(root) == []


def test_what_a_killed_one_left_goes_with_the_next(roots):
    with subprocess.Popen(
        [LAB, "bare", "sh", "-c", "echo begun; exec sleep 9999"], stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout.readline() == "begun\n"
        [root] = {path for path in bare.HOME.glob("root-*") if path.is_dir()} - roots
        child.kill()
    until(lambda: process.recall(root.with_suffix(".pid")) is None, "its maker is dead")
    assert root.exists()
    bare.sweep()
    assert not root.exists()
    assert not root.with_suffix(".pid").exists()
