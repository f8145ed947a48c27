"""Files of a rolled back migration on its target: the target deletes them if they are unused."""

import json
import os

import pytest

libvirt = pytest.importorskip("libvirt")
pytest.importorskip("salt")

from saltvirt import errors
from saltvirt.fleet.answer import Answer, down
from saltvirt.host.domain import purge
from saltvirt.host.migration import (
    confirm,
    recovery,
    remote_storage,
    reservations,
    target_leftovers,
)
from saltvirt.host.storage import sharing, unchanged_disks, usage
from saltvirt.migration.facts import GuestReport
from saltvirt.migration.journal import TargetFiles
from saltvirt.operations.cluster import shared_storage_check
from saltvirt.operations.move import target_leftovers as cleaning
from saltvirt.system import bounded_io
from tests.functional.daemon import libvirtd  # noqa: F401
from tests.functional.host.storage.test_still_needed import opened, opens
from tests.functional.host.storage.test_usage import create, disk, place  # noqa: F401

LOGICAL = """<pool type='logical'><name>vg</name><source><name>vg</name>
<device path='/dev/nonexistent'/></source><target><path>/dev/vg</path></target></pool>"""
WEB1 = GuestReport(
    "web1", "6f3c7a4e-62c7-4d5f-8f0e-0d8f0b6c9b11", "hv1", False, "shutdown", memory_kib=1024
)
CHANGED = "it was changed since the migration left it"


@pytest.fixture
def here(place, tmp_path, monkeypatch):  # noqa: F811
    """The target: a Place, whose ``base`` a migration of web1 to here has left."""
    monkeypatch.setattr(target_leftovers, "FOLDER", str(tmp_path / "target_leftovers"))
    monkeypatch.setattr(reservations, "FOLDER", str(tmp_path / "reservations"))
    monkeypatch.setattr(sharing, "sharing_reason", lambda path: None)
    (tmp_path / "target_leftovers").mkdir()
    place.note = lambda *paths, **more: note(place, *paths, **more)
    place.clean = lambda **more: target_leftovers.clean(place.conn, "web1", **more)
    place.shows = lambda: place.clean()[1].get(str(place.base), "")
    return place


def note(place, *paths, file="web1~0", images=(), **more):  # noqa: F811
    """Writes what the source would."""
    paths = list(map(str, paths or [place.base]))
    files = {path: look(path) for path in paths}
    told = {"name": "web1", "files": files, "folders": [], "images": [*map(str, images)], **more}
    path = os.path.join(target_leftovers.FOLDER, file)
    with open(path, "w", encoding="utf-8") as written:
        json.dump(told, written)
    return path


def look(path):
    seen = os.stat(path)
    return [seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns]


def test_what_nobody_uses_goes_and_its_note_with_it(here):
    folder = here.root / "made"
    folder.mkdir()
    own = folder / "web1_vda"
    own.write_bytes(b"half")
    path = here.note(here.base, own, folders=[str(folder)])
    assert target_leftovers.names() == ["web1"]
    assert here.clean() == ([str(here.base), str(own)], {})
    assert not here.base.exists()
    assert not folder.exists()
    assert not os.path.exists(path)
    assert here.clean() == ([], {})


def test_it_is_not_deleted_while_a_qemu_has_it_open(here):
    """One that no libvirt knows."""
    path = here.note()
    with opened(here.base, "raw"):
        assert "has it open" in here.shows()
    assert here.base.exists()
    assert os.path.exists(path), "it is looked at again"
    here.clean()
    assert not here.base.exists()


@pytest.mark.parametrize("how", [[], ["-r"]], ids=["to write", "to read"])
def test_no_qemu_opens_it_between_the_question_and_its_deletion(here, monkeypatch, how):
    here.note()
    real, said = purge.delete_storage, []

    def late(conn, path):
        said.append(opens(path, *how))
        real(conn, path)

    monkeypatch.setattr(purge, "delete_storage", late)
    here.clean()
    assert "lock" in said[0]
    assert not here.base.exists()


def test_a_qemu_that_was_quicker_than_the_lock_keeps_it(here, monkeypatch):
    """It opens the file after it was found unused, before it is held."""
    here.note()
    real, users = unchanged_disks.prevent_open, []

    def late(path):
        users.append(opened(path, "raw"))
        users[-1].__enter__()
        return real(path)

    monkeypatch.setattr(unchanged_disks, "prevent_open", late)
    try:
        assert "has it open" in here.shows()
    finally:
        users[0].__exit__(None, None, None)
    assert here.base.exists()


