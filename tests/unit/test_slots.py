"""Limits on migrations at once, between threads as between processes."""

import threading

import pytest

from saltvirt.errors import InvalidInput
from saltvirt.operations import slots


def opts(folder, **limits):
    return {"cachedir": str(folder), "virt": {"migration": limits}}


def test_those_that_fit_run_at_once_and_the_others_wait(tmp_path):
    config = opts(tmp_path, at_once=3, at_once_per_host=1)
    said = []
    done = threading.Event()

    def second():
        with slots.taken(config, ("hv1", "hv3"), said.append):
            done.set()

    with slots.taken(config, ("hv1", "hv2"), said.append):
        with slots.taken(config, ("hv3", "hv4"), said.append):
            waiting = threading.Thread(target=second)
            waiting.start()
            assert not done.wait(0.3)
        assert not done.wait(0.7), "hv1 is at work still"
    assert done.wait(5)
    waiting.join()
    assert said == ["1 from or to hv1 are under way (virt:migration:at_once_per_host)"]


def test_the_limit_in_all(tmp_path, monkeypatch):
    monkeypatch.setattr(slots.time, "sleep", lambda seconds: held.close())
    config = opts(tmp_path, at_once=1)
    said = []
    held = slots.taken(config, ("hv1", "hv2"), said.append)
    held.__enter__()
    held.close = lambda: held.__exit__(None, None, None)
    with slots.taken(config, ("hv3", "hv4"), said.append):
        assert said == ["1 migrations are under way (virt:migration:at_once)"]


def test_a_wrong_limit_is_named(tmp_path):
    with (
        pytest.raises(InvalidInput, match="virt:migration:at_once"),
        slots.taken(opts(tmp_path, at_once=0), ("hv1",), print),
    ):
        pass


def test_deployments_wait_for_each_other(tmp_path, monkeypatch):
    monkeypatch.setattr(slots.time, "sleep", lambda seconds: held.close())
    config = {"cachedir": str(tmp_path), "virt": {"inits_at_once": 1}}
    said = []
    held = slots.deploying(config, said.append)
    held.__enter__()
    held.close = lambda: held.__exit__(None, None, None)
    with slots.taken(opts(tmp_path), ("hv1",), said.append):
        assert said == [], "migrations have slots of their own"
    with slots.deploying(config, said.append):
        assert said == ["1 deployments are under way (virt:inits_at_once)"]
