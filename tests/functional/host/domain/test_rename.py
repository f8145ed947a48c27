"""Renaming with libvirt's test driver and real disks, and a host's answer about a future guest."""

import os

import pytest

libvirt = pytest.importorskip("libvirt")
pytest.importorskip("salt")

from saltvirt import errors
from saltvirt.host.domain import lookup
from saltvirt.host.migration import departures, move_journal
from saltvirt.host.provision import disk_build, disk_journal
from saltvirt.host.provision import rename as renaming
from saltvirt.host.storage import files, usage
from saltvirt.migration.facts import GuestReport
from saltvirt.migration.journal import MOVED, MOVING, PREPARING, JournalEntry
from saltvirt.seed import backends, minion
from saltvirt.spec.disk import DiskSpec
from tests.functional import asking
from tests.functional.host.provision.test_init import (  # noqa: F401
    MIB,
    above,
    host,
    image,
    names,
    on_top_of,
)


@pytest.fixture
def web1(host, image):  # noqa: F811
    """A stopped guest with two disks of its own and one that is only lent to it."""
    lent = host.images / "web1_lent.raw"
    lent.write_bytes(bytes(MIB))
    disks = [
        {"name": "system", "size": 16},
        {"name": "data", "size": 4, "format": "raw"},
        {"name": "lent", "source_file": str(lent), "format": "raw"},
    ]
    host.init("web1", image=image, disks=disks, metadata={"groups": "web"})
    return host


def disks(host):  # noqa: F811
    return sorted(path.name for path in host.images.glob("*.*") if path.is_file())


def test_definition_record_and_files_get_the_new_name(web1):
    old = web1.conn.lookupByName("web1").UUIDString()
    plan = web1.modules["virt.rename"]("web1", "web2", test=True)
    assert sorted(plan["disks"]) == [
        str(web1.images / f"web1_{n}") for n in ("data.raw", "system.qcow2")
    ]
    assert disks(web1) == ["web1_data.raw", "web1_lent.raw", "web1_system.qcow2"]
    made = web1.modules["virt.rename"]("web1", "web2")
    assert (made["name"], made["uuid"], made["state"]) == ("web2", old, "shutdown")
    assert disks(web1) == ["web1_lent.raw", "web2_data.raw", "web2_system.qcow2"]
    assert names(web1) == ["test", "web2"]
    xml = web1.conn.lookupByName("web2").XMLDesc()
    assert "web1_system" not in xml
    assert "web1_lent.raw" in xml
    assert 'key="groups">web<' in xml or "key='groups'>web<" in xml
    web1.modules["virt.purge"]("web2")
    assert disks(web1) == ["web1_lent.raw"], "the record still says whose the files are"


def test_what_seeding_left_as_it_is_is_said(web1, monkeypatch):
    left = "/etc/netplan/50.yaml of web2 is left as it is"
    monkeypatch.setattr(renaming.GuestRename, "_seed", lambda self: self.tools.warn(left))
    assert web1.modules["virt.rename"]("web1", "web2")["warnings"] == [left]


@pytest.mark.parametrize("recorded", [True, False])
def test_the_disk_with_the_system_is_seeded_again(host, image, monkeypatch, recorded):  # noqa: F811
    """And no other one that was made for the guest."""
    seeded = []

    def apply(self, name, path, *_):
        seeded.append((name, os.path.basename(path)))
        return "KEY"

    monkeypatch.setattr(minion.Hypervisor, "apply", apply)
    given = {"seed": True, "approve_key": False}
    disks = [{"name": "data", "size": 4}, {"name": "root", "size": 16, "image": image}]
    host.init("web1", disk=None, disks=disks, **given)
    if not recorded:  # made before; by its boot order it is known
        dom = host.conn.lookupByName("web1")
        xml = dom.XMLDesc().replace(' seeded="yes"/>', "/>").replace("<boot dev='hd'/>", "")
        order = "<target dev='vdb' bus='virtio'/><boot order='1'/>"
        host.conn.defineXML(xml.replace("<target dev='vdb' bus='virtio'/>", order))
    host.modules["virt.clone"]("web1", "web2", **given)
    host.modules["virt.clone"]("web2", "web3", seed=False)
    host.modules["virt.clone"]("web3", "web4", **given)
    host.modules["virt.rename"]("web1", "web5", **given)
    assert seeded == [(f"web{n}", f"web{n}_root.qcow2") for n in (1, 2, 4, 5)]