def test_a_guest_here_keeps_it(here):
    here.note()
    here.guest(disk(here.base, "raw"), name="db1")
    assert here.shows() == "used by db1"
    assert here.base.exists()


def test_an_image_that_stands_on_it_keeps_it(here):
    here.note()
    create(here.base.parent / "other.qcow2", here.base)
    assert "other.qcow2" in here.shows()
    assert here.base.exists()


def test_a_doubt_keeps_it(here):
    here.note()
    create(here.above, here.root / "images" / "gone.qcow2", "qcow2")
    here.guest(disk(here.above), name="db1")
    assert "cannot be proven" in here.shows()
    assert here.base.exists()


@pytest.mark.parametrize("how", ["written", "replaced", "longer", "linked", "a folder"])
def test_what_was_changed_since_is_somebodys(here, how):
    other = here.root / "other" / "mine"
    path = here.note()
    before = here.base.stat()
    if how == "written":
        with here.base.open("r+b") as file:
            file.write(b"x")
        os.utime(here.base, ns=(before.st_atime_ns, before.st_mtime_ns))
    elif how == "longer":
        with here.base.open("ab") as file:
            file.write(b"x")
    else:
        here.base.rename(other)
        if how == "replaced":
            here.base.write_bytes(other.read_bytes())
            os.utime(here.base, ns=(before.st_atime_ns, before.st_mtime_ns))
        elif how == "linked":
            here.base.symlink_to(other)
        else:
            here.base.mkdir()
    todo = target_leftovers.plan(here.conn, "web1")
    assert (todo.delete, list(todo.keep)) == ([], [str(here.base)])
    assert here.shows().startswith(CHANGED)
    assert here.base.exists()
    assert os.path.exists(path)


def test_what_is_changed_at_the_last_moment_stays(here, monkeypatch):
    here.note()
    real = usage.prevent_open

    def late(conn, paths):
        here.base.write_bytes(b"somebody else's")
        return real(conn, paths)

    monkeypatch.setattr(usage, "prevent_open", late)
    assert here.shows().startswith(CHANGED)
    assert here.base.read_bytes() == b"somebody else's"


def test_what_is_said_to_be_deleted_is(here, monkeypatch):
    path = here.note()
    monkeypatch.setattr(purge, "delete_storage", lambda conn, path: None)
    assert here.clean() == ([], {str(here.base): "it still exists"})
    assert os.path.exists(path)


def test_what_could_not_be_deleted_stays_with_the_reason(here, monkeypatch):
    path = here.note()

    def refused(conn, path):
        raise errors.OperationFailed("it is not to be")

    monkeypatch.setattr(purge, "delete_storage", refused)
    assert here.clean() == ([], {str(here.base): "it is not to be"})
    assert os.path.exists(path)


def test_what_other_hosts_may_have_is_for_them_to_say(here, monkeypatch):
    here.note()
    monkeypatch.setattr(sharing, "sharing_reason", lambda path: "nfs at /data")
    todo = target_leftovers.plan(here.conn, "web1")
    assert (todo.delete, list(todo.shared)) == ([], [str(here.base)])
    assert "other hosts may use it" in here.shows()
    assert here.base.exists()
    assert here.clean(unused=[str(here.base)]) == ([str(here.base)], {})


def test_a_disk_that_a_guest_left_here_is_for_other_hosts_to_say_too(here, monkeypatch):
    """The source's own, on storage that others may have: the runner asks them afterwards."""
    monkeypatch.setattr(sharing, "sharing_reason", lambda path: "nfs at /data")
    report = WEB1
    os.rmdir(target_leftovers.FOLDER)
    for _ in range(2):
        deleted, kept = confirm.remove_source(here.conn, report, [str(here.base)])
        assert (deleted, list(kept)) == ([], [str(here.base)])
    assert len(os.listdir(target_leftovers.FOLDER)) == 1
    assert "other hosts may use it" in here.shows()
    assert here.clean(unused=[str(here.base)]) == ([str(here.base)], {})


def test_two_notes_on_one_guest_are_two(here):
    os.rmdir(target_leftovers.FOLDER)
    second = here.root / "data" / "second"
    second.touch()
    for paths in ([here.base], [second], [second, here.root / "gone"]):
        target_leftovers.record_local("web1", list(map(str, paths)))
    assert os.stat(target_leftovers.FOLDER).st_mode & 0o777 == 0o700
    found = [note.files for _, note in target_leftovers._notes()]
    assert sorted(map(list, found)) == sorted([[str(here.base)], [str(second)]])
    assert look(second) in [note.get(str(second)) for note in found]


