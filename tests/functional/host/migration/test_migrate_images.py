"""The images of thin disks during a migration: an incomplete one is never used."""

import contextlib
import os
import threading
import time
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest

pytest.importorskip("libvirt")

from saltvirt import errors
from saltvirt.host.migration import backing_images, same_content
from saltvirt.images import cache
from saltvirt.migration import storage
from saltvirt.migration.facts import BackingFile
from tests.clock import Clock, until

CONTENT = b"an image " * 4096


class Peer:
    """The target's files: {path: bytes}. libvirt makes a file for one who asks only."""

    def __init__(self):
        self.files, self.lock = {}, threading.Lock()
        self.same = []


class Target:
    """A migrate_prepare.Target that copies slowly, block by block."""

    def __init__(self, peer, pause_s=0.0):
        self.peer, self.pause_s, self.said, self.made = peer, pause_s, [], []
        self.looks = 0
        self.watch = self

    def check_abort(self):
        """Once in each turn of a wait."""
        self.looks += 1

    def report_step(self, text):
        self.said.append(text)

    def size(self, path):
        found = self.peer.files.get(path)
        return None if found is None else len(found)

    def create_file(self, path, kind="raw", size_bytes=0, backing=None):
        assert (kind, size_bytes, backing) == ("raw", 0, None)
        with self.peer.lock:
            if path in self.peer.files:
                raise errors.AlreadyExists(path)
            self.peer.files[path] = b""
        self.made.append(path)

    def copy(self, path, _mode=None, source=None):
        self.create_file(path)
        with open(source or path, "rb") as file:
            while block := file.read(4096):
                time.sleep(self.pause_s)
                self.peer.files[path] += block

    def retain(self, path):
        self.made.remove(path)

    def remove(self, path):
        del self.peer.files[path]
        self.made.remove(path)


@pytest.fixture
def base(tmp_path, monkeypatch):
    path = tmp_path / "debian.qcow2"
    path.write_bytes(CONTENT)
    clock = mock.Mock(monotonic=time.monotonic, sleep=lambda s: time.sleep(s / 50))
    monkeypatch.setattr(backing_images, "time", clock)
    monkeypatch.setattr(same_content, "remember", lambda peer, name: peer.same.append(name))
    monkeypatch.setattr(
        same_content, "equals_remote", lambda peer, name: peer.files[name] == path.read_bytes()
    )
    return BackingFile(str(path), "qcow2", file_bytes=len(CONTENT))


