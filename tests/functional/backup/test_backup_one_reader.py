"""The runner's virt.backup with the real module on the target's machine and a hypervisor that
exports a disk. Each backup has a reader of its own."""

import contextlib
import os
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("salt")
pytest.importorskip("libvirt")

from saltvirt import errors
from saltvirt.backup.manager import backup as backing_up
from saltvirt.backup.model.answers import ServedDisk, Serving, ServingEnd
from saltvirt.backup.target import handlers
from saltvirt.fleet.answer import FAILED, Answer
from saltvirt.pki.host import own_pair
from tests.functional import hostile_nbd
from tests.functional.backed_up import MIB, UUID, XML
from tests.functional.cloud import Fleet
from tests.functional.conftest import load
from tests.functional.pulled import HAS_LIBNBD, HOST, SIZE, Pulled

pytestmark = pytest.mark.skipif(not HAS_LIBNBD, reason="no libnbd")


class Hypervisor:
    """hv1. leads: (port, authority) to which it leads who reads; None: it shows the disk."""

    def __init__(self, guest):
        self.guest, self.leads, self.servers, self.ended = guest, None, [], []

    def look(self, name):
        return self.guest.look().to_answer()

    def begin(self, name, backup_id, disks, reader):
        [plan] = disks
        where = self.leads or self.shown(reader)
        disk = ServedDisk("vda", SIZE, "file /srv/web1.qcow2", "vda", (), None, plan["reason"])
        told = Serving(UUID, HOST, where[0], "stopped", XML, (disk,), where[1])
        return told.to_answer()

    def shown(self, reader):
        self.servers.append(hostile_nbd.Honest(bytes(self.guest.now), reader))
        return self.servers[-1].port, self.servers[-1].pair.authority

    def end(self, name, backup_id, good=False, needed=()):
        self.ended.append((backup_id, good))
        return ServingEnd().to_answer()


class Cloud(Fleet):
    """hv1 has the guest, b1 the target."""

    def __init__(self, modules, tmp_path, hypervisor):
        super().__init__(modules, tmp_path)
        self.hypervisor = hypervisor
        folder = hypervisor.guest.target.folder.root
        targets = {"vault": {"host": "b1", "folder": folder}}
        self.opts["virt"] = {"backup": {"targets": targets}}

    def ask(self, hosts, fun, kwarg=None, **options):
        for host in hosts:
            if host == "b1":
                for answer in super().ask([host], fun, kwarg):
                    yield replace(answer, host=host)
                continue
            verb = getattr(self.hypervisor, fun.removeprefix("virt.backup_"))
            try:
                yield Answer("hv1", data=verb(**(kwarg or {})))
            except errors.VirtError as exc:
                yield Answer("hv1", error=exc.text, kind=FAILED)


@pytest.fixture
def cloud(tmp_path, monkeypatch):
    guest = Pulled(tmp_path, tmp_path / "target")
    guest.write(MIB, 300_000, byte=1)
    modules = load("test:///default")
    monkeypatch.setattr(handlers, "ONE_TIME_KEYS", str(tmp_path / "readers"))
    monkeypatch.setattr(backing_up.lifecycle, "host_for_write", lambda *_: "hv1")
    monkeypatch.setattr(backing_up.lock, "guest", lambda *_: contextlib.nullcontext())
    monkeypatch.setattr(
        backing_up.slots, "backing_up", lambda *_: contextlib.nullcontext()
    )  # fmt: skip
    found = Cloud(modules, tmp_path, Hypervisor(guest))
    yield found
    for one in found.hypervisor.servers:
        one.end()


def backed_up(cloud):
    return backing_up.CreateBackup(cloud, "web1", None, cloud.report("web1", "backup")).run()


def readers(tmp_path):
    folder = tmp_path / "readers"
    return [one for one in os.listdir(folder) if not one.startswith(".")] if folder.exists() else []


def test_each_backup_has_a_reader_of_its_own_which_nobody_has_afterwards(cloud, tmp_path):
    made = backed_up(cloud)
    again = backed_up(cloud)
    assert made.complete and again.complete
    stock = cloud.hypervisor.guest.target.catalog(UUID)
    assert stock.good_ids == [made.changes["backup"], again.changes["backup"]]
    told = [asked["reader"] for verb, asked in cloud.asked if verb == "virt.backup_pull"]
    assert len(set(told)) == 2 and readers(tmp_path) == []


def test_a_hypervisor_cannot_lead_who_reads_to_what_another_one_shows(cloud, tmp_path):
    """hv2 shows a guest's disk for a backup that is under way, to the same machine. hv1 knows the
    authority of what hv2 shows, and tells that and hv2's port as its own."""
    under_way = own_pair.ephemeral(str(tmp_path / "readers"), "backup-reader")
    cloud.hypervisor.leads = cloud.hypervisor.shown(under_way.authority)
    with pytest.raises(errors.VirtError, match="cannot connect to export vda"):
        backed_up(cloud)
    assert not cloud.hypervisor.guest.target.catalog(UUID).backups
    assert [good for _, good in cloud.hypervisor.ended] == [False]
    assert len(readers(tmp_path)) == 1  # that of the one under way


def test_who_reads_is_used_once(tmp_path):
    pair = own_pair.ephemeral(str(tmp_path / "once"), "reader")
    asked = (str(tmp_path / "once"), pair.authority, "reader")
    assert own_pair.take(*asked) == pair
    with pytest.raises(errors.InvalidInput, match="was already used: start again"):
        own_pair.take(*asked)
    assert [one.name for one in (tmp_path / "once").iterdir() if one.is_dir()] == []


def test_one_that_nobody_took_goes_when_its_time_is_over(tmp_path):
    folder = tmp_path / "once"
    own_pair.ephemeral(str(folder), "reader")
    [old] = [one for one in folder.iterdir() if one.is_dir()]
    os.utime(old, (0, 0))
    new = own_pair.ephemeral(str(folder), "reader")
    assert not Path(old).exists()
    assert own_pair.take(str(folder), new.authority, "reader") == new


def test_of_two_who_take_it_at_once_one_gets_it(tmp_path, monkeypatch):
    folder = str(tmp_path / "once")
    pair, reads, others = own_pair.ephemeral(folder, "reader"), own_pair._read, []

    def then_another(place):
        with pytest.raises(errors.InvalidInput, match="was already used: start again"):
            others.append(own_pair.take(folder, pair.authority, "reader"))
        return reads(place)

    monkeypatch.setattr(own_pair, "_read", then_another)
    assert own_pair.take(folder, pair.authority, "reader") == pair and others == []
