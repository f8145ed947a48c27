"""A guest whose creation was interrupted: the behavior of each verb, and its removal."""

import gzip
import os
import re
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

libvirt = pytest.importorskip("libvirt")
pytest.importorskip("salt")

from saltvirt import errors
from saltvirt.answers.creation import Phase
from saltvirt.host.domain import creation, metadata, purge
from saltvirt.host.provision import create, guest_builder, leftovers
from saltvirt.migration import checks
from saltvirt.migration.facts import GuestReport
from saltvirt.placement import facts
from saltvirt.xml.domain.metadata import OwnDisk
from tests.functional import asking, daemon
from tests.functional.conftest import REPOSITORY
from tests.functional.host.provision.test_init import MIB, files, host, image, info, names  # noqa: F401
from tests.lab import process

libvirtd = daemon.libvirtd
DEAD = "1:1:dead"
SYSTEM = {"name": "system", "size": 16}


def mark(conn, creator, name="g1"):
    """Gives a guest the mark of who creates it."""
    dom = conn.lookupByName(name)
    text = dom.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE | libvirt.VIR_DOMAIN_XML_SECURE)
    return conn.defineXML(text.replace('created="', f'creating="{creator}" created="'))


@pytest.fixture
def half(host, image):  # noqa: F811
    """A host with g1, whose creation was interrupted."""
    host.init(image=image, disks=[SYSTEM])
    host.dom = mark(host.conn, DEAD)
    host.image = image
    return host


def is_as_it_was(at):
    """g1 is there, with its disk and its mark."""
    assert files(at) == ["g1_system.qcow2"]
    assert at.modules["virt.creation_phase"]("g1")["phase"] == "interrupted"
    assert "creating=" in at.conn.lookupByName("g1").XMLDesc()


def test_what_somebody_has_put_in_its_place_is_not_removed_for_who_wants_to_use_it(half):
    """The creation was killed before it made the disk."""
    disk = half.images / "g1_system.qcow2"
    disk.write_bytes(b"a backup of mine")
    for test in (True, False):
        with pytest.raises(errors.Incomplete, match=r"g1_system.qcow2 is either a leftover of"):
            half.init(disks=[{**SYSTEM, "existing": True, "format": "qcow2"}], test=test)
    assert disk.read_bytes() == b"a backup of mine"
    half.init(image=half.image, disks=[SYSTEM])


@pytest.fixture
def marked(half):
    """The same, of a creation that has marked what it made; skips where files take no marks."""
    path, probe = half.images / "g1_system.qcow2", half.images / "probe"
    probe.touch()
    try:
        os.setxattr(probe, "user.probe", b"1")
    except OSError:
        pytest.skip("files here take no marks")
    probe.unlink()
    value = os.getxattr(path, "user.saltvirt.making").decode()
    text = half.dom.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE)
    half.dom = half.conn.defineXML(text.replace('creating="', f'mark="{value}" creating="'))
    half.disk = path
    return half


def test_what_an_interrupted_creation_has_made_goes(marked):
    marked.init(image=marked.image, disks=[SYSTEM])
    assert "mark=" not in marked.conn.lookupByName("g1").XMLDesc()
    assert info(marked.disk)["virtual-size"] == 16 * MIB


@pytest.mark.parametrize("how", ["init", "purge", "existing", "mark_complete"])
def test_what_somebody_has_put_in_its_place_stays(marked, how):
    marked.disk.unlink()
    argv = ["qemu-img", "create", "-q", "-f", "qcow2", str(marked.disk), "16M"]
    subprocess.run(argv, check=True)
    mine = marked.disk.read_bytes()
    plan = marked.modules["virt.purge"]("g1", test=True)
    assert plan["delete"] == [] and "unsure" not in plan
    assert plan["keep"] == {str(marked.disk): purge.OTHER_FILE}
    if how == "init":
        for test in (True, False):
            with pytest.raises(errors.AlreadyExists, match=r"g1_system.qcow2 already exists"):
                marked.init(image=marked.image, disks=[SYSTEM], test=test)
    elif how == "existing":
        marked.init(disks=[{**SYSTEM, "existing": True, "format": "qcow2"}])
        assert "creating=" not in marked.conn.lookupByName("g1").XMLDesc()
    elif how == "purge":
        assert marked.modules["virt.purge"]("g1") is True
        assert names(marked) == ["test"]
    else:
        assert marked.modules["virt.mark_complete"]("g1") is True
        assert "mark=" not in marked.conn.lookupByName("g1").XMLDesc()
    assert marked.disk.read_bytes() == mine


