"""What make demo asks and shows. tests/integration/test_demo.py runs it whole."""

import io
import subprocess

import pytest

from tests.lab import paths
from tests.lab.sh import LabError
from tests.tutorial import demo
from tests.tutorial.heartbeat import Heartbeat, duration


class RunningCloud:
    name = "demo"

    def __init__(self, hosts=2):
        self.hosts = hosts

    def describe(self):
        return {"hosts": self.hosts} if self.hosts else {}

    def running(self):
        return True


@pytest.mark.parametrize(
    ("replace", "reply", "refused"),
    [(False, None, True), (False, "n", True), (False, "y", False), (True, None, False)],
)
def test_a_running_demo_is_removed_only_if_the_user_agrees(monkeypatch, replace, reply, refused):
    monkeypatch.setattr(demo.sys.stdin, "isatty", lambda: reply is not None, raising=False)
    monkeypatch.setattr("builtins.input", lambda _question: reply)
    if refused:
        with pytest.raises(LabError, match=r"REPLACE=1 .* NAME=demo2 "):
            demo.refuse_to_replace(RunningCloud(), replace)
    else:
        demo.refuse_to_replace(RunningCloud(), replace)


@pytest.mark.parametrize(
    ("given", "replaces"), [([], False), (["REPLACE=0"], False), (["REPLACE=1"], True)]
)
def test_make_replaces_a_demo_only_if_it_is_told_to(given, replaces):
    argv = ["make", "-n", "-C", paths.REPOSITORY, "demo", *given]
    made = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    assert ("--replace" in made) is replaces


def test_the_first_demo_asks_nothing():
    demo.refuse_to_replace(RunningCloud(hosts=0), False)


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_heartbeat_leaves_nothing_on_a_terminal_but_the_lines_that_stay():
    screen = Terminal()
    with Heartbeat("building the image", screen) as heartbeat:
        heartbeat.line("lab: building os")
    assert screen.getvalue().replace("\r\033[K", "") == "lab: building os\n"


@pytest.mark.parametrize(
    ("seconds", "text"), [(59.9, "59 s"), (60, "1 min 0 s"), (125, "2 min 5 s")]
)
def test_a_duration_has_minutes(seconds, text):
    assert duration(seconds) == text
