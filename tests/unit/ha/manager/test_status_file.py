"""The files of high availability on a master."""

import errno
import json
import os
import threading
import time
from dataclasses import replace

import pytest

pytest.importorskip("salt")

from saltvirt import errors
from saltvirt.ha.manager import files, status_file
from saltvirt.ha.manager.desired_state import DesiredState, DesiredStateStore
from saltvirt.ha.manager.journal import HaJournal
from saltvirt.ha.model.registry import HaGuestRecord, HostRecord, Registry
from saltvirt.ha.model.view import GuestConfig, GuestRule, RelocationRequest, SavedMasterState
from saltvirt.operations.cluster import ha_provider
from saltvirt.placement.facts import Guest
from saltvirt.system import atomic_file

WISHES = DesiredState(
    armed=False,
    guests={"web1": GuestConfig("web1", "hv1", priority=3)},
    sizes={"web1": Guest("web1", vcpus=2)},
    rules={"webs": GuestRule(("web1", "web2"), "anti_affinity"),
           "near": GuestRule(("web1",), "", {"hv1": 2}, strict=False)},
    relocations={"web1": RelocationRequest(1, "migrate", "hv2")},
    autostarted=frozenset({"web1"}), confirmed={"hv3": 4}, number=1,
)  # fmt: skip

# where there was no file
FRESH = replace(WISHES, fresh=True)


@pytest.fixture
def store(tmp_path):
    return DesiredStateStore({"cachedir": str(tmp_path)})


def test_what_is_wished_is_read_again(store):
    assert store.read() == DesiredState()
    assert store.change("x", lambda old: WISHES) == FRESH
    assert store.read() == FRESH
    assert store.path.stat().st_mode & 0o777 == 0o600
    assert store.path.parent.stat().st_mode & 0o777 == 0o700


def test_news_are_told_once(store):
    assert store.read_if_changed() == DesiredState()
    assert store.read_if_changed() is None
    store.change("x", lambda old: WISHES)
    assert store.read_if_changed() == FRESH
    assert store.read_if_changed() is None


def test_a_guest_that_goes_is_in_nothing_any_more(store):
    left = WISHES.without("web1")
    assert WISHES.sized_guests["web1"].size.vcpus == 2
    assert not left.guests and not left.sizes and not left.relocations and not left.autostarted
    assert left.rules["webs"].guests == ("web2",)


DAMAGED = (b"", b"{", b"[]", b"7", b"\xff", b"[" * 100_000, b'{"armed": 7}',
           b'{"guests": {"web1": {"priority": -1}}}')  # fmt: skip


@pytest.mark.parametrize("content", DAMAGED, ids=lambda one: repr(one[:20]))
def test_what_cannot_be_read_is_never_nothing(store, content):
    """Else each guest would be forgotten by it."""
    store.path.parent.mkdir(parents=True)
    store.path.write_bytes(content)
    with pytest.raises(errors.OperationFailed, match=r"desired_state\.json cannot be read"):
        store.read()
    with pytest.raises(errors.OperationFailed, match=r"desired_state\.json cannot be read"):
        store.change("x", lambda old: WISHES)
    assert store.path.read_bytes() == content