def test_where_it_cannot_be_noted_the_move_stands(here, monkeypatch, tmp_path):
    monkeypatch.setattr(sharing, "sharing_reason", lambda path: "nfs at /data")
    monkeypatch.setattr(target_leftovers, "FOLDER", str(tmp_path / "a file" / "target_leftovers"))
    (tmp_path / "a file").touch()
    report = WEB1
    _, kept = confirm.remove_source(here.conn, report, [str(here.base)])
    assert "it could not be recorded" in kept[str(here.base)]


def test_what_a_guest_here_uses_is_not_noted(here):
    here.guest(disk(here.base, "raw"), name="db1")
    report = WEB1
    confirm.remove_source(here.conn, report, [str(here.base)])
    assert target_leftovers.names() == []


def test_one_of_two_goes_and_the_note_keeps_the_other(here):
    second = here.root / "data" / "second"
    second.write_bytes(b"2")
    path = here.note(here.base, second)
    here.guest(disk(second, "raw"), name="db1")
    assert here.clean() == ([str(here.base)], {str(second): "used by db1"})
    with open(path, encoding="utf-8") as file:
        assert list(json.load(file)["files"]) == [str(second)]


def test_what_is_gone_already_ends_its_note(here):
    path = here.note()
    here.base.unlink()
    assert target_leftovers.plan(here.conn, "web1").keep == {}
    assert here.clean() == ([], {})
    assert not os.path.exists(path)


def test_what_is_left_of_another_guest_stays(here):
    second = here.root / "data" / "second"
    second.write_bytes(b"2")
    here.note()
    path = here.note(second, file="db1~0", name="db1")
    assert target_leftovers.names() == ["db1", "web1"]
    assert here.clean() == ([str(here.base)], {})
    assert second.exists()
    assert os.path.exists(path)
    assert target_leftovers.plan(here.conn, "web") is None


def test_a_note_is_a_file(here):
    path = here.note()
    with open(path, "rb") as file:
        text = file.read()
    os.unlink(path)
    os.mkfifo(path)
    pipe = os.open(path, os.O_RDWR)
    os.write(pipe, text)
    assert target_leftovers.names() == []
    os.close(pipe)


@pytest.fixture
def image(here):
    """A half copied image, and the file that says that it is not whole."""
    turn = here.base.with_name(f".{here.base.name}.coming")
    turn.touch()
    here.note(turn, here.base, images=[here.base])
    return turn


def test_an_image_goes_before_the_file_that_says_that_it_is_not_whole(here, image):
    assert here.clean() == ([str(here.base), str(image)], {})


def test_that_file_stays_with_the_image(here, image, monkeypatch):
    here.guest(disk(here.base, "raw"), name="db1")
    assert set(target_leftovers.plan(here.conn, "web1").keep) == {str(here.base), str(image)}
    assert set(here.clean()[1]) == {str(here.base), str(image)}
    here.conn.lookupByName("db1").undefine()
    real = target_leftovers._delete

    def deleted(conn, path):
        return "it is open" if path == str(here.base) else real(conn, path)

    monkeypatch.setattr(target_leftovers, "_delete", deleted)
    assert set(here.clean()[1]) == {str(here.base), str(image)}
    assert image.exists()


def test_an_image_that_others_may_take_for_whole_stays(here, image):
    own = here.root / "data" / "web1_vda"
    own.touch()
    here.note(own, file="web1~1")
    image.unlink()
    deleted, kept = here.clean()
    assert "other guests may use it as a complete image" in kept.pop(str(here.base))
    assert here.base.exists()
    assert (deleted, kept) == ([str(own)], {}), "what is no image goes"


def test_nothing_goes_while_the_guest_is_on_its_way_again(here):
    here.note()
    mine = reservations.reservation_path(WEB1, [])
    os.makedirs(reservations.FOLDER)
    with open(mine, "wb"):
        pass
    with pytest.raises(errors.OperationFailed, match="being migrated to this host again"):
        here.clean()
    assert here.base.exists()
    here.guest(name="web1")
    assert target_leftovers.plan(here.conn, "web1").delete == [str(here.base)], "it has come"
    here.conn.lookupByName("web1").undefine()
    os.unlink(mine)
    assert here.clean()[0] == [str(here.base)]