def test_what_it_needs_of_the_host_is_told_as_if_nothing_were_left(half):
    wanted = {"name": "g1", "cpu": 1, "mem": 64, "seed": False, "nic": None, "image": half.image}
    told = asking.answer(half.modules, "virt.inventory", guest={**wanted, "disks": [SYSTEM]})[
        "guest"
    ]
    assert "problem" not in told and told["disk_bytes"] == 16 * MIB


VERBS = {
    "start": ("g1",),
    "power": ("g1", "start", ["shutdown"]),
    "update": ("g1", 2),
    "set_autostart": ("g1", "on"),
    "setmem": ("g1", 32),
    "setvcpus": ("g1", 1),
    "snapshot": ("g1",),
    "revert_snapshot": ("g1", "s"),
    "clone": ("g1", "g2"),
    "rename": ("g1", "g2"),
    "resize_disk": ("g1", "vda", 32),
}
TESTS = ("start", "update", "clone", "rename")


def called(machine, verb, **options):
    function = f"virt.{verb}"
    if verb == "power":  # a call of the master alone
        return asking.answer(machine.modules, function, *VERBS[verb], **options)
    return machine.modules[function](*VERBS[verb], **options)


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_refuses_it_and_says_what_to_do(half, verb):
    words = r"^cannot .* g1 on .*: its creation was interrupted: run salt-run virt.repair name=g1"
    with pytest.raises(errors.Incomplete, match=words):
        called(half, verb)
    is_as_it_was(half)
    assert names(half) == ["g1", "test"]
    if verb in TESTS:
        with pytest.raises(errors.Incomplete, match=words):
            called(half, verb, test=True)


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_refuses_a_guest_that_is_being_created(host, image, verb):  # noqa: F811
    host.init(image=image, disks=[SYSTEM])
    mark(host.conn, metadata.worker())
    with pytest.raises(errors.Incomplete, match=r"g1 on .*: it is being created: wait until"):
        called(host, verb)


@pytest.mark.parametrize("verb", ["define_xml_str", "create_xml_str"])
def test_a_definition_of_its_name_does_not_take_its_place(half, verb):
    text = half.conn.lookupByName("test").XMLDesc().replace("<name>test<", "<name>g1<")
    text = re.sub("<uuid>.*</uuid>", f"<uuid>{half.dom.UUIDString()}</uuid>", text)
    with pytest.raises(errors.Incomplete, match="its creation was interrupted"):
        half.modules[f"virt.{verb}"](text)
    is_as_it_was(half)


def test_it_does_not_move():
    options = SimpleNamespace(live=None, offline=False, postcopy=False)
    request = SimpleNamespace(options=options)
    for phase, words in ((Phase.INTERRUPTED, "was interrupted: salt-run virt.repair name=g1"),
                         (Phase.CREATING, "is being created")):  # fmt: skip
        guest = GuestReport("g1", "u", "hv1", active=False, state="shutdown", phase=phase.value)
        (why,) = checks.guest.reasons(guest, request)
        assert words in why


# functions that change a guest whose creation was interrupted, or leave it to their checks
ALLOWED = {
    "shutdown", "stop", "pause", "resume", "reboot", "reset", "undefine", "purge", "remove_made",
    "mark_complete", "seed_eject", "delete_snapshots", "migrate_clean", "backup_wish",
}  # fmt: skip
REFUSING = {*VERBS, "define_xml_str", "create_xml_str"}


def test_each_function_that_locks_a_guest_refuses_it_or_is_named_here():
    """A new function has to say what it does with such a guest."""
    text = "\n".join(path.read_text("utf-8") for path in (REPOSITORY / "_modules").glob("virt*.py"))
    found = re.findall(r'_locked\("(\w+)"', text)
    calls = r"(?:_change|(?<!require)_complete|_admitted|change)"
    found += re.findall(calls + r'\(\s*\w+,\s*"(\w+)"', text)
    found += re.findall(r'\.guest\("virt\.(\w+)"', text)
    found += re.findall(r'held\(\w+, "virt\.(\w+)"', text)
    assert {*found} - ALLOWED == REFUSING - {"power", "update", "clone", "rename"}