def test_a_renamed_system_keeps_what_others_know_it_by(host, image, monkeypatch):  # noqa: F811
    """Its address by DHCP may be that of its machine-id."""
    known = {}

    def apply(_path, _format, data, _backend):
        known[data.id] = (data.reset_machine_id, data.reset_ssh_keys, data.hostname)

    monkeypatch.setattr(backends, "apply", apply)
    given = {"seed": True, "approve_key": False}
    host.init("web1", image=image, disks=[{"name": "system", "size": 16}], **given)
    host.modules["virt.clone"]("web1", "web2", **given)
    host.modules["virt.rename"]("web1", "web3", **given)
    made_anew = {name: (True, True, name) for name in ("web1", "web2")}
    assert known == {**made_anew, "web3": (False, False, "web3")}


def test_the_case_of_a_name_can_be_changed(web1):
    assert web1.modules["virt.rename"]("web1", "Web1")["name"] == "Web1"
    assert disks(web1) == ["Web1_data.raw", "Web1_system.qcow2", "web1_lent.raw"]
    with pytest.raises(errors.AlreadyExists, match=r"Web1 already exists"):
        web1.init("web1", disk=None)


def test_a_volume_that_libvirt_cannot_rename_is_named_and_is_not_the_next_guests(host):  # noqa: F811
    """As of a pool of logical volumes."""
    given = {"disk": None, "disks": [{"name": "root", "size": 4, "pool": "default-pool"}]}
    host.init("web1", **given)
    words = "libvirt cannot rename the volumes of pool default-pool"
    assert host.modules["virt.rename"]("web1", "web2")["unrenamed"] == {
        "/default-pool/web1_root": words
    }
    with pytest.raises(
        errors.AlreadyExists, match=r"volume web1_root: it is a disk of web2: choose"
    ):
        host.init("web1", **given)


def test_a_file_that_keeps_its_name_is_not_offered_to_the_next_guest(web1, monkeypatch):
    """As on a server, where other hosts may know it by that name."""
    given = {"disks": [{"name": "system", "size": 16}]}
    with monkeypatch.context() as patch:
        patch.setattr(usage, "others_may_have", lambda conn, path: "it is on a server")
        web1.modules["virt.rename"]("web1", "web2")
    with pytest.raises(
        errors.AlreadyExists, match=r"is a disk of web2: choose another name for system"
    ):
        web1.init("web1", **given)
    web1.conn.lookupByName("web2").undefine()
    with pytest.raises(errors.AlreadyExists, match=r"overwritten: existing: True uses it if it"):
        web1.init("web1", **given)


def test_a_disk_that_the_guest_had_before_is_named(web1):
    """Listed by its name it would be made anew for the guest of the new name."""
    web1.modules["virt.update"]("web1", detach=["data"])
    told = web1.modules["virt.rename"]("web1", "web2")["warnings"]
    path = web1.images / "web1_data.raw"
    assert [one.partition(", is not a disk of web2")[0] for one in told] == [
        f"{path} is named after web1"
    ]
    assert path.exists()


def test_what_cannot_be_looked_at_when_it_is_renamed_makes_no_failure(web1, monkeypatch):
    web1.modules["virt.update"]("web1", detach=["data"])
    asked = []

    def silent(_conn, path):
        if path.endswith("web1_data.raw"):
            asked.append(path)
            raise TimeoutError("no answer")

    monkeypatch.setattr(usage, "others_may_have", silent)
    assert web1.modules["virt.rename"]("web1", "web2")["name"] == "web2"
    assert asked and "web2_system.qcow2" in disks(web1)


def running(web1):
    web1.conn.lookupByName("web1").create()


def a_file_in_the_way(web1):
    (web1.images / "web2_data.raw").touch()


def a_snapshot(web1):
    web1.conn.lookupByName("web1").snapshotCreateXML("<domainsnapshot/>", 0)


@pytest.mark.parametrize(
    ("trouble", "new", "why"),
    [
        (running, "web2", "is running: stop it first"),
        (a_file_in_the_way, "web2", "web2_data.raw already exists"),
        (a_snapshot, "web2", "snapshots, which would be lost"),
        (lambda web1: None, "test", "test already exists"),
        (lambda web1: None, "a/b", "cannot be"),
    ],
)
def test_what_is_refused_changes_nothing(web1, trouble, new, why):
    trouble(web1)
    before = disks(web1)
    with pytest.raises(errors.VirtError, match=why):
        web1.modules["virt.rename"]("web1", new)
    assert disks(web1) == before
    assert names(web1) == ["test", "web1"]


