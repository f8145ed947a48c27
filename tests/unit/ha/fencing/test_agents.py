"""Fence agents are programs that read their options from standard input. A small one replaces those
of ClusterLabs here; tests/integration uses the real ones."""

import contextlib
import gc
import os
import signal
import threading
import time
import warnings
from pathlib import Path

import pytest

pytest.importorskip("salt")

from saltvirt import errors
from saltvirt.ha.fencing import agents as fences
from saltvirt.ha.fencing.setting import FenceSetting
from tests.clock import Clock, until

AGENT = """#!/bin/sh
cat > "{folder}/told.new"
action=$(sed -n 's/^action=//p' "{folder}/told.new")
cat "{folder}/told.new" >> "{folder}/told"; echo "--" >> "{folder}/told"
. "{folder}/$action"
"""
ON, OFF, FAILED = "exit 0", "exit 2", "echo 'Connection refused secret1' >&2; exit 1"


class Bmc:
    """What a fence agent meets. off, status: what it does then, as a line of the shell."""

    def __init__(self, folder):
        self.folder = folder
        path = folder / "fence_fake"
        path.write_text(AGENT.format(folder=folder))
        path.chmod(0o755)
        self.password = folder / "password"
        self.password.write_text("secret1\n")
        self.password.chmod(0o600)
        self.setting = FenceSetting("fence_fake", {"ip": "10.1.0.1"}, str(self.password))

    def does(self, off=ON, status=ON):
        (self.folder / "off").write_text(off)
        (self.folder / "status").write_text(status)

    def told(self):
        """The options of each call."""
        path = self.folder / "told"
        calls = path.read_text().split("--\n")[:-1] if path.exists() else []
        return [dict(line.split("=", 1) for line in one.splitlines()) for one in calls]


@pytest.fixture
def bmc(tmp_path, monkeypatch):
    monkeypatch.setattr(fences, "PATH", f"{tmp_path}:/usr/bin:/bin")
    return Bmc(tmp_path)


def test_off_is_what_its_status_says_after_it(bmc):
    bmc.does(off=ON, status=OFF)
    assert fences.off(bmc.setting).state == "off"
    assert [one["action"] for one in bmc.told()] == ["off", "status"]
    assert bmc.told()[0] == {"ip": "10.1.0.1", "action": "off", "password": "secret1"}


REFUSED = "Connection refused …"
ENDS = (
    (ON, ON, "on", ""),
    (FAILED, OFF, "off", f"fence_fake off: {REFUSED}"),
    (FAILED, ON, "on", f"fence_fake off: {REFUSED}"),
    (FAILED, FAILED, "timed out", f"fence_fake off: {REFUSED}; fence_fake status: {REFUSED}"),
    (ON, FAILED, "timed out", f"fence_fake status: {REFUSED}"),
    (ON, "exit 7", "timed out", "fence_fake status: 7"),
    (ON, "kill -9 $$", "timed out", "fence_fake status: -9"),
)


@pytest.mark.parametrize("off, status, end, words", ENDS)
def test_nothing_else_is_a_proof(bmc, off, status, end, words):
    bmc.does(off, status)
    assert fences.off(bmc.setting) == fences.FenceOutcome(end, words)


@pytest.mark.parametrize("text", [
    "#!/bin/sh\nif [ then\n", "#!/usr/bin/python3 /nowhere/fence_fake\n", "#!/usr/bin/python3 -Z\n",
    "#!/bin/sh\nexit 2\n",
])  # fmt: skip
def test_a_program_that_its_interpreter_cannot_run_is_no_proof(bmc, text):
    """It ends with 2, whatever it is asked, which is what an agent says of a host that is off."""
    (bmc.folder / "fence_fake").write_text(text)
    found = fences.off(bmc.setting)
    assert found.state == "timed out" and found.message.endswith(
        ": the fence agent does not work here"
    )


def test_a_fence_without_a_password_is_told_none(bmc):
    bmc.does(status=ON)
    fences.status(FenceSetting("fence_fake"))
    assert bmc.told() == [{"action": "status"}]


def test_no_password_is_in_what_is_said(bmc):
    bmc.does(FAILED, FAILED)
    words = fences.off(bmc.setting).message
    assert "Connection refused …" in words
    assert "secret1" not in words


def has_ended(process):
    try:
        return Path(f"/proc/{process}/stat").read_text().split()[2] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def test_a_program_that_hangs_ends_with_its_children(bmc):
    bmc.does(off=f"sleep 77 & echo $! > {bmc.folder}/child; wait", status=OFF)
    began = time.monotonic()
    gc.collect()  # what others left open
    with warnings.catch_warnings(record=True) as left_open:
        warnings.simplefilter("always", ResourceWarning)
        found = fences.off(bmc.setting, timeout_s=2)
        gc.collect()
    assert found == fences.FenceOutcome("off", "fence_fake off took longer than 2 s")
    assert left_open == []
    assert time.monotonic() - began < 60
    child = int((bmc.folder / "child").read_text())
    until(lambda: has_ended(child), "the end of its child")