@pytest.mark.parametrize("test", [True, False])
def test_another_guest_is_not_renamed_to_its_name(half, test):
    half.init(name="g2", image=half.image, disks=[SYSTEM])
    words = "g1 already exists on .*, and its creation was interrupted: .* name=g1"
    with pytest.raises(errors.AlreadyExists, match=words):
        half.modules["virt.rename"]("g2", "g1", test=test)
    assert names(half) == ["g1", "g2", "test"]
    assert files(half) == ["g1_system.qcow2", "g2_system.qcow2"]
    assert half.modules["virt.creation_phase"]("g1")["phase"] == "interrupted"


# -- what is created again ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"image": "/nosuch.qcow2"}, "/nosuch.qcow2 does not exist"),
        ({"mem": "400GiB"}, "refused: no room"),
        ({"image_hash": "0" * 64}, "instead of 0000"),
        ({"disks": [{**SYSTEM, "size": 1}]}, "less than the"),
    ],
)
def test_a_request_that_is_refused_leaves_it(half, wrong, words):
    given = {"image": half.image, "disks": [SYSTEM], **wrong}
    with pytest.raises(errors.VirtError, match=words):
        half.init(**given)
    is_as_it_was(half)


def test_a_request_that_is_right_replaces_it(half):
    before = half.dom.UUIDString()
    told = half.init(image=half.image, disks=[SYSTEM], test=True)
    is_as_it_was(half)
    made = half.init(image=half.image, disks=[SYSTEM])
    assert told["disks"] == made["disks"] and made["uuid"] != before
    assert files(half) == ["g1_system.qcow2"]
    assert half.modules["virt.creation_phase"]("g1") == {"phase": "complete", "used": None}


def test_a_volume_of_it_is_made_again(half, image, tmp_path):  # noqa: F811
    folder = tmp_path / "pool"
    folder.mkdir()
    half.conn.storagePoolCreateXML(
        f"<pool type='dir'><name>vms</name><target><path>{folder}</path></target></pool>"
    )
    given = {"name": "g2", "disks": [{"name": "data", "size": 8, "pool": "vms"}], "disk": None}
    half.init(**given)
    mark(half.conn, DEAD, "g2")
    with pytest.raises(errors.VirtError, match="no room"):
        half.init(**given, mem="400GiB")
    pool = half.conn.storagePoolLookupByName("vms")
    assert pool.listVolumes() == ["g2_data"]
    half.init(**given)
    assert pool.listVolumes() == ["g2_data"]
    assert half.modules["virt.creation_phase"]("g2")["phase"] == "complete"


def test_the_room_of_its_disks_is_given_to_the_same_request():
    found = guest_builder.CreationLeftovers()
    found.add([OwnDisk(path="/srv/g1.raw", size_bytes=10), OwnDisk(pool="p", volume="v",
              size_bytes=7)], ["/srv/g1.raw"])  # fmt: skip
    request = facts.PlacementRequest(
        "g1", 1, 1, pools={"p": 9, "q": 3},
        disks=(facts.DiskFootprint(12, "/srv/g1.raw"), facts.DiskFootprint(5, "/srv/b.raw")),
    )  # fmt: skip
    asked = found.without(request)
    assert [disk.size_bytes for disk in asked.disks] == [2, 5]
    assert asked.pools == {"p": 2, "q": 3}
    assert guest_builder.CreationLeftovers().without(request) is request


# -- one that was started ----------------------------------------------------------------------

STAYS = (
    r"g1 on \S+ was not changed: its creation was interrupted, but it is running: salt \S+ "
    r"virt.mark_complete g1 keeps it as it is, salt-run virt.purge g1 force=True deletes it"
)