def test_of_two_at_once_none_is_lost(store):
    def add(place):
        def make(old):
            name = f"web{place}"
            return replace(old, guests={**old.guests, name: GuestConfig(name)})

        store.change("x", make)

    threads = [threading.Thread(target=add, args=(place,)) for place in range(20)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert len(store.read().guests) == 20


def test_a_full_disk_gets_no_file_for_each_try(store, monkeypatch):
    """The engine tries again in each beat: thousands of parts were left within an hour."""
    store.change("x", lambda old: WISHES)
    before = sorted(os.listdir(store.path.parent))

    def full(*_args, **_options):
        raise OSError(28, "No space left on device")

    for name in ("fsync", "replace"):
        with monkeypatch.context() as patch:
            patch.setattr(atomic_file.os, name, full)
            with pytest.raises(OSError, match="No space"):
                store.change("x", lambda old: DesiredState())
    assert sorted(os.listdir(store.path.parent)) == before


def test_who_dies_while_he_writes_leaves_the_old_one(store, monkeypatch):
    store.change("x", lambda old: WISHES)

    def die(*_args, **_options):
        raise KeyboardInterrupt

    monkeypatch.setattr(atomic_file.os, "replace", die)
    with pytest.raises(KeyboardInterrupt):
        store.change("x", lambda old: DesiredState())
    monkeypatch.undo()
    assert store.read() == FRESH


def test_what_is_written_is_on_the_disk_before_it_has_its_name(store, monkeypatch):
    order = []
    for name in ("fsync", "replace"):
        real = getattr(os, name)
        monkeypatch.setattr(
            os,
            name,
            lambda *a, real=real, name=name, **k: (order.append(name), real(*a, **k))[1],
        )
    store.change("x", lambda old: WISHES)
    assert order[:3] == ["fsync", "replace", "fsync"]


def test_what_a_master_must_not_forget_is_read_again(tmp_path):
    path = tmp_path / "state.json"
    registry = Registry(3, 7, members=("hv1",), hosts={"hv1": HostRecord("up", boot=2)},
                        guests={"web1": HaGuestRecord("placed", epoch=4)})  # fmt: skip
    kept = SavedMasterState(3, registry)
    files.write(path, kept)
    assert files.read(path, SavedMasterState) == kept


def test_a_file_of_another_version_is_not_taken_for_an_empty_one(tmp_path):
    """Its registry would name no place of any guest."""
    path = tmp_path / "state.json"
    path.write_text('{"term": 3, "registry": {"term": 3, "version": 7}, "pledges": {}}')
    with pytest.raises(errors.OperationFailed, match=r"cannot be read: .* is missing; restore it"):
        files.read(path, SavedMasterState)
    assert "pledges" in path.read_text()


# -- the journal -----------------------------------------------------------------------------------


def test_the_journal_has_the_last_lines_and_an_end(tmp_path):
    journal = HaJournal({"cachedir": str(tmp_path)}, max_bytes=2000)
    for count in range(100):
        journal.write("host", f"hv{count}", reason="a\nb\x1b[31m")
    found = journal.last(5)
    assert [one["name"] for one in found] == [f"hv{count}" for count in range(95, 100)]
    assert found[-1]["reason"] == "a b\\x1b[31m"
    sizes = [path.stat().st_size for path in journal.path.parent.glob("journal.jsonl*")]
    assert len(sizes) == 2 and max(sizes) < 2200


def test_a_line_that_was_cut_off_is_passed_over(tmp_path):
    journal = HaJournal({"cachedir": str(tmp_path)})
    journal.write("host", "hv1")
    with open(journal.path, "ab") as file:
        file.write(b'{"at": "20\n7\n\xff\n')
    journal.write("host", "hv2")
    assert [one["name"] for one in journal.last(9)] == ["hv1", "hv2"]


def test_the_journal_follows_no_link(tmp_path):
    journal = HaJournal({"cachedir": str(tmp_path)})
    journal.path.parent.mkdir(parents=True)
    journal.path.symlink_to(tmp_path / "passwd")
    with pytest.raises(OSError):
        journal.write("host", "hv1")
    assert not (tmp_path / "passwd").exists()


@pytest.mark.parametrize("fails", ["guard", "write"])
def test_a_wish_that_cannot_be_written_whole_changes_nothing(tmp_path, monkeypatch, fails):
    """The disk is full: the wish was there, and the verb said that it had failed."""
    opts = {"cachedir": str(tmp_path)}
    one = DesiredStateStore(opts)
    one.change("virt.ha_enable", lambda old: replace(old, guests={"db1": GuestConfig("db1")}))
    more = {"db1": GuestConfig("db1"), "web1": GuestConfig("web1")}
    target = (ha_provider, "store_managed") if fails == "guard" else (files, "write")
    with monkeypatch.context() as full:
        full.setattr(*target, lambda *_: _no_room())
        with pytest.raises(OSError, match="No space left"):
            one.change("virt.ha_enable", lambda old: replace(old, guests=more))
    assert sorted(one.read().guests) == sorted(ha_provider.managed_guests(opts)) == ["db1"]


def _no_room():
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


# -- what the engine saw ---------------------------------------------------------------------------


def test_an_engine_that_does_not_run_is_said(tmp_path):
    assert "is not running" in status_file.load({"cachedir": str(tmp_path)}).problem


def test_an_engine_that_hangs_is_said(tmp_path):
    opts = {"cachedir": str(tmp_path)}
    with files.locked(status_file.lock_path(opts), "the engine"):
        assert "has just started" in status_file.load(opts).problem
        files.write(status_file.report_path(opts), status_file.EngineReport(1, "salt"))
        assert "it hangs" in status_file.load(opts).problem
        now = json.loads(status_file.report_path(opts).read_text())
        status_file.report_path(opts).write_text(json.dumps({**now, "at_s": time.time()}))
        assert status_file.load(opts).problem == ""
        # since then the clock on the wall was set back; and one of before this boot
        for clock_s, why in ((status_file.boot_time(), ""), (status_file.boot_time() - 60, (
            "it hangs"
        )),
                             (status_file.boot_time() + 60, "has just started")):  # fmt: skip
            told = {**now, "at_s": time.time() + 86400, "clock_s": clock_s}
            status_file.report_path(opts).write_text(json.dumps(told))
            assert why in status_file.load(opts).problem and bool(why) == bool(
                status_file.load(opts).problem
            )
        status_file.report_path(opts).write_text("{")
        assert "engine.json cannot be read" in status_file.load(opts).problem