def test_what_cannot_be_looked_at_stays(here, monkeypatch):
    here.note()
    real = bounded_io.stat

    def stat(path):
        if path == str(here.base):
            raise bounded_io.StorageTimeout("/data")
        return real(path)

    monkeypatch.setattr(bounded_io, "stat", stat)
    assert (
        target_leftovers.plan(here.conn, "web1")
        .keep[str(here.base)]
        .startswith("it cannot be inspected")
    )
    assert here.base.exists()


def test_a_volume_is_known_by_its_key(here, monkeypatch):
    pool = here.conn.storagePoolDefineXML(LOGICAL, 0)
    pool.create(0)
    volume = pool.createXML("<volume><name>v</name><capacity>1024</capacity></volume>", 0)
    path, key = volume.path(), volume.key()
    monkeypatch.setattr(usage, "is_there", lambda conn, path: bool(pool.listVolumes()))
    note, told = here.note(), {"name": "web1", "folders": [], "images": []}
    for look, gone in ((f"{key}x", False), (key, True)):
        with open(note, "w", encoding="utf-8") as file:
            json.dump({**told, "files": {path: look}}, file)
        assert target_leftovers.plan(here.conn, "web1").delete == [path] * gone
    assert here.clean() == ([path], {})
    assert pool.listVolumes() == []


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("web1~0", '{"name": "web1", "fil'),
        ("web1~0", "[]"),
        ("web1~0", "[1]"),
        ("web1~0", '{"name": 1, "files": {"BASE": []}, "folders": [], "images": []}'),
        ("web1~0", '{"files": {"BASE": []}, "folders": [], "images": []}'),
        ("web1~0", '{"name": "web1", "files": {"BASE": []}, "folders": {}, "images": []}'),
        ("web1~0", '{"name": "web1", "files": {"BASE": []}, "folders": [], "images": {}}'),
        ("web1~0", '{"name": "web1", "files": {"BASE": []}, "folders": ["x"], "images": []}'),
        ("web1~0", '{"name": "web1", "files": {"BASE": []}, "folders": [], "images": ["x"]}'),
        ("web1~0", '{"name": "web1", "files": {"BASE": []}, "folders": [1], "images": []}'),
        ("web1~0", '{"name": "db1", "files": {"BASE": []}, "folders": [], "images": []}'),
        ("web1~0", '{"name": "web1", "files": ["BASE"], "folders": [], "images": []}'),
        ("web1~0", '{"name": "web1", "files": {"BASE/../x": []}, "folders": [], "images": []}'),
        ("web1~0", '{"name": "web1", "files": {"x": []}, "folders": [], "images": []}'),
        ("web1~0", '{"name": "web1", "files": {"BASE": {}}, "folders": [1], "images": []}'),
        ("web1", '{"name": "web1", "files": {"BASE": []}, "folders": [], "images": []}'),
        ("~0", '{"name": "", "files": {"BASE": []}, "folders": [], "images": []}'),
        ("web1~0", "[" * 100000),
    ],
)
def test_what_is_no_note_is_no_order(here, file, text, caplog):
    caplog.set_level("INFO", target_leftovers.log.name)
    with open(os.path.join(target_leftovers.FOLDER, file), "w", encoding="utf-8") as written:
        written.write(text.replace("BASE", str(here.base)))
    away = note(here, file="../web1~1")
    os.symlink(away, os.path.join(target_leftovers.FOLDER, "web1~1"))
    os.mkfifo(os.path.join(target_leftovers.FOLDER, "web1~2"))
    os.mkdir(os.path.join(target_leftovers.FOLDER, "web1~3"))
    assert target_leftovers.names() == []
    assert here.clean() == ([], {})
    assert here.base.exists()
    assert "web1~2 is not a complete record of a migration" in caplog.messages


class Cloud:
    """Hosts of which hv2 has a note."""

    def __init__(self, *answers, kept=None):
        self.answers, self.opts = {answer.host: answer for answer in answers}, {}
        self.kept, self.asked = kept or {}, []

    def hosts(self, only=None):
        return ["hv2", *self.answers]

    def ask(self, hosts, function, kwarg=None, **_options):
        if function == "virt.migrate_locations":
            yield Answer("hv2", {"guests": {}, "unfinished": [], "target_leftovers": ["web1"]})
        else:
            yield from (self.answers[host] for host in hosts)

    def call(self, host, function, kwarg=None, **_options):
        self.asked.append((host, function, kwarg))
        if kwarg.get("test"):
            return {"delete": [], "keep": {"/nfs/a": "?"}, "shared": {"/nfs/a": {"path": "/nfs/a"}}}
        gone = kwarg["unused"]
        return {"deleted": gone, "retained": {} if gone else {"/nfs/a": "other hosts may use it"}}