@pytest.fixture
def broken_off(web1, tmp_path, monkeypatch):
    """A call that leaves the journal of a migration of web1 that was killed in that phase."""
    folder = str(tmp_path / "moves")
    of_domain = move_journal.load_for_domain
    monkeypatch.setattr(move_journal, "load_for_domain", lambda dom, *_: of_domain(dom, folder))

    def write(phase, **more):
        uuid = more.pop("uuid", web1.conn.lookupByName("web1").UUIDString())
        about = GuestReport("web1", uuid, "hv1", False, "shutdown")
        with move_journal.MigrationJournal(folder, "web1") as journal:
            journal.write(JournalEntry(about, "qemu+tls://hv2/system", phase, **more))

    return write


@pytest.mark.parametrize("phase", [PREPARING, MOVING])
def test_a_guest_whose_migration_was_broken_off_keeps_its_name(web1, broken_off, phase):
    """By the new name it could be started here while it runs there, and what was made for it there
    would stay."""
    broken_off(phase)
    words = r"a migration of web1 from this host was interrupted: salt-run virt.migrate_recover"
    with pytest.raises(errors.VirtError, match=words):
        web1.modules["virt.rename"]("web1", "web2")
    assert names(web1) == ["test", "web1"]
    broken_off(phase, completed=True)
    assert web1.modules["virt.rename"]("web1", "web2")["name"] == "web2"


def test_a_guest_that_came_back_has_not_left_by_its_old_name(web1, tmp_path, monkeypatch):
    """An SLS that makes another one of that name would be refused."""
    monkeypatch.setattr(departures, "FOLDER", str(tmp_path / "moved"))
    departures.record_departure("web1", "hv2")
    web1.modules["virt.rename"]("web1", "web2")
    assert departures.departure_reason("web1") is None


@pytest.mark.parametrize("phase", [PREPARING, MOVING])
def test_a_purge_ends_the_migration_that_was_broken_off(web1, broken_off, monkeypatch, phase):
    """Without the guest nobody could end it."""
    asked, says = [], {"outcome": "undone"}

    def recover(name):
        asked.append(name)
        if isinstance(says, Exception):
            raise says
        return says

    monkeypatch.setitem(web1.modules, "virt.migrate_recover", recover)
    broken_off(phase)
    says = errors.ConnectionFailed("hv2 does not answer and may run web1")
    with pytest.raises(errors.VirtError, match="hv2 does not answer"):
        web1.modules["virt.purge"]("web1")
    says = {"outcome": "moved", "target": "hv2"}
    with pytest.raises(errors.VirtError, match="web1 is on hv2: its migration"):
        web1.modules["virt.purge"]("web1")
    assert names(web1) == ["test", "web1"]
    assert len(disks(web1)) == 3
    says = {"outcome": "undone"}
    assert web1.modules["virt.purge"]("web1") is True
    assert (names(web1), asked) == (["test"], ["web1"] * 3)


def test_a_purge_leaves_a_migration_of_another_guest_and_one_that_is_over(
    web1, broken_off, monkeypatch
):
    monkeypatch.setitem(web1.modules, "virt.migrate_recover", None)
    broken_off(MOVING, uuid="6f3c7a4e-62c7-4d5f-8f0e-0d8f0b6c9b11")
    assert move_journal.load_for_domain(web1.conn.lookupByName("web1")) is None
    broken_off(MOVED, completed=True)
    assert web1.modules["virt.purge"]("web1") is True


def test_a_failure_leaves_the_guest_as_it_was(web1):
    """Nothing on the test driver can seed: the last step fails."""
    before = web1.conn.lookupByName("web1").XMLDesc()
    uri = ' xmlns:saltvirt="https://saltproject.io/xmlns/salt-virt/1"'
    with pytest.raises(errors.VirtError, match=r"web1|web2|seed|image|disk"):
        web1.modules["virt.rename"]("web1", "web2", seed=True)
    assert names(web1) == ["test", "web1"]
    assert web1.conn.lookupByName("web1").XMLDesc().replace(uri, "") == before.replace(uri, "")
    assert disks(web1) == ["web1_data.raw", "web1_lent.raw", "web1_system.qcow2"]