def test_two_at_once_copy_once_and_both_have_it_whole(base):
    peer, seen = Peer(), []

    def move(target):
        backing_images.transfer(target, base)
        seen.append(peer.files[base.path])

    class Copying(Target):
        def copy(self, path, mode=None, source=None):
            until(lambda: [one for one in targets if one.looks], "the other one waits")
            super().copy(path, mode, source)

    targets = [Copying(peer, 0.02), Copying(peer, 0.02)]
    threads = [threading.Thread(target=move, args=(target,)) for target in targets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert seen == [CONTENT, CONTENT]
    assert sorted(len(t.said) for t in targets) == [1, 1]
    assert list(peer.files) == [base.path]
    assert [t.made for t in targets] == [[], []]


@pytest.mark.parametrize("left", [True, False], ids=["with its turn", "without"])
def test_a_copy_that_has_died_is_not_taken_for_an_image(base, monkeypatch, left):
    monkeypatch.setattr(backing_images, "STALLED_S", 0.2)
    peer = Peer()
    peer.files[base.path] = CONTENT[:5000]
    if left:
        peer.files[storage.incoming_path(base.path)] = b""
    with pytest.raises(errors.MigrationFailed, match="incomplete and does not grow"):
        backing_images.transfer(Target(peer), base)


def test_what_was_copied_is_known_to_be_the_same_and_not_compared(base, monkeypatch):
    monkeypatch.setattr(same_content, "equals_remote", lambda *_: pytest.fail("it is compared"))
    peer = Peer()
    backing_images.transfer(Target(peer), base)
    assert (peer.files, peer.same) == ({base.path: CONTENT}, [base.path])


def test_a_copy_that_came_short_is_not_left_as_whole(base):
    class Short(Target):
        def copy(self, path, mode=None, source=None):
            super().copy(path, mode, source)
            self.peer.files[path] = CONTENT[:-1]

    target = Short(Peer())
    with pytest.raises(errors.MigrationFailed, match="changed during the copy"):
        backing_images.transfer(target, base)
    assert target.peer.same == [] and target.made == [
        storage.incoming_path(base.path),
        base.path,
    ]


def test_an_image_of_that_size_is_not_taken_while_its_turn_lasts(base, monkeypatch):
    """Who copies has not looked yet whether it came whole."""
    clock = Clock()
    monkeypatch.setattr(backing_images, "time", clock)
    turn = storage.incoming_path(base.path)

    class Waiting(Target):
        def check_abort(self):
            super().check_abort()
            if self.looks == 3:
                del self.peer.files[turn]

    target = Waiting(Peer())
    target.peer.files |= {base.path: CONTENT, turn: b""}
    backing_images.transfer(target, base)
    assert target.looks == 3 and clock.slept == [1, 1, 1]
    assert target.said == [f"waiting for the image {base.path}, which another migration is copying"]


@pytest.mark.parametrize("end_s, fails", [(60, False), (61, True)])
def test_a_copy_that_does_not_grow_for_a_minute_has_died(base, monkeypatch, end_s, fails):
    clock, turn = Clock(500), storage.incoming_path(base.path)
    monkeypatch.setattr(backing_images, "time", clock)

    class Waiting(Target):
        def check_abort(self):
            if clock.now >= 500 + end_s:
                self.peer.files = {base.path: CONTENT}

    target = Waiting(Peer())
    target.peer.files |= {base.path: CONTENT[:9], turn: b""}
    why = pytest.raises(errors.MigrationFailed) if fails else contextlib.nullcontext()
    with why:
        backing_images.transfer(target, base)
    assert clock.now == 561


def test_an_image_named_by_its_content_is_not_compared_and_its_record_comes_along(
    base, tmp_path, monkeypatch
):
    monkeypatch.setattr(same_content, "equals_remote", lambda *_: pytest.fail("it is compared"))
    name, records = "debian-0123456789abcdef.qcow2", tmp_path / "_base/.meta"
    records.mkdir(parents=True)
    image = records.parent / name
    image.write_bytes(CONTENT)
    for record in (None, records / f"{name}.json"):
        if record:
            record.write_text("{}")
        peer = Peer()
        peer.files[str(image)] = CONTENT
        backing_images.transfer(Target(peer), replace(base, path=str(image)))
        assert set(peer.files) == {str(image), *([str(record)] if record else [])}


def test_of_an_image_of_somebodys_own_no_record_comes(base):
    record = Path(base.path).parent / ".meta/debian.qcow2.json"
    record.parent.mkdir()
    record.write_text("{}")
    peer = Peer()
    backing_images.transfer(Target(peer), base)
    assert set(peer.files) == {base.path}


def test_another_image_of_that_size_that_has_come_meanwhile_is_noticed(base):
    peer = Peer()
    peer.files[base.path] = bytes(len(CONTENT))
    with pytest.raises(errors.MigrationFailed, match="another"):
        backing_images.transfer(Target(peer), base)
    assert peer.files[base.path] == bytes(len(CONTENT))


def test_an_image_that_somebody_writes_to_is_not_left_as_whole(base):
    class Changing(Target):
        def copy(self, path, mode=None, source=None):
            super().copy(path, mode, source)
            os.utime(path, (1, 1))

    target = Changing(Peer())
    with pytest.raises(errors.MigrationFailed, match="changed during the copy"):
        backing_images.transfer(target, base)
    assert target.made == [storage.incoming_path(base.path), base.path]  # both are taken back


def test_two_who_record_a_cached_image_at_once_do_not_hinder_each_other(base, tmp_path):
    name = "debian-0123456789abcdef.qcow2"
    image = tmp_path / "_base" / name
    (image.parent / ".meta").mkdir(parents=True)
    image.write_bytes(CONTENT)
    (image.parent / ".meta" / f"{name}.json").write_text("{}")

    peer, cached = Peer(), replace(base, path=str(image))
    for target in (Target(peer), Target(peer)):
        backing_images.transfer(target, cached)
        assert target.made == []
    assert len(peer.files) == 2


def test_no_guest_is_made_from_an_image_that_is_just_coming(base):
    coming = storage.incoming_path(base.path)
    with open(coming, "x", encoding="ascii"):
        pass
    with pytest.raises(errors.ImageError, match="being copied"):
        cache.fetch(base.path)


def test_an_image_that_another_has_copied_in_that_moment_is_taken_as_it_is(base):
    class Slower(Target):
        def copy(self, path, _mode=None, source=None):
            self.peer.files[path] = CONTENT
            raise errors.AlreadyExists(path)

    target = Slower(Peer())
    backing_images.transfer(target, base)
    assert target.peer.files == {base.path: CONTENT}, "its turn is over"
    assert target.made == [], "it is the other's"