@pytest.fixture
def no_master(monkeypatch):
    monkeypatch.setattr(shared_storage_check, "unmatched", lambda opts, hosts: {})


@pytest.mark.usefixtures("no_master")
def test_the_runner_asks_all_hosts_and_hands_over_what_they_said():
    cloud = Cloud(Answer("hv3", {"/nfs/a": None}))
    assert cleaning.clean_everywhere(cloud, "web1") == (["/nfs/a"], {}, {})
    asked = {"vm_": "web1", "unused": ["/nfs/a"]}
    assert cloud.asked[-1] == ("hv2", "virt.migrate_clean", asked)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (down("hv3"), "hv3: down"),
        (Answer("hv3", {"/nfs/a": "used by db1"}), "hv3: used by db1"),
        (Answer("hv3", {}), "hv3: its answer does not include the path"),
    ],
)
@pytest.mark.usefixtures("no_master")
def test_silence_and_doubt_keep_it_and_name_it(answer, words):
    gone, kept, left = cleaning.clean_everywhere(Cloud(answer), "web1")
    assert gone == []
    assert words in kept["/nfs/a"]
    assert words in left["hv2"]
    said = cleaning.after_failure(Cloud(answer), "hv2", "web1")
    assert "/nfs/a stays" in said
    assert "salt-run virt.migrate_recover web1" in said


@pytest.fixture
def target(libvirtd, tmp_path, monkeypatch):  # noqa: F811
    """The connection to a real libvirtd, which is the other host's."""
    monkeypatch.setattr(target_leftovers, "FOLDER", str(tmp_path / "target_leftovers"))
    monkeypatch.setattr(reservations, "FOLDER", str(tmp_path / "reservations"))
    monkeypatch.setattr(sharing, "sharing_reason", lambda path: None)
    conn = libvirt.open(libvirtd.uri)
    yield conn
    conn.close()


def test_from_the_source_to_the_last_file(target, tmp_path):
    """All that a migration makes, handed over by libvirt and taken away by the target."""
    folder, folder_made = tmp_path / "vm", tmp_path / "made"
    folder.mkdir()
    folder_made.mkdir()
    paths = [str(folder / "web1_vda"), str(folder_made / "web1_vdb")]
    reservation = reservations.reservation_path(WEB1, [])
    with remote_storage.open_pool(target, str(folder)) as pool:
        remote_storage.create(pool, paths[0], "qcow2", 2**20)
        making = remote_storage.sign(pool, str(folder / "web1_vdc"))
        remote_storage.claim(pool, making, "0600")
    with remote_storage.open_pool(target, str(folder_made)) as pool:
        remote_storage.create(pool, paths[1], "raw", 2**20)
    with remote_storage.open_pool(target, reservations.FOLDER, create=True) as pool:
        remote_storage.create(pool, reservation, "raw", 0)
    made = TargetFiles("web1", (reservation, *paths, f"{folder}/none"), making, (str(folder_made),))
    for _ in range(2):  # killed between the note and the end of its journal
        gone, kept = recovery.undo_target(target, made)
        assert set(kept) == {*paths, making.path}
        assert all("salt-run virt.migrate_recover web1" in why for why in kept.values())
        assert len(os.listdir(target_leftovers.FOLDER)) == 1
    assert not os.path.exists(reservation)
    assert target_leftovers.names() == ["web1"]
    gone, kept = target_leftovers.clean(target, "web1")
    assert (sorted(gone), kept) == (sorted([*paths, making.path]), {})
    assert (os.listdir(folder), folder_made.exists()) == ([], False)
    assert os.listdir(target_leftovers.FOLDER) == []
    assert recovery.undo_target(target, made) == ([], {}), "nothing is there: no note"
    assert os.listdir(target_leftovers.FOLDER) == []


def handed_over():
    """The files of the one note that there is; none without one."""
    for file in (
        os.listdir(target_leftovers.FOLDER) if os.path.isdir(target_leftovers.FOLDER) else ()
    ):
        with open(os.path.join(target_leftovers.FOLDER, file), encoding="utf-8") as note:
            return sorted(json.load(note)["files"])
    return []