@pytest.mark.parametrize("verb", ["init", "clone"])
def test_what_a_rename_that_was_killed_has_linked_is_in_no_guests_way(
    web1,
    image,  # noqa: F811
    verb,
    tmp_path,
    monkeypatch,
):
    """The advice was existing: True, for the files of another guest."""
    monkeypatch.setattr(disk_journal, "FOLDER", str(tmp_path / "making"))
    works = [
        disk_build.DiskBuild(DiskSpec(), path=str(web1.images / f"{name}_{file}"))
        for name in ("web1", "web2")
        for file in ("data.raw", "system.qcow2")
    ]
    disk_journal.DiskJournal("web2", "virt.rename", works)
    for old, new in zip(works[:2], works[2:], strict=True):
        os.link(old.path, new.path)
    before = (web1.images / "web1_data.raw").stat().st_ino
    for test in (True, False):
        if verb == "clone":
            web1.modules["virt.clone"]("web1", "web2", test=test)
        else:
            given = [{"name": "system", "size": 16}, {"name": "data", "size": 4, "format": "raw"}]
            web1.init("web2", image=image, disks=given, test=test)
    assert (web1.images / "web1_data.raw").stat().st_ino == before
    assert (web1.images / "web2_data.raw").stat().st_ino != before
    assert disk_journal.read("web2") is None


def test_the_old_names_of_a_rename_that_was_killed_are_in_no_guests_way(
    web1,
    image,  # noqa: F811
    tmp_path,
    monkeypatch,
):
    class Killed(BaseException):
        """No code runs after it."""

    def killed(*_):
        raise Killed

    monkeypatch.setattr(disk_journal, "FOLDER", str(tmp_path / "making"))
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(renaming.undo_disks, "remove_file", killed)
        web1.modules["virt.rename"]("web1", "web2")
    assert (web1.images / "web1_data.raw").exists() and names(web1) == ["test", "web2"]
    inode = (web1.images / "web2_data.raw").stat().st_ino
    given = [{"name": "system", "size": 16}, {"name": "data", "size": 4, "format": "raw"}]
    for test in (True, False):
        web1.init("web1", image=image, disks=given, test=test)
    assert (web1.images / "web2_data.raw").stat().st_ino == inode
    assert (web1.images / "web1_data.raw").stat().st_ino != inode
    assert disk_journal.read("web1") is None
    web1.modules["virt.rename"]("web2", "web3")
    assert (web1.images / "web3_data.raw").stat().st_ino == inode
    assert not os.listdir(tmp_path / "making")


def test_a_file_that_another_guest_stands_on_keeps_its_name(web1):
    base = web1.images / "web1_system.qcow2"
    top = on_top_of(base, web1.images / "top.qcow2")["source_file"]
    web1.conn.defineXML(above(top))
    made = web1.modules["virt.rename"]("web1", "web2")
    assert made["unrenamed"] == {str(base): "used by above"}
    assert base.exists()
    assert str(base) in web1.conn.lookupByName("web2").XMLDesc()


def test_a_disk_that_other_hosts_may_have_keeps_its_name_and_is_named(web1, monkeypatch):
    """Found by make chaos: nothing said so."""
    monkeypatch.setattr(usage, "others_may_have", lambda conn, path: "nfs4")
    path = str(web1.images / "web1_system.qcow2")
    assert web1.modules["virt.rename"]("web1", "web2", test=True)["disks"] == {}
    assert path in web1.modules["virt.rename"]("web1", "web2", test=True)["unrenamed"]
    made = web1.modules["virt.rename"]("web1", "web2")
    assert made["unrenamed"][path] == "other hosts may use it (nfs4)"
    assert made["disks"] == [] and path in web1.conn.lookupByName("web2").XMLDesc()


WANTED = {"name": "g9", "cpu": 1, "mem": 64, "seed": False, "nic": None}


