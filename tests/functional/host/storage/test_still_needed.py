"""Files that no definition of this libvirt names directly are not deleted either."""

import contextlib
import json
import os
import re
import subprocess
from unittest import mock
from xml.etree import ElementTree

import pytest

libvirt = pytest.importorskip("libvirt")
pytest.importorskip("salt")

from saltvirt import errors
from saltvirt.host.domain import purge, removal
from saltvirt.host.migration import confirm, target_leftovers
from saltvirt.host.provision import (
    disk_build,
    disk_journal,
    disks,
    pool_disk,
    seed_drive,
    undo_disks,
)
from saltvirt.host.snapshot import affected_files, layers
from saltvirt.host.storage import (
    chains,
    file_mark,
    identity,
    image_users,
    pool_state,
    references,
    upload,
    usage,
    volumes,
)
from saltvirt.images import clone
from saltvirt.migration.facts import GuestReport
from saltvirt.revert import UndoStack
from saltvirt.seed import nocloud
from tests.functional.host.storage.test_usage import create, disk, place  # noqa: F401

GONE = "6f3c7a4e-62c7-4d5f-8f0e-0d8f0b6c9b11"


@contextlib.contextmanager
def opened(path, format, *more):
    """QEMU's own block layer has it open, as a guest of another libvirt (qemu:///session) would."""
    argv = ["qemu-io", "-f", format, *more, str(path)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as one:
        one.stdin.write("length\n")
        one.stdin.flush()
        assert one.stdout.readline()
        yield
        one.communicate("quit\n")


@pytest.mark.parametrize("how", ["written", "read", "based on"])
def test_purge_deletes_nothing_that_a_qemu_has_open(place, how):  # noqa: F811
    place.guest(disk(place.base, "raw"), name="old")
    path, format, more = place.base, "raw", ["-r"] if how == "read" else []
    if how == "based on":  # by an image where nobody looks
        (place.root / "far").mkdir()
        path, format = create(place.root / "far" / "x.qcow2", place.base), "qcow2"
    with opened(path, format, *more):
        with pytest.raises(
            errors.OperationFailed, match=r"base.raw was not deleted: .* has it open"
        ):
            purge.purge(place.conn, "old")
        assert place.base.exists()
        place.conn.lookupByName("old")
    purge.purge(place.conn, "old")
    assert not place.base.exists()


def opens(path, *more):
    """What QEMU's own block layer says when it opens a raw disk: nothing when it can."""
    argv = ["qemu-io", "-f", "raw", *more, "-c", "length", str(path)]
    return subprocess.run(argv, capture_output=True, text=True, check=False).stderr


@pytest.mark.parametrize("how", [[], ["-r"]], ids=["to write", "to read"])
def test_no_qemu_opens_a_disk_between_the_question_and_its_deletion(place, monkeypatch, how):  # noqa: F811
    place.guest(disk(place.base, "raw"), name="old")
    real, said = purge.delete_storage, []

    def late(conn, path):
        said.append(opens(path, *how))
        real(conn, path)

    monkeypatch.setattr(purge, "delete_storage", late)
    assert opens(place.base, *how) == ""
    purge.purge(place.conn, "old")
    assert len(said) == 1
    assert "lock" in said[0]
    assert not place.base.exists()


def test_two_names_of_one_file_are_not_in_each_others_way(place):  # noqa: F811
    second = place.root / "other" / "same.raw"
    second.hardlink_to(place.base)
    place.guest(disk(place.base, "raw") + disk(second, "raw", "vdb"), name="old")
    purge.purge(place.conn, "old")
    assert not place.base.exists()
    assert not second.exists()


def test_a_guest_that_is_started_while_it_is_purged_keeps_its_disks(place, monkeypatch):  # noqa: F811
    place.guest(disk(place.base, "raw"), name="old").create()
    real = purge.lifecycle.stop

    def stop(dom):
        real(dom)
        dom.create()

    monkeypatch.setattr(purge.lifecycle, "stop", stop)
    with pytest.raises(errors.OperationFailed, match="old was started in the meantime"):
        purge.purge(place.conn, "old")
    assert place.base.exists()
    assert place.conn.lookupByName("old").isActive()
    monkeypatch.undo()
    purge.purge(place.conn, "old")
    assert not place.base.exists()


def test_a_volume_that_a_qemu_has_open_is_not_deleted(place):  # noqa: F811
    pool = place.pool("there", place.base.parent, start=True)
    pool.createXML("<volume><name>base.raw</name><capacity>1024</capacity></volume>", 0)
    with opened(place.base, "raw"), pytest.raises(errors.InvalidInput, match="has it open"):
        volumes.delete(place.conn, "there", "base.raw")
    assert volumes.delete(place.conn, "there", "base.raw")


def test_disks_on_qemus_own_command_line_count():
    text = """<domain xmlns:q='http://libvirt.org/schemas/domain/qemu/1.0'><q:commandline>
    <q:arg value='-drive'/><q:arg value='file=/data/a.qcow2,if=virtio,media=disk'/>
    <q:arg value='{"driver":"raw","file":{"driver":"file","filename":"/data/b c.raw"}}'/>
    </q:commandline></domain>"""
    paths = {one.path for one in references.references_of(ElementTree.fromstring(text))}
    assert {"/data/a.qcow2", "/data/b c.raw"} <= paths


def test_a_layer_on_which_an_image_stands_is_not_merged(place):  # noqa: F811
    """No guest names that image: its guest is undefined, or saved in a file."""
    layer = create(place.above, place.base)
    dom = place.guest(disk(layer), name="old")
    stake = affected_files.AffectedFiles("virt.revert", {str(layer), str(place.base)})
    affected_files.refuse(place.conn, dom, stake)
    create(place.root / "other" / "of-web1.qcow2", layer, "qcow2")
    with pytest.raises(errors.Refused, match=r"would be lost, but .*of-web1.qcow2.* needs it"):
        affected_files.refuse(place.conn, dom, stake)


def test_a_part_of_a_device_that_a_guest_has_whole_is_that_guests(place, monkeypatch):  # noqa: F811
    whole, part, other = (str(place.root / name) for name in ("sdb", "sdb1", "sdb2"))
    for path in (whole, part, other):
        create(path)
    monkeypatch.setattr(
        identity, "underlying_paths", lambda path: [whole] if path in (part, other) else []
    )
    place.guest(disk(other, "raw"), name="beside")
    assert place.why(part) is None
    place.guest(disk(whole, "raw"))
    assert place.why(part) == "used by web1"


def test_the_clean_up_after_a_migration_leaves_what_a_qemu_has_open(place, monkeypatch):  # noqa: F811
    gone = []
    monkeypatch.setattr(confirm.remote_storage, "delete", lambda conn, path: gone.append(path))
    report = GuestReport("old", GONE, "hv1", False, "shutdown")
    with opened(place.base, "raw"):
        _, kept = confirm.remove_source(place.conn, report, [str(place.base)])
        assert "has it open" in kept[str(place.base)]
    assert gone == []
    confirm.remove_source(place.conn, report, [str(place.base)])
    assert gone == [str(place.base)]


def test_no_qemu_opens_what_a_migration_takes_away_here(place, monkeypatch):  # noqa: F811
    said = []
    monkeypatch.setattr(
        confirm.remote_storage, "delete", lambda conn, path: said.append(opens(path, "-r"))
    )
    report = GuestReport("old", GONE, "hv1", False, "shutdown")
    confirm.remove_source(place.conn, report, [str(place.base)])
    assert len(said) == 1
    assert "lock" in said[0]
    assert opens(place.base) == ""


def cached(place):  # noqa: F811
    return image_users.cache.ImageNote(
        file="base.raw", path=str(place.base), format="raw", size_bytes=0, sums={"sha256": "0"},
        source="salt://base.raw", fetched=0,
    )  # fmt: skip


def test_an_image_that_a_qemu_has_open_stays_in_the_cache(place, monkeypatch):  # noqa: F811
    monkeypatch.setattr(image_users.cache, "cached_images", lambda folder: [cached(place)])
    monkeypatch.setattr(image_users.cache, "forget", lambda folder, name: None)
    with opened(place.base, "raw", "-r"):
        assert (
            "has it open"
            in image_users.prune(place.conn, place.root / "images")["retained"]["base.raw"]
        )
    assert image_users.prune(place.conn, place.root / "images")["removed"] == ["base.raw"]


RECORD = (
    '<metadata><s:guest xmlns:s="https://saltproject.io/xmlns/salt-virt/1" version="1">'
    "</s:guest></metadata>"
)


@pytest.mark.parametrize("who", ["a QEMU", "a guest"])
def test_the_volume_for_cloud_init_stays_while_somebody_else_uses_it(place, who):  # noqa: F811
    images = str(place.root / "images")
    volume = seed_drive.path(images, "web1")
    (place.root / "images" / "_seed").mkdir()
    create(volume)
    drive = disk(volume, "raw", "sda", "cdrom")
    place.guest(more=RECORD)
    if who == "a guest":
        place.guest(drive, name="web2")
        with pytest.raises(errors.OperationFailed, match=r"web1.iso .*: used by web2"):
            seed_drive.eject(place.conn, "web1", images)
        place.conn.lookupByName("web2").undefine()
    else:
        with (
            opened(volume, "qcow2", "-r"),
            pytest.raises(errors.OperationFailed, match=r"web1.iso .*: .* has it open"),
        ):
            seed_drive.eject(place.conn, "web1", images)
    assert seed_drive.eject(place.conn, "web1", images)
    assert not seed_drive.eject(place.conn, "web1", images)


class Going:
    """One way by which a file goes: called with the Place and the file."""

    def purge(self, at, path):
        at.guest(disk(path, "raw"), name="old")
        purge.purge(at.conn, "old")

    def clean_up(self, at, path):
        report = GuestReport("old", GONE, "hv1", False, "shutdown")
        confirm.remove_source(at.conn, report, [str(path)])

    def undo(self, at, path):
        with contextlib.suppress(ZeroDivisionError), UndoStack() as undo:
            undo_disks.push(undo, at.conn, str(path), None)
            raise ZeroDivisionError

    def eject(self, at, path):
        at.guest(more=RECORD)
        volume = seed_drive.path(str(at.root / "images"), "web1")
        os.makedirs(os.path.dirname(volume), exist_ok=True)
        os.rename(path, volume)
        seed_drive.eject(at.conn, "web1", str(at.root / "images"))

    def written_over(self, at, path):
        work = disk_build.DiskBuild(None, make=True, path=str(path), write=os.unlink)
        with UndoStack() as undo:
            disks.make(at.conn, work, undo)
            undo.success()

    def prune(self, at, path):
        image_users.prune(at.conn, str(at.root / "images"))

    def leftover(self, at, path):
        notes, mark = at.root / "notes", "0" * 32
        notes.mkdir()
        one = {"path": str(path), "pool": None, "volume": None, "mark": mark, "key": None}
        note = {"operation": "virt.update", "worker": "none", "disks": [one]}
        (notes / "old.json").write_text(json.dumps(note))
        file_mark.put(path, mark)
        with mock.patch.object(disk_journal, "FOLDER", str(notes)):
            disk_journal.remove(at.conn, "old")

    def left_by_a_migration(self, at, path):
        notes, seen = at.root / "notes", os.stat(path)
        look = [seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns]
        notes.mkdir()
        note = {"name": "old", "files": {str(path): look}, "folders": [], "images": []}
        (notes / "old~hv1.json").write_text(json.dumps(note))
        with mock.patch.object(target_leftovers, "FOLDER", str(notes)):
            target_leftovers.clean(at.conn, "old")

    def layer(self, at, path):
        layers.remove(at.conn, [str(path)])


WAYS = [name for name in vars(Going) if not name.startswith("_")]


@pytest.fixture
def at_the_end(place, monkeypatch):  # noqa: F811
    """Has a function called just before a file goes, once: with its path."""
    monkeypatch.setattr(image_users.cache, "cached_images", lambda folder: [cached(place)])
    monkeypatch.setattr(image_users.cache, "forget", lambda folder, name: os.unlink(place.base))
    called, real = [], os.unlink

    def hook(function):
        def unlink(path, **more):
            if str(path).endswith((".raw", ".iso")) and not called:
                called.append(path)
                function(path)
            real(path, **more)

        def delete(_conn, path):
            os.unlink(path)
            return True

        monkeypatch.setattr(confirm.remote_storage, "delete", delete)
        monkeypatch.setattr(os, "unlink", unlink)
        return called

    return hook


@pytest.mark.parametrize("way", WAYS)
def test_nobody_begins_to_use_what_just_goes(place, at_the_end, way):  # noqa: F811
    """Between the question and the deletion."""
    said = []
    called = at_the_end(lambda path: said.append(opens(path, "-r")))
    getattr(Going(), way)(place, place.base)
    assert len(called) == 1
    assert "lock" in said[0]
    assert not os.path.lexists(called[0])


@pytest.mark.parametrize("way", WAYS)
def test_who_began_to_use_it_before_nobody_could_open_it_any_more_is_asked(place, monkeypatch, way):  # noqa: F811
    """The last question comes when nobody can begin any more."""
    real, begun = usage.unchanged_disks.prevent_open, []

    def late(path):
        if not begun and str(path).endswith((".raw", ".iso")):
            begun.append(path)
            place.guest(disk(path, "raw"), name="web9")
        return real(path)

    monkeypatch.setattr(image_users.cache, "cached_images", lambda folder: [cached(place)])
    monkeypatch.setattr(image_users.cache, "forget", lambda folder, name: os.unlink(place.base))
    monkeypatch.setattr(confirm.remote_storage, "delete", lambda conn, path: os.unlink(path))
    monkeypatch.setattr(usage.unchanged_disks, "prevent_open", late)
    with contextlib.suppress(errors.VirtError):
        getattr(Going(), way)(place, place.base)
    assert len(begun) == 1
    assert os.path.lexists(begun[0]), way


JUST_MADE = ("undo", "eject", "written_over")


@pytest.mark.parametrize("way", WAYS)
def test_where_nobody_can_tell_only_what_was_just_made_goes(place, at_the_end, way):  # noqa: F811
    """What holds images is not mounted. Who surely uses it keeps also what was just made."""
    called = at_the_end(lambda path: None)
    place.pool("away", place.root / "away", kind="netfs")
    with contextlib.suppress(errors.VirtError):
        getattr(Going(), way)(place, place.base)
    assert bool(called) == (way in JUST_MADE)


@pytest.mark.parametrize("how", ["volume", "pool", "made"])
def test_nobody_begins_to_use_a_volume_that_just_goes(place, monkeypatch, how):  # noqa: F811
    """libvirt deletes it: it is asked at its last line, under the locks."""
    pool = place.pool("there", place.base.parent, start=True)
    for name in ("base.raw", "two.raw"):
        create(place.base.parent / name)
        pool.createXML(f"<volume><name>{name}</name><capacity>1024</capacity></volume>", 0)
    said, real = [], usage.read

    def read(*args, **more):
        found = real(*args, **more)
        said.append(opens(place.base, "-r"))
        return found

    monkeypatch.setattr(usage, "read", read)
    if how == "volume":
        volumes.delete(place.conn, "there", "base.raw")
    elif how == "pool":
        pool_state.remove(place.conn, "there", purge=True)
    else:
        pool_disk._delete(place.conn, "there", "base.raw", None)
    assert "lock" in said[-1]


def test_a_pool_goes_in_portions_with_what_stands_on_them(place, monkeypatch):  # noqa: F811
    pool = place.pool("there", place.base.parent, start=True)
    create(place.base.parent / "above.qcow2", place.base)
    for name in ("base.raw", "above.qcow2"):
        pool.createXML(f"<volume><name>{name}</name><capacity>1024</capacity></volume>", 0)
    monkeypatch.setattr(volumes, "_BATCH_SIZE", 1)
    volumes.delete_all(place.conn, "there", ["base.raw", "above.qcow2"])
    assert pool.listVolumes() == []


def test_firmware_variables_that_somebody_opens_stay(place, monkeypatch):  # noqa: F811
    nvram = create(place.root / "web1_VARS.fd")
    monkeypatch.setattr(removal.files, "_VARIABLES", str(place.root))
    text = f"<loader type='pflash' readonly='yes'>{place.base}</loader><nvram>{nvram}</nvram>"
    dom = place.guest(os=text)
    with removal.variables(place.conn, dom) as what:
        assert what == "NVRAM"
        assert "lock" in opens(nvram)
    with opened(nvram, "qcow2", "-r"), removal.variables(place.conn, dom) as what:
        assert what == "KEEP_NVRAM"


def test_who_has_the_old_volume_for_cloud_init_open_keeps_it_whole(tmp_path):
    """What has its name is made beside it: nothing is half written at any time."""
    new, path = tmp_path / "new", tmp_path / "web1.iso"
    new.write_bytes(b"new" * 9)
    path.write_bytes(b"old" * 99)
    path.chmod(0o644)
    with open(path, "rb") as file:
        nocloud._publish(new, str(path))
        assert file.read() == b"old" * 99
    assert path.read_bytes() == b"new" * 9
    assert path.stat().st_mode & 0o777 == 0o600
    assert sorted(os.listdir(tmp_path)) == ["new", "web1.iso"]


@pytest.mark.parametrize("who", ["nobody", "a QEMU"])
def test_a_layer_begins_anew_and_no_other_file_is_in_the_way(place, who):  # noqa: F811
    """Also none that looks as if an earlier attempt had left it."""
    layer = create(place.above, place.base)
    before = layer.read_bytes()
    subprocess.run(["qemu-io", "-c", "write -P 7 0 4k", layer], check=True, capture_output=True)
    written, mine = layer.read_bytes(), layer.with_name(f"{layer.name}.revert")
    mine.write_bytes(b"a person's")
    dom = place.guest(disk(layer))
    wanted = [layers.Layer("vda", str(layer))]
    if who == "a QEMU":
        with opened(layer, "qcow2"), pytest.raises(errors.OperationFailed, match="has it open"):
            layers._recreate_layers(place.conn, dom, wanted)
        assert layer.read_bytes() == written
    else:
        layers._recreate_layers(place.conn, dom, wanted)
        assert chains.read(str(layer), "qcow2").paths == [str(layer), str(place.base)]
        assert layer.stat().st_size == len(before)
    assert mine.read_bytes() == b"a person's"
    assert sorted(layer.parent.glob(".*")) == []


def test_what_a_killed_process_had_named_already_is_not_begun_anew(tmp_path):
    """Killed between the two names of a new disk: the part is the disk, by another name."""
    (tmp_path / "web1.raw").write_bytes(b"a guest's")
    os.link(tmp_path / "web1.raw", tmp_path / ".web2.raw.part")
    with clone.part_of(str(tmp_path / "web2.raw")) as part:
        assert os.path.getsize(part) == 0
    assert (tmp_path / "web1.raw").read_bytes() == b"a guest's"


def test_without_hard_links_a_name_that_was_taken_meanwhile_stays(tmp_path, monkeypatch):
    part, target = tmp_path / ".x.part", tmp_path / "x"
    part.write_bytes(b"ours")
    monkeypatch.setattr(os, "link", _no_links)
    monkeypatch.setattr(os.path, "lexists", lambda path: False)
    target.write_bytes(b"theirs")
    with pytest.raises(errors.AlreadyExists):
        clone._publish(str(part), str(target))
    assert target.read_bytes() == b"theirs"
    target.unlink()
    clone._publish(str(part), str(target))
    assert target.read_bytes() == b"ours"


def _no_links(*_):
    raise PermissionError(1, "Operation not permitted")


@pytest.fixture
def base(place):  # noqa: F811
    """place.base as the volume of a pool, larger than it is wanted."""
    pool = place.pool("there", place.base.parent, start=True)
    capacity = place.base.stat().st_size
    pool.createXML(f"<volume><name>base.raw</name><capacity>{capacity}</capacity></volume>", 0)
    return pool.storageVolLookupByName("base.raw")


WRITES = {
    "an upload": lambda conn, new: upload.upload(
        conn, "there", "base.raw", str(new), upload.UploadRange()
    ),
    "less of it": lambda conn, _new: volumes.resize(conn, "there", "base.raw", 512, shrink=True),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
@pytest.mark.parametrize(
    "needed", ["a guest based on it", "an image based on it", "a QEMU", "aside"]
)
def test_what_others_need_is_not_written_over(place, base, tmp_path, monkeypatch, write, needed):  # noqa: F811
    """A new image for a base that guests stand on, who happen to be off."""
    (tmp_path / "new").write_bytes(b"another image")
    words = ": {} needs it"
    with contextlib.ExitStack() as block:
        if needed == "a QEMU":
            block.enter_context(opened(place.base, "raw"))
            words = "base.raw in there: an unknown QEMU process has it open"
        elif needed == "aside":
            user = usage.StorageUser("web1 before it was replaced by b1")
            real = usage._UsageReader.retained_guests
            monkeypatch.setattr(
                usage._UsageReader, "retained_guests",
                lambda self: (real(self), self.usage.add(identity.keys_of(str(place.base)), user)),
            )  # fmt: skip
            words = words.format(user.name)
        else:
            create(place.above, place.base)
            if needed == "an image based on it":
                place.pool("other", place.above.parent, start=True)
                words = words.format(place.above)
            else:
                place.guest(disk(place.above))
                words = words.format("web1")
        with pytest.raises(errors.InvalidInput, match=re.escape(words)):
            write(place.conn, tmp_path / "new")
    assert base.info()[1] == place.base.stat().st_size


@pytest.mark.parametrize("how", ["file", "volume"])
def test_the_disk_of_a_guest_that_is_off_may_be_written_over(place, base, how):  # noqa: F811
    one = disk(place.base, "raw")
    place.guest(
        one if how == "file" else "<disk type='volume'><source pool='there' volume='base.raw'/>"
        "<target dev='vda'/></disk>"
    )  # fmt: skip
    volumes.refuse_written(place.conn, "there", base)
    place.conn.lookupByName("web1").create()
    with pytest.raises(errors.InvalidInput, match=r"base\.raw in there is open in web1: shut"):
        volumes.refuse_written(place.conn, "there", base)
    place.conn.lookupByName("web1").destroy()


class OnServer:
    """A volume of a pool that has a path of a server, as of Ceph."""

    def __init__(self, volume):
        self._volume = volume

    def __getattr__(self, name):
        return getattr(self._volume, name)

    def path(self):
        return "p/v"


def test_a_servers_volume_is_written_over_while_the_guest_that_has_it_is_off(place, base):  # noqa: F811
    place.guest(
        "<disk type='network'><source protocol='rbd' name='p/v'><host name='h'/></source>"
        "<target dev='vda'/></disk>"
    )
    with pytest.raises(errors.InvalidInput, match=r"other hosts may use it .* pass force=True"):
        volumes.refuse_written(place.conn, "there", OnServer(base))
    volumes.refuse_written(place.conn, "there", OnServer(base), force=True)
    place.conn.lookupByName("web1").create()
    with pytest.raises(errors.InvalidInput, match=r"base\.raw in there is open in web1: shut"):
        volumes.refuse_written(place.conn, "there", OnServer(base), force=True)
    place.conn.lookupByName("web1").destroy()


@pytest.mark.parametrize("named", ["by its device", "by one that is not there", None])
def test_a_volume_group_stays_that_has_a_disk_of_a_guest_by_another_name(
    place,  # noqa: F811
    monkeypatch,
    named,
):
    """As /dev/mapper/vg-web1, or while the group is not active and so has no devices."""
    monkeypatch.setattr(volumes, "refuse_shared", lambda conn, pool: None)
    monkeypatch.setattr(usage, "_GROUP_TYPES", ("disk",))  # of others libvirt chooses the folder
    group = place.root / "vg"
    group.mkdir()
    (group / "web1").symlink_to(place.base)
    pool = place.conn.storagePoolDefineXML(
        "<pool type='disk'><name>vg</name><source><device path='/dev/none'/></source>"
        f"<target><path>{group}</path></target></pool>", 0
    )  # fmt: skip
    words = "storage pool vg has volumes of web1"
    if named == "by its device":
        place.guest(disk(place.base, "raw"))
    elif named:
        place.guest(disk("/dev/mapper/none-web1", "raw"))
        words = "cannot delete storage pool vg: web1 uses /dev/mapper/none-web1"
    if named is None:
        assert volumes.delete_pool(place.conn, pool)
        return
    with pytest.raises(errors.InvalidInput, match=words):
        volumes.delete_pool(place.conn, pool)