def test_what_was_written_to_since_its_copy_is_handed_over_by_nobody(target, tmp_path):
    """Whoever did may have the newer content; and a reservation is no file of the guest."""
    newer, same, gone = (str(tmp_path / name) for name in ("newer", "same", "gone"))
    reservation = reservations.reservation_path(WEB1, [])
    os.makedirs(reservations.FOLDER)
    for path in (newer, same, gone, reservation):
        with open(path, "wb"):
            pass
    looks = {path: remote_storage.fingerprint(target, path) for path in (newer, same, gone)}
    os.unlink(gone)
    with open(newer, "wb") as file:
        file.write(b"newer")
    made = TargetFiles("web1", (reservation, newer, same, gone), fingerprints=looks)
    assert target_leftovers.written_since(target, made) == [newer]
    kept = target_leftovers.hand_over(target, made)
    assert (handed_over(), set(kept)) == ([same], {newer, same})
    assert target_leftovers.NEWER in kept[newer]
    assert "salt-run virt.migrate_recover web1" in kept[same]


def test_two_attempts_that_died_at_different_files_are_noted_both(target, tmp_path):
    with remote_storage.open_pool(target, str(tmp_path)) as pool:
        both = [remote_storage.sign(pool, str(tmp_path / name)) for name in ("first", "second")]
        for making in both:
            remote_storage.claim(pool, making, "0600")
    for making in both:
        target_leftovers.hand_over(target, TargetFiles("web1", making=making))
    gone, kept = target_leftovers.clean(target, "web1")
    assert (sorted(gone), kept) == ([making.path for making in both], {})


def test_what_somebody_put_in_the_way_is_named_and_handed_over_by_nobody(target, tmp_path):
    path = str(tmp_path / "a")
    with remote_storage.open_pool(target, str(tmp_path)) as pool:
        making = remote_storage.sign(pool, path)
    made = TargetFiles("web1", making=making, folders=(str(tmp_path / "empty"),))
    os.mkdir(tmp_path / "empty")
    with open(path, "wb") as file:
        file.write(b"theirs")
    kept = target_leftovers.hand_over(target, made)
    assert (handed_over(), list(kept)) == ([], [path])
    assert "not the file that" in kept[path]
    assert not (tmp_path / "empty").exists(), "its folders go at once"
    os.unlink(path)
    assert target_leftovers.hand_over(target, made) == {}


def test_a_half_copied_image_is_handed_over_as_one(target, tmp_path):
    image, turn = tmp_path / "debian.qcow2", tmp_path / ".debian.qcow2.coming"
    for path in (turn, image):
        path.touch()
    made = TargetFiles("web1", (str(turn), str(image)))
    recovery.undo_target(target, made)
    turn.unlink()
    assert "a complete image" in target_leftovers.clean(target, "web1")[1][str(image)]


def test_a_look_by_libvirt_is_a_look_by_the_host(target, tmp_path):
    path = tmp_path / "a"
    for when in (1_700_000_000_000_000_000, 1_700_000_000_000_000_001, 1_700_000_000_900_000_000):
        path.write_bytes(b"abc")
        os.utime(path, ns=(when, when))
        assert remote_storage.fingerprint(target, str(path)) == look(path)
    assert remote_storage.fingerprint(target, str(tmp_path / "none")) is None


DOMAIN = """<domain type='qemu'><name>web1</name><memory>65536</memory>
<os><type arch='x86_64'>hvm</type></os></domain>"""
SNAPSHOT = """<domainsnapshot><name>s1</name><state>shutoff</state><creationTime>1</creationTime>
{}</domainsnapshot>"""


@pytest.mark.parametrize("snapshots", [0, 2])
def test_a_copy_that_came_with_snapshots_is_ended_too(target, snapshots):
    dom = target.defineXML(DOMAIN)
    for number in range(snapshots):
        text = SNAPSHOT.format(dom.XMLDesc(0)).replace("s1", f"s{number}")
        dom.snapshotCreateXML(text, libvirt.VIR_DOMAIN_SNAPSHOT_CREATE_REDEFINE)
    recovery._end(dom, None)
    assert target.listAllDomains() == []


def test_an_error_at_its_end_is_one(target):
    """It is still defined there: its files are not given up."""
    dom = target.defineXML(DOMAIN)

    class Locked:
        def __getattr__(self, name):
            return getattr(dom, name)

        def undefineFlags(self, _flags):
            raise libvirt.libvirtError("cannot acquire state change lock")

    with pytest.raises(libvirt.libvirtError, match="state change lock"):
        recovery._end(Locked(), None)
    dom.undefine()
