"""Limits on concurrent migrations, between threads and between processes."""

import os
import subprocess
import sys
import threading

import pytest

from saltvirt.errors import InvalidInput, OperationFailed
from saltvirt.operations.journal import lock, slots
from saltvirt.system import file_lock as waiting
from tests.clock import Clock, until

SETTING = "virt:backup:at_once_per"


def opts(folder, **limits):
    return {"cachedir": str(folder), "virt": {"migration": limits}}


def test_those_that_fit_run_at_once_and_the_others_wait(tmp_path):
    config = opts(tmp_path, at_once=3, at_once_per_host=1)
    said = []
    done = threading.Event()

    def second():
        with slots.migrating(config, ("hv1", "hv3"), said.append):
            done.set()

    with slots.migrating(config, ("hv1", "hv2"), said.append):
        with slots.migrating(config, ("hv3", "hv4"), said.append):
            thread = threading.Thread(target=second)
            thread.start()
            until(lambda: said, "it waits")
            assert not done.is_set()
        assert not done.wait(0.7), "hv1 is at work still"
    assert done.wait(60)
    thread.join()
    assert said == ["1 migration from or to hv1 is under way (virt:migration:at_once_per_host)"]


def test_the_limit_in_all(tmp_path, monkeypatch):
    now = Clock()
    now.sleep = lambda seconds: held.close()
    monkeypatch.setattr(waiting, "time", now)
    config = opts(tmp_path, at_once=1)
    said = []
    held = slots.migrating(config, ("hv1", "hv2"), said.append)
    held.__enter__()
    held.close = lambda: held.__exit__(None, None, None)
    with slots.migrating(config, ("hv3", "hv4"), said.append):
        assert said == ["1 migration is under way (virt:migration:at_once)"]


@pytest.mark.parametrize(
    ("hosts", "targets", "words"),
    [
        ({"hv1": 1}, {"vault": 4}, f"1 backup from hv1 is under way ({SETTING}_host)"),
        (
            {"hv2": 1},
            {"vault": 1},
            "1 backup to vault is under way (virt:backup:at_once_per_target)",
        ),
        ({"hv2": 1}, {"vault": 4}, None),
        ({"hv1": 1}, {"other": 1}, f"1 backup from hv1 is under way ({SETTING}_host)"),
    ],
)
def test_backups_wait_for_those_of_their_host_and_their_target(
    tmp_path, monkeypatch, hosts, targets, words
):
    now = Clock()
    now.sleep = lambda seconds: held.close()
    monkeypatch.setattr(waiting, "time", now)
    config, said = opts(tmp_path), []
    held = slots.backing_up(config, {"hv1": 1}, {"vault": 4}, said.append)
    held.__enter__()
    held.close = lambda: held.__exit__(None, None, None)
    with slots.backing_up(config, hosts, targets, said.append):
        assert said == ([words] if words else [])
        # migrations have limits of their own
        with slots.migrating(config, ("hv1", "hv2"), said.append):
            assert len(said) == bool(words)


def test_a_wrong_limit_is_named(tmp_path):
    with (
        pytest.raises(InvalidInput, match="virt:migration:at_once"),
        slots.migrating(opts(tmp_path, at_once=0), ("hv1",), print),
    ):
        pass


def test_deployments_wait_for_each_other(tmp_path, monkeypatch):
    now = Clock()
    now.sleep = lambda seconds: held.close()
    monkeypatch.setattr(waiting, "time", now)
    config = {"cachedir": str(tmp_path), "virt": {"inits_at_once": 1}}
    said = []
    held = slots.deploying(config, said.append)
    held.__enter__()
    held.close = lambda: held.__exit__(None, None, None)
    with slots.migrating(opts(tmp_path), ("hv1",), said.append):
        assert said == [], "migrations have slots of their own"
    with slots.deploying(config, said.append):
        assert said == ["1 deployment is under way (virt:inits_at_once)"]


def test_a_wait_for_a_slot_ends_and_says_who_has_it(tmp_path, monkeypatch):
    config = {"cachedir": str(tmp_path), "virt": {"inits_at_once": 1, "queue_timeout": 60}}
    now = Clock()
    monkeypatch.setattr(waiting, "time", now)
    with slots.deploying(config, print, "virt.init of web1") as held:
        with pytest.raises(OperationFailed) as caught, slots.deploying(config, print):
            pass
        assert "waited 60 s (virt:queue_timeout)" in caught.value.text
        assert f"virt.init of web1, process {os.getpid()} of" in caught.value.text
        assert 60 < now.now < 62
        held.close()
        with slots.deploying(config, print):
            pass


def test_the_lock_of_a_guest_names_its_owner_and_goes_with_a_kill(tmp_path):
    config = {"cachedir": str(tmp_path), "virt": {"queue_timeout": 1}}
    code = (
        "import sys, time; sys.path.insert(0, '_utils')\n"
        "from saltvirt.operations.journal import lock\n"
        f"with lock.guest({config!r}, 'web1', 'virt.clone'), lock.deployment({config!r}, 'a'):\n"
        "    print('held', flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as other:
        assert other.stdout.readline() == b"held\n"
        who = f"virt.clone, process {other.pid} of .*, since 20.* UTC, is under way"
        with pytest.raises(OperationFailed, match=who), lock.guest(config, "web1", "virt.purge"):
            pass
        assert f"process {other.pid}" in lock.guest_owner(config, "web1")
        with (
            pytest.raises(OperationFailed, match=f"1 s .*virt.deployed a, process {other.pid}"),
            lock.deployment(config, "a"),
        ):
            pass
        other.kill()
    with lock.guest(config, "web1", "virt.purge"), lock.deployment(config, "a"):
        pass
    assert lock.guest_owner(config, "web1") is None


def test_a_look_at_a_lock_is_in_nobodys_way(tmp_path):
    config = {"cachedir": str(tmp_path)}
    with lock.guest(config, "web1", "virt.init"):
        before = lock.guest_owner(config, "web1")
        assert before.startswith("virt.init, process")
        assert lock.guest_owner(config, "web1") == before
    stop = threading.Event()

    def looking():
        while not stop.is_set():
            lock.guest_owner(config, "web1")
            stop.wait(0.01)

    thread = threading.Thread(target=looking)
    thread.start()
    try:
        for _ in range(50):
            with lock.guest(config, "web1", "virt.init"):
                pass
    finally:
        stop.set()
        thread.join()
