"""Owners of guests in the master's files."""

import gc
import json
import os
import stat
import time
import uuid
from pathlib import Path

import pytest

pytest.importorskip("salt")

from saltvirt import errors
from saltvirt.operations.access import owners
from saltvirt.operations.access.owners import Owner, PendingGuest
from saltvirt.operations.access.set_owner import SetLabels, SetOwner
from saltvirt.rights.grants import ResourceAmount
from tests.clock import Clock
from tests.counted import Cloud

ID = str(uuid.UUID(int=1))
ONE = PendingGuest("bob", 2, 1024, 4096)


@pytest.fixture
def opts(tmp_path):
    return {"pki_dir": str(tmp_path / "pki"), "cachedir": str(tmp_path / "cache"),
            "virt": {"queue_timeout": 1}}  # fmt: skip


def handles(opts):
    """The open files below the master's folders; other tests of the process have theirs."""
    gc.collect()
    top = os.path.dirname(opts["cachedir"])
    links = (os.path.join("/proc/self/fd", fd) for fd in os.listdir("/proc/self/fd"))
    return sorted(link for link in links if _target(link).startswith(top))


def _target(link):
    try:
        return os.readlink(link)
    except FileNotFoundError:
        return ""


def test_an_owner_and_labels_are_each_written_beside_the_other(opts):
    owners.set_owner(opts, ID, "web1", "bob")
    owners.set_labels(opts, ID, "web2", ("test",))
    assert owners.load(opts, ID) == Owner("web2", "bob", ("test",))
    owners.set_owner(opts, ID, "web3", "anna")
    assert owners.load(opts, ID.upper()) == Owner("web3", "anna", ("test",))
    assert owners.load(opts, str(uuid.UUID(int=2))) == Owner("")


def test_what_says_nothing_is_no_file(opts):
    file = Path(opts["pki_dir"], "virtowners", ID)
    owners.set_owner(opts, ID, "web1", "bob")
    owners.set_labels(opts, ID, "web1", ("test",))
    owners.set_owner(opts, ID, "web1", None)
    assert owners.load(opts, ID) == Owner("web1", None, ("test",))
    owners.set_labels(opts, ID, "web1", ())
    assert not file.exists()
    owners.set_labels(opts, ID, "web1", ())
    assert owners.load(opts, ID) == Owner("")


@pytest.mark.parametrize("wrong", ["../x", "", "web1"])
def test_what_is_no_uuid_is_nobodys_and_is_not_written(opts, wrong):
    assert owners.load(opts, wrong) == Owner("")
    with pytest.raises(errors.OperationFailed, match="web1 has no valid UUID"):
        owners.set_owner(opts, wrong, "web1", "bob")
    assert not Path(opts["pki_dir"]).exists()


@pytest.mark.parametrize("text", ["{", "[" * 100_000, '{"guest": 7}', "[]"])
def test_a_damaged_file_is_named_and_overwritten_by_nobody(opts, text):
    owners.set_owner(opts, ID, "web1", "bob")
    file = Path(opts["pki_dir"], "virtowners", ID)
    file.write_text(text)
    with pytest.raises(errors.BadAnswer, match=f"{file}"):
        owners.set_owner(opts, ID, "web1", "anna")
    assert file.read_text() == text


def test_of_two_looks_one_waits_and_the_lock_is_let_go(opts, monkeypatch):
    monkeypatch.setattr(owners.file_lock, "time", Clock(time.time()))
    before, told = handles(opts), "a quota check"
    for _ in range(2):
        with owners.one_at_a_time(opts):
            with (
                pytest.raises(errors.OperationFailed, match=told), owners.one_at_a_time(opts),
            ):  # fmt: skip
                raise AssertionError
            assert handles(opts) != before
        assert handles(opts) == before
    [folder] = Path(opts["cachedir"], "virt").iterdir()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_what_is_being_made_counts_until_it_ends(opts):
    before, folder = handles(opts), owners._making(opts)
    assert owners.being_made(opts) == {}
    assert owners.maker(opts, "web1") is None
    with owners.making(opts, {"web1": ONE, "web2": ONE}):
        assert owners.being_made(opts) == {"web1": ONE, "web2": ONE}
        assert owners.maker(opts, "web1") == "bob"
        assert owners.being_made(opts)["web1"].amount() == ResourceAmount(1, 2, 1024, 4096)
        (folder / "web2").unlink()
    assert (os.listdir(folder), handles(opts)) == ([], before)
    assert owners.being_made(opts) == {}


def test_what_a_process_that_died_was_making_is_unrecorded(opts):
    with pytest.raises(ZeroDivisionError), owners.making(opts, {"web1": ONE}):
        raise ZeroDivisionError
    folder = owners._making(opts)
    assert os.listdir(folder) == []
    (folder / "web1").write_text(json.dumps(ONE.to_answer()))
    with owners.making(opts, {"web2": ONE}):
        assert owners.being_made(opts) == {"web2": ONE}
        assert owners.unrecorded(opts) == {"web1": ONE}
        assert (owners.maker(opts, "web1"), owners.maker(opts, "web2")) == (None, "bob")
        for name in ("web1", "web2"):
            owners.forget_unrecorded(opts, name)
        assert os.listdir(folder) == ["web2"], "that is being made"
    assert owners.unrecorded(opts) == {}


def test_what_goes_meanwhile_is_no_error(opts, monkeypatch):
    """Its process has ended between two questions."""
    folder = owners._making(opts)
    with owners.making(opts, {"web1": ONE, "web2": ONE}):
        taken = owners.file_lock.is_taken

        def gone(path):
            found = taken(path)
            path.unlink()
            return found and path.name == "web1"

        monkeypatch.setattr(owners.file_lock, "is_taken", gone)
        assert owners.being_made(opts) == {}
    assert os.listdir(folder) == []


@pytest.mark.parametrize("name", ["../../../pki/virtowners/x", "", "a b"])
def test_what_is_no_name_has_no_maker(opts, name):
    owners.set_owner(opts, ID, "x", "bob")
    assert owners.maker(opts, name) is None


@pytest.mark.parametrize("text", ["{", '{"owner": 7}', "[]"])
def test_of_what_is_damaged_the_maker_is_not_known(opts, text):
    folder = owners._making(opts)
    folder.mkdir(parents=True)
    (folder / "web1").write_text(text)
    assert owners.maker(opts, "web1") is None


@pytest.mark.parametrize("operation", (
    lambda cloud: SetOwner(cloud, "web1", "bob"), lambda cloud: SetLabels(cloud, "web1", ["test"]),
    lambda cloud: SetOwner(cloud, "test", ["bob"]), lambda cloud: SetLabels(cloud, "test", [{}]),
))  # fmt: skip
def test_what_cannot_be_written_down_is_a_reason_before(tmp_path, operation):
    cloud = Cloud(tmp_path, 1, {"hv000": {"test": {"vcpus": 1, "memory_kib": 1024}}})
    found = operation(cloud).check()
    with pytest.raises(errors.VirtError) as error:
        operation(cloud).run()
    assert [*found.reasons] == [error.value.text]