@pytest.mark.parametrize(
    ("more", "found"),
    [
        ({"disk": None}, {"disk_bytes": 0, "bridges": [], "image_here": True}),
        ({}, {"disk_bytes": 8192 * MIB}),
        ({"disks": [{"name": "system", "size": 16}]}, {"disk_bytes": 16 * MIB}),
        (
            {"disk": None, "disks": [{"name": "d", "size": 5, "pool": "default-pool"}]},
            {"disk_bytes": 0, "pools": {"default-pool": 5 * MIB}},
        ),
        ({"interfaces": [{"name": "e", "network": "default"}]}, {"networks": ["default"]}),
        ({"interfaces": [{"name": "e", "bridge": "br7"}]}, {"bridges": ["br7"]}),
        ({"image": "salt://far.qcow2"}, {"image_here": False}),
        ({"cpu": {"maximum": 1, "model": "Westmere"}}, {"cpu_model": "Westmere"}),
        ({"disk": "big"}, {"problem": "disk profile: unknown 'big'; known: default"}),
        ({"nicc": 1}, {"problem": "argument: unknown 'nicc', did you mean 'nic'?"}),
        ({"image": "/no/such.img"}, {"problem": "image /no/such.img does not exist on this host"}),
        (
            {"disks": [{"name": "d", "size": 5, "pool": "ssd"}]},
            {"problem": "no storage pool with matching name 'ssd'"},
        ),
    ],
)
def test_what_a_guest_to_come_would_take_of_the_host(host, more, found):  # noqa: F811
    told = asking.answer(host.modules, "virt.inventory", guest={**WANTED, **more})["guest"]
    for key, value in found.items():
        assert value in told[key] if key == "problem" else told[key] == value
    assert names(host) == ["test"]


def test_an_image_without_a_size_counts_as_large_as_it_is(host, image):  # noqa: F811
    asked = {**WANTED, "disk": None, "disks": [{"name": "system", "image": image}]}
    assert (
        asking.answer(host.modules, "virt.inventory", guest=asked)["guest"]["disk_bytes"] == 8 * MIB
    )


def test_the_host_admits_by_the_room_in_a_pool(host):  # noqa: F811
    free = host.conn.storagePoolLookupByName("default-pool").info()[3]
    disk = {"name": "d", "size": f"{2 * free // MIB} MiB", "pool": "default-pool"}
    with pytest.raises(errors.VirtError, match=r"requested of pool default-pool") as caught:
        host.init("g9", disk=None, disks=[disk])
    assert type(caught.value).__name__ == "NoRoom"


def test_a_guest_of_another_name_is_not_of_its_deployment_any_more(host, image):  # noqa: F811
    """Its pillar lists the old name: ``remove=True`` would purge the guest under its new one."""
    from tests.functional.images.test_clone import MARKS, marked

    host.init("web1", image=image, disks=[{"name": "system", "size": 16}], metadata=MARKS)
    host.modules["virt.rename"]("web1", "web2")
    assert marked(host, "web2") == {"groups": "web", "owner": "ann"}


@pytest.mark.parametrize("folder", ["images", "of the host from which it came"])
def test_the_volume_for_cloud_init_is_renamed_with_its_guest(web1, tmp_path, folder):
    """Else the next guest of the old name would write over it, and nobody would eject it."""
    images = web1.images if folder == "images" else tmp_path / "earlier"
    iso = images / "_seed" / "web1.iso"
    iso.parent.mkdir(parents=True)
    iso.write_bytes(bytes(2048))
    xml = web1.conn.lookupByName("web1").XMLDesc()
    own = f'<saltvirt:disk target="hda" path="{iso}"/></saltvirt:guest>'
    drive = (
        f"<disk type='file' device='cdrom'><source file='{iso}'/><target dev='hda' bus='ide'/>"
        "<readonly/></disk></devices>"
    )
    web1.conn.defineXML(xml.replace("</saltvirt:guest>", own).replace("</devices>", drive))
    web1.modules["virt.rename"]("web1", "web2")
    assert not iso.exists()
    assert iso.with_name("web2.iso").exists()
    assert "web1.iso" not in web1.conn.lookupByName("web2").XMLDesc()


VARIABLES = ["<nvram template='/t'>{}</nvram>",
             "<nvram template='/t' type='file'><source file='{}'/></nvram>"]  # fmt: skip


@pytest.fixture
def own_folder(tmp_path, monkeypatch):
    """The folder in which libvirt keeps the variables of this host's guests."""
    monkeypatch.setattr(files, "_VARIABLES", str(tmp_path))


def with_variables(host, name, path, how=VARIABLES[0]):  # noqa: F811
    """Gives a guest firmware whose variables are in that file."""
    os_ = "<loader readonly='yes' type='pflash'>/x</loader>" + how.format(path)
    xml = host.conn.lookupByName(name).XMLDesc()
    host.conn.defineXML(xml.replace("<boot dev", f"{os_}<boot dev", 1))


