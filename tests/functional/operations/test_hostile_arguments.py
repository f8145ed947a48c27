"""Every function of the execution modules and every state with arbitrary arguments: a valid answer,
or one line and no change in libvirt or any file system."""

import json
import os
import subprocess

import pytest

pytest.importorskip("libvirt")
pytest.importorskip("salt")

from tests.functional import boxed

SEED = os.environ.get("HOSTILE_SEED", "1")
FEW = os.environ.get("HOSTILE_CASES", "400")
MANY = "20000"


def fuzz(seed, most):
    told = boxed.run("tests.functional.fuzz_arguments", "go", seed, most, timeout_s=5400)
    found = json.loads(told.splitlines()[-1])
    assert len(found["functions"]) >= 143
    assert found["calls"] >= len(found["functions"])
    lines = [f"{where}: {why}" for why, where in found["wrong"].items()]
    assert not lines, "\n".join(lines)


def test_anything_as_an_argument_is_one_line_and_changes_nothing():
    fuzz(SEED, FEW)


@pytest.mark.slow
def test_very_much_as_an_argument():
    fuzz(f"{SEED}7", MANY)


def test_the_box_sees_what_is_written_anywhere():
    told = boxed.run(__name__, "scribble")
    assert json.loads(told) == ["/etc/hostname", "/etc/salt-virt-was-here", "/run/here"]


def scribble(box):
    for path in ("/etc/salt-virt-was-here", "/run/here"):
        with open(path, "w", encoding="utf-8") as file:
            file.write("x")
    os.unlink("/etc/hostname")
    with pytest.raises(OSError, match="Read-only"):
        os.mkdir("/salt-virt-was-here")
    print(json.dumps(box.read_if_changed()))


def test_nothing_of_a_box_stays():
    boxed.run(__name__, "scribble")
    assert os.path.exists("/etc/hostname")
    assert not os.path.exists("/etc/salt-virt-was-here")
    mounts = subprocess.run(["mount"], check=True, capture_output=True, text=True).stdout
    assert "upper/etc" not in mounts