@pytest.mark.parametrize("given", [{}, {"image": "/nosuch.qcow2"}, {"mem": "400GiB"}])
def test_one_that_runs_is_not_replaced(half, given):
    half.dom.create()
    for test in (True, False):
        with pytest.raises(errors.Incomplete, match=STAYS):
            half.init(**{"image": half.image, "disks": [SYSTEM], **given}, test=test)
        is_as_it_was(half)
        assert half.dom.isActive()
    found = leftovers.read(half.conn, str(half.images))
    assert (found.unfinished, found.used) == (("g1",), {"g1": "it is running"})


def test_one_that_is_started_while_its_image_is_fetched_is_not_replaced(half, monkeypatch):
    """``virsh start`` takes no lock of ours."""
    fetch = create.CreationBuilder.fetch

    def started(self):
        fetch(self)
        half.dom.create()

    monkeypatch.setattr(create.CreationBuilder, "fetch", started)
    with pytest.raises(errors.Incomplete, match=STAYS):
        half.init(image=half.image, disks=[SYSTEM])
    is_as_it_was(half)


def test_one_that_has_snapshots_or_saved_memory_was_used(half):
    half.dom.create()
    half.dom.managedSave()
    assert creation.evidence_of_use(half.dom) == "it has saved memory"
    half.dom.managedSaveRemove()
    assert creation.evidence_of_use(half.dom) is None
    half.dom.snapshotCreateXML("<domainsnapshot/>")
    assert creation.evidence_of_use(half.dom) == "it has snapshots"


def test_a_purge_of_one_that_runs_has_to_be_forced(half):
    half.dom.create()
    with pytest.raises(errors.OperationFailed, match="cannot purge g1: it is running"):
        half.modules["virt.purge"]("g1", force=False)
    is_as_it_was(half)
    assert half.modules["virt.purge"]("g1") is True
    assert files(half) == []


def test_it_is_kept_as_it_is_and_is_a_guest_as_any_other(half):
    half.dom.create()
    mark_complete = half.modules["virt.mark_complete"]
    assert mark_complete("g1") is True
    assert mark_complete("g1") is False
    assert leftovers.read(half.conn, str(half.images)).unfinished == ()
    assert "creating" not in half.dom.XMLDesc() and half.dom.isActive()
    half.dom.destroy()
    assert "creating" not in half.dom.XMLDesc()
    assert half.modules["virt.start"]("g1") is True
    mark(half.conn, metadata.worker())
    with pytest.raises(errors.Incomplete, match=r"cannot mark g1 .* it is being created"):
        mark_complete("g1")


GUEST = """<domain type='qemu'><name>g1</name><uuid>8f1fbd26-8a3d-4b0c-8a5a-0f1c7a1f3a11</uuid>
<memory unit='MiB'>32</memory><metadata>
<s:guest xmlns:s="https://saltproject.io/xmlns/salt-virt/1" creating="1:1:dead" created="{}"/>
</metadata><os><type>hvm</type></os></domain>"""


@pytest.mark.parametrize("rotated", [False, True])
def test_libvirts_log_tells_that_it_was_started_since_it_was_defined(
    libvirtd, monkeypatch, tmp_path, rotated
):

    root = tmp_path / "log"
    (root / "qemu").mkdir(parents=True)
    monkeypatch.setattr(creation, "LOGS", str(root))
    [inside] = process.children(libvirtd.process.pid)

    def copied():
        for path in Path(f"/proc/{inside}/root/var/log/libvirt/qemu").glob("g1.log*"):
            if rotated:
                with gzip.open(root / "qemu" / "g1.log.1.gz", "wb") as file:
                    file.write(path.read_bytes())
            else:
                shutil.copy(path, root / "qemu")

    conn = libvirt.open(libvirtd.uri)
    try:
        dom = conn.defineXML(GUEST.format("2001-01-01T00:00:00Z"))
        assert creation.evidence_of_use(dom) is None
        dom.create()
        assert creation.evidence_of_use(dom) == "it is running"
        dom.destroy()
        copied()
        assert re.fullmatch(r"it was started at 20\d\d-.*Z", creation.evidence_of_use(dom))
        with pytest.raises(errors.Incomplete, match="but it was started at"):
            creation.refuse_used(dom)
        dom = conn.defineXML(GUEST.format("2999-01-01T00:00:00Z"))
        assert creation.evidence_of_use(dom) is None, "that was an earlier guest of the name"
        dom.undefine()
    finally:
        conn.close()