@pytest.mark.usefixtures("own_folder")
@pytest.mark.parametrize("there", [True, False])
@pytest.mark.parametrize("how", VARIABLES)
def test_the_variables_of_its_firmware_are_renamed_with_their_guest(web1, tmp_path, how, there):
    """Else libvirt gives the same file to the next guest of the old name."""
    old, new = tmp_path / "web1_VARS.fd", tmp_path / "web2_VARS.fd"
    with_variables(web1, "web1", old, how)
    if there:
        old.write_bytes(b"web1's")
    made = web1.modules["virt.rename"]("web1", "web2")
    assert str(new) not in made["disks"]
    assert f"{new}" in web1.conn.lookupByName("web2").XMLDesc()
    assert str(old) not in web1.conn.lookupByName("web2").XMLDesc()
    assert not old.exists()
    assert (new.read_bytes() if new.exists() else None) == (b"web1's" if there else None)
    assert asking.answer(web1.modules, "virt.leftovers")["orphaned_disks"] == {}


def test_variables_that_only_a_running_guest_names_are_renamed_too(web1, tmp_path, monkeypatch):
    """An older libvirt chooses firmware and file at each start, the file by the guest's name."""
    monkeypatch.setattr(files, "_VARIABLES", str(tmp_path))
    xml = web1.conn.lookupByName("web1").XMLDesc()
    web1.conn.defineXML(xml.replace("<os>", "<os firmware='efi'>", 1))
    (tmp_path / "web1_VARS.fd").write_bytes(b"web1's")
    web1.modules["virt.rename"]("web1", "web2")
    assert [path.name for path in tmp_path.glob("*_VARS*")] == ["web2_VARS.fd"]
    assert "_VARS" not in web1.conn.lookupByName("web2").XMLDesc()


@pytest.mark.usefixtures("own_folder")
def test_variables_are_in_the_way_as_a_disk_is_and_go_back_when_it_fails(web1, tmp_path):
    old, new = tmp_path / "web1_VARS.fd", tmp_path / "web2_VARS.fd"
    with_variables(web1, "web1", old)
    old.write_bytes(b"web1's")
    new.write_bytes(b"another's")
    with pytest.raises(errors.AlreadyExists, match=r"web2_VARS\.fd already exists"):
        web1.modules["virt.rename"]("web1", "web2")
    new.unlink()
    with pytest.raises(errors.VirtError, match=r"web1|web2|seed|image|disk"):
        web1.modules["virt.rename"]("web1", "web2", seed=True)
    assert (old.read_bytes(), new.exists()) == (b"web1's", False)
    assert str(old) in web1.conn.lookupByName("web1").XMLDesc()


@pytest.mark.usefixtures("own_folder")
@pytest.mark.parametrize("whose", ["an operator's name for it", "other hosts may use it"])
def test_variables_that_keep_their_name(web1, tmp_path, whose, monkeypatch):
    shared = whose == "other hosts may use it"
    path = tmp_path / ("web1_VARS.fd" if shared else "web1.fd")
    with_variables(web1, "web1", path)
    path.touch()
    if shared:
        monkeypatch.setattr(usage, "others_may_have", lambda conn, path: "nfs4")
    made = web1.modules["virt.rename"]("web1", "web2")
    assert made.get("unrenamed", {}).get(str(path)) == (f"{whose} (nfs4)" if shared else None)
    assert str(path) in web1.conn.lookupByName("web2").XMLDesc()
    assert path.exists()


def test_a_template_called_like_the_guest_keeps_its_name(web1, tmp_path):
    """Every guest of the host needs it by that name."""
    path = tmp_path / "web1_VARS.fd"
    path.write_bytes(b"of the distribution")
    with_variables(web1, "web1", path)
    web1.modules["virt.rename"]("web1", "web2")
    assert f"{path}" in web1.conn.lookupByName("web2").XMLDesc()
    assert path.read_bytes() == b"of the distribution"


def test_no_guest_is_made_on_the_variables_of_another(web1, tmp_path, monkeypatch):
    """One that kept the file's name when it was renamed: libvirt would have both write to it."""
    path = tmp_path / "web9_VARS.fd"
    with_variables(web1, "web1", path)
    path.write_bytes(b"web1's")
    os_ = "<loader readonly='yes' type='pflash'>/x</loader>" + VARIABLES[0].format(path)
    real = lookup.define
    monkeypatch.setattr(
        lookup, "define", lambda conn, xml: real(conn, xml.replace("<boot dev", f"{os_}<boot dev"))
    )
    with pytest.raises(errors.AlreadyExists) as caught:
        web1.init("web9", disk=None)
    assert caught.value.text == (
        f"libvirt would store the firmware variables of web9 in {path}, which belongs to web1"
    )
    assert names(web1) == ["test", "web1"]
    assert path.read_bytes() == b"web1's"