def test_who_is_interrupted_leaves_no_program_at_work(bmc):
    """A person's Ctrl-C while a fence agent waits for its board."""
    bmc.does(off=f"echo $$ > {bmc.folder}/own; exec sleep 77")

    def interrupt(*_told):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        threading.Thread(target=lambda: (
            until((bmc.folder / "own").exists, "it is at work"),
            signal.pthread_kill(threading.main_thread().ident, signal.SIGALRM),
        )).start()  # fmt: skip
        with pytest.raises(KeyboardInterrupt):
            fences.off(bmc.setting)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert not Path(f"/proc/{(bmc.folder / 'own').read_text().strip()}").exists()


def test_a_program_that_says_very_much_is_cut(bmc):
    bmc.does(status="yes x | head -c 3000000; exit 1")
    assert len(fences.status(bmc.setting).message) < 500


def test_a_program_that_is_not_there_is_named(bmc):
    with pytest.raises(errors.OperationFailed, match="fence_other is not installed"):
        fences.off(FenceSetting("fence_other"))


def test_a_program_that_cannot_be_run_is_no_proof_and_the_next_is_tried(bmc):
    """It is not for this machine, or was damaged: no fence after it was tried."""
    bmc.does(status=OFF)
    broken = bmc.folder / "fence_broken"
    broken.write_bytes(b"\x7fELF")
    broken.chmod(0o755)
    last, said = fences.try_levels((FenceSetting("fence_broken"), bmc.setting), "hv1")
    assert last.state == "off" and len(said) == 2
    assert said[0].endswith(f": {broken}: Exec format error")


def test_a_password_that_others_may_read_is_refused(bmc):
    bmc.password.chmod(0o644)
    with pytest.raises(errors.OperationFailed, match="is readable by others: run chmod 600"):
        fences.off(bmc.setting)
    assert bmc.told() == []


@pytest.mark.parametrize("make, why", (
    (lambda path: None, ": No such file or directory"),
    (lambda path: path.mkdir(mode=0o700), " is not a file"),
    (lambda path: os.mkfifo(path, 0o600), " is not a file"),
    (lambda path: path.write_bytes(b""), " has no password in its first line"),
    (lambda path: path.write_bytes(b"\nsecret1"), " has no password in its first line"),
    (lambda path: path.write_bytes(b"a\x00b"), " has no password in its first line"),
), ids=("gone", "folder", "fifo", "empty", "second line", "binary"))  # fmt: skip
def test_a_password_file_may_be_anything(bmc, make, why):
    bmc.password.unlink()
    make(bmc.password)
    if bmc.password.is_file():
        bmc.password.chmod(0o600)
    with pytest.raises(errors.OperationFailed) as raised:
        fences.secret(bmc.setting)
    assert raised.value.text == f"{bmc.password}{why}"


def test_the_password_is_the_first_line_of_a_file_that_is_closed_again(bmc):
    bmc.password.write_text("secret 1\r\nsecret2\n")
    assert fences.secret(bmc.setting) == "secret 1"
    for one in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # another thread's
            assert os.readlink(one) != str(bmc.password)


def test_levels_are_tried_in_turn_until_one_sees_it_off(bmc, tmp_path):
    bmc.does(ON, ON)
    second = tmp_path / "fence_second"
    second.write_text("#!/bin/sh\ngrep -q action=off || exit 2\n")
    second.chmod(0o755)
    levels = (FenceSetting("fence_gone"), bmc.setting, FenceSetting("fence_second"),
              FenceSetting("fence_never"))  # fmt: skip
    last, said = fences.try_levels(levels, "hv1")
    assert last.state == "off"
    assert [one.split(":")[1].split()[0] for one in said] == ["timed", "on", "off"]
    assert "not installed" in said[0]


def test_what_each_level_said_is_told_with_how_long_it_took(monkeypatch):
    clock = Clock(100)
    monkeypatch.setattr(fences, "time", clock)
    ends = iter([fences.FenceOutcome("timed out", "no route"), fences.FenceOutcome("on")])

    def run(_fence):
        clock.sleep(7)
        return next(ends)

    levels = (FenceSetting("fence_a"), FenceSetting("fence_b"))
    assert fences.try_levels(levels, "hv1", run) == (fences.FenceOutcome("on"), [
        "fence 1 (fence_a): timed out after 7 s: no route", "fence 2 (fence_b): on after 7 s",
    ])  # fmt: skip


@pytest.mark.parametrize("says, asked, state, words", (
    ((), "", "timed out", ""),
    (("off", "on"), "a", "off", "from a: off"),
    (("on", "off"), "ab", "off", "from a: on; from b: off"),
    ((errors.ConnectionFailed("it is lost"), "off"), "ab", "off",
     "from a: timed out: it is lost; from b: off"),
    (("on", "timed out"), "ab", "timed out", "from a: on; from b: timed out"),
))  # fmt: skip
def test_of_the_hosts_that_run_a_fence_the_first_that_sees_it_off_is_the_last(
    says, asked, state, words
):
    hosts, found = dict(zip("ab", says, strict=False)), []

    def ask(host):
        found.append(host)
        if isinstance(hosts[host], Exception):
            raise hosts[host]
        return fences.FenceOutcome(hosts[host])

    assert fences.try_hosts(hosts, ask) == fences.FenceOutcome(state, words)
    assert "".join(found) == asked


def test_without_a_fence_nothing_is_proven():
    last, said = fences.try_levels((), "hv1")
    assert (last.state, said) == ("timed out", [])
