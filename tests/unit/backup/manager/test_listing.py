"""Invalid lists of backups from targets, and the hosts that the master queries because of them."""

import json
from types import SimpleNamespace

import pytest

pytest.importorskip("salt")

from saltvirt import errors
from saltvirt.backup.manager import backup, live_restore, target_upkeep
from saltvirt.backup.manager.replaced_guest import CommitRestore, RollbackRestore
from saltvirt.backup.manager.restore import RestoreBackup, RestoreRequest
from saltvirt.backup.model import pages
from saltvirt.backup.model.answers import ListedBackup
from saltvirt.backup.model.pins import BackupPin
from saltvirt.backup.model.policy import TargetPolicy
from saltvirt.fleet.client import Fleet
from saltvirt.operations.core.report import Report


@pytest.mark.parametrize("said", [None, 7, 2**70, "x", {"a": 1}, [7], [{}]])
def test_what_is_no_list_of_backups_is_named_with_its_host(monkeypatch, said):
    monkeypatch.setattr(target_upkeep, "target_host", lambda _fleet, _target: "hv3")
    fleet = SimpleNamespace(call=lambda *_args, **_options: said)
    with pytest.raises(errors.ConnectionFailed, match="hv3"):
        backup.list_at(fleet, SimpleNamespace(folder="/srv", mounted=False))


@pytest.mark.parametrize("silent", [{}, {"hv2": "did not respond"}])
def test_a_guest_that_a_silent_host_may_have_is_not_unknown(monkeypatch, silent):
    target = SimpleNamespace(name="vault")
    monkeypatch.setattr(target_upkeep, "select_targets", lambda _fleet, _name: [target])
    monkeypatch.setattr(backup, "uuid_of", lambda _fleet, _name: None)
    monkeypatch.setattr(backup, "list_at", lambda *_arguments: [])
    locations = backup.find.Locations(unreachable=silent)
    monkeypatch.setattr(backup.find, "locations", lambda _fleet: locations)
    if silent:
        assert backup.list_all(None, "web1") == ({"vault": []}, {})
    else:
        with pytest.raises(errors.NotFound, match="no host has such a guest"):
            backup.list_all(None, "web1")


class Asked(Fleet):
    """Of this master are hv1 and hv2; no host is asked anything."""

    def __init__(self, root):
        targets = {"vault": {"host": "hv1", "folder": "/b"}}
        super().__init__({"cachedir": str(root), "virt": {"backup": {"targets": targets}}})

    def _hypervisors(self):
        return ["hv1", "hv2"]

    def ask(self, hosts, fun, *_args, **_options):
        for host in hosts:
            assert host in self._hypervisors(), (host, fun)
        return iter(())


STRANGE = ["db1", "*", "hv*", "hv1,hv2", "-h", "a/b", "../../etc/shadow"]


@pytest.mark.parametrize("host", STRANGE)
def test_no_host_of_others_is_asked_about_a_guest_because_a_target_names_it(tmp_path, host):
    target = TargetPolicy("vault", "hv1", "/b")
    stood = live_restore.RunningRestore(target, "u", "000001-x", BackupPin("web1", host))
    with pytest.raises(errors.NotFound, match="is not a hypervisor of this master"):
        live_restore.read_status(Asked(tmp_path), stood)


@pytest.mark.parametrize("verb", [CommitRestore, RollbackRestore])
@pytest.mark.parametrize("host", STRANGE)
def test_nor_because_a_person_names_it(tmp_path, verb, host):
    one = verb(Asked(tmp_path), "web1", Report(None, "web1", "x"), host=host)
    with pytest.raises(errors.NotFound, match="is not a hypervisor of this master"):
        one.run()


@pytest.mark.parametrize(
    ("host", "words"),
    [(None, "does not name the host .* host=HOST"), ("*", "is not a hypervisor of this master")],
)
def test_a_restore_goes_to_a_host_of_this_master(tmp_path, monkeypatch, host, words):
    listed = ListedBackup(
        "000001-x", taken_at="2026-11-25T16:00:00Z", host=host, guest="web1", uuid="u", disks={},
    )  # fmt: skip
    monkeypatch.setattr(backup, "list_at", lambda *_: [listed])
    asked = RestoreRequest("web1", new="web2")
    with pytest.raises(errors.VirtError, match=words):
        RestoreBackup(Asked(tmp_path), asked, Report(None, "web1", "x"))._plan()


def listing(count):
    return [ListedBackup(f"{n:06d}-19990101T000000Z-00000000", guest="web1", uuid="u",
                         disks={"vda": "full " * 20}) for n in range(count)]  # fmt: skip


def test_however_many_there_are_no_answer_is_too_long_for_salt(monkeypatch):
    monkeypatch.setattr(target_upkeep, "target_host", lambda _fleet, _target: "hv3")
    there, lengths = listing(13_000), []

    def call(_host, _fun, asked, **_options):
        behind = asked.get("after", "").partition("/")[2]
        said = pages.page(each.to_answer() for each in there if each.backup_id > behind)
        lengths.append(len(json.dumps(said)))
        return said

    target = SimpleNamespace(folder="/srv", mounted=False)
    assert backup.list_at(SimpleNamespace(call=call), target) == there
    assert max(lengths) < 2**20 / 2


def test_a_machine_that_says_the_same_again_is_not_asked_for_ever(monkeypatch):
    monkeypatch.setattr(target_upkeep, "target_host", lambda _fleet, _target: "hv3")
    said = pages.page(each.to_answer() for each in listing(5000))
    fleet = SimpleNamespace(call=lambda *_args, **_options: said)
    with pytest.raises(errors.BadAnswer, match=r"hv3: the answers .* are not ordered"):
        backup.list_at(fleet, SimpleNamespace(folder="/srv", mounted=False))
