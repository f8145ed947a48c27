"""The records of the image cache, and the removal of images, with files only."""

import os
import stat
import time
from types import SimpleNamespace

import pytest

pytest.importorskip("libvirt")
pytest.importorskip("salt")

from saltvirt import errors
from saltvirt.host.storage import image_users, sharing
from saltvirt.images import cache
from saltvirt.system import bounded_io, file_lock
from tests.functional.host.storage.test_usage import GUEST, create, disk

SOURCE = "salt://debian.raw"


@pytest.fixture
def store(tmp_path):
    """The folder of a cache with one image, which is 4 KiB long."""
    found = cache._Folder(tmp_path / "images")
    found.make()
    found.images = str(tmp_path / "images")
    add(found, "debian-0.raw", b"x" * 4096, SOURCE)
    return found


def add(store, name, data, source):
    with open(store.path(name), "wb") as file:
        file.write(data)
    sums = {"sha256": "a" * 64, "sha1": "b" * 40}
    meta = {"file": name, "format": "raw", "size_bytes": len(data), "sums": sums, "source": source}
    meta["fetched"] = 9
    store.write(meta, ".meta", f"{name}.json")
    store.write({"version": {"v": 1}, "file": name}, ".index", f"{cache.key(source)}.json")
    return meta


def mode(path):
    return stat.S_IMODE(os.stat(path).st_mode)


def test_guests_may_read_the_images_and_nothing_beside_them(tmp_path):
    before = os.umask(0)
    try:
        store = cache._Folder(tmp_path / "images")
        store.make()
        store.make()
    finally:
        os.umask(before)
    assert mode(store.base) == 0o755
    inner = [".index", ".locks", ".meta", ".partial"]
    assert sorted(os.listdir(store.base)) == inner
    assert [mode(store.path(name)) for name in inner] == [0o700] * 4


def _odd(*_given, **_more):
    raise OSError("odd")


def test_an_error_without_the_systems_words_is_told_by_its_own(store, monkeypatch):
    why = pytest.raises(errors.ImageError, match="cannot read salt://a: odd")
    with why, cache._translate_errors("salt://a"):
        _odd()
    monkeypatch.setattr(cache.storage, "open_for_reading", _odd)
    with pytest.raises(errors.ImageError, match="cannot read the list of hashes /a: odd"):
        cache._read_list("/a")
    monkeypatch.setattr(cache, "_shared", _odd)
    with pytest.raises(errors.ImageError, match=r"cannot fetch http://a/b to .*: odd"):
        cache.fetch("http://a/b", store.images)


def test_what_is_no_note_is_none(store):
    with open(store.path(".meta", "debian-0.raw.json"), "w", encoding="utf-8") as file:
        file.write("{")
    assert store.read(".meta", "debian-0.raw.json") is None
    assert store.read(".meta", "none.json") is None
    os.mkfifo(store.path(".meta", "pipe.json"))
    assert store.read(".meta", "pipe.json") is None
    assert list(cache.cached_images(store.images)) == []
    with open(store.path(".meta", "debian-0.raw.json"), "w", encoding="utf-8") as file:
        file.write(" " * cache._MAX_NOTE_BYTES + "{}")
    assert store.read(".meta", "debian-0.raw.json") is None


def test_an_address_has_a_name_of_its_own():
    assert cache.key(SOURCE) != cache.key("salt://debian.raw2")
    assert cache._KEY.fullmatch(cache.key(SOURCE))
    assert cache._KEY.fullmatch(cache.key("salt://\udcff"))


def test_known_is_what_is_whole(store):
    second = add(store, "alpine-0.raw", b"", "salt://alpine.raw")
    os.mkdir(store.path("folder.raw"))
    store.write({}, ".meta", "folder.raw.json")
    add(store, ".hidden", b"x", "salt://hidden")
    add(store, "gone.raw", b"x", "salt://gone")
    os.unlink(store.path("gone.raw"))
    with open(store.path("mine.raw"), "wb"):
        pass
    found = list(cache.cached_images(store.images))
    assert [one.file for one in found] == ["alpine-0.raw", "debian-0.raw"]
    assert found[0] == cache.ImageNote(**second, path=store.path("alpine-0.raw"))
    assert cache.cached_size_bytes("salt://gone", store.images) is None


def test_of_no_cache_nothing_is_known(tmp_path, monkeypatch):
    assert list(cache.cached_images(tmp_path / "none")) == []
    (tmp_path / "_base").touch()
    assert list(cache.cached_images(tmp_path)) == []

    def silent(folder):
        raise bounded_io.StorageTimeout(folder)

    monkeypatch.setattr(bounded_io, "names", silent)
    with pytest.raises(errors.OperationFailed, match=r"cannot list .*_base"):
        list(cache.cached_images(tmp_path))


def test_an_image_is_here_without_anybody_asked(store, tmp_path):
    assert cache.cached_size_bytes(SOURCE, store.images) == 4096
    assert cache.cached_size_bytes("salt://none.raw", store.images) is None
    assert cache.cached_size_bytes(SOURCE, tmp_path / "none") is None
    os.unlink(store.path("debian-0.raw"))
    assert cache.cached_size_bytes(SOURCE, store.images) is None


def master(version):
    return SimpleNamespace(version=lambda source: version)


def test_only_the_version_that_is_asked_for_is_found_and_to_look_is_no_use(store):
    note = store.path(".meta", "debian-0.raw.json")
    os.utime(note, (1000, 1000))
    nobody = SimpleNamespace(version=None)  # with a hash no one is asked
    found = cache.find_local(SOURCE, store.images, master({"v": 1}))
    assert (found.path, found.format) == (store.path("debian-0.raw"), "raw")
    assert (found.virtual_size_bytes, found.sha256, found.source) == (4096, "a" * 64, SOURCE)
    assert cache.find_local(SOURCE, store.images, master({"v": 2})) is None
    assert cache.find_local("salt://none.raw", store.images, master({"v": 1})) is None
    assert cache.find_local(SOURCE, store.images, nobody, f"sha256={'a' * 64}") == found
    assert cache.find_local(SOURCE, store.images, master({"v": 1}), f"sha256={'c' * 64}") is None
    assert cache.find_local(SOURCE, store.images, master({"v": 1}), f"sha512={'c' * 128}") is None
    assert cache.used(store.images, "debian-0.raw") == 1000


def test_a_file_of_the_host_is_used_where_it_lies(store, tmp_path):
    mine = create(tmp_path / "mine.qcow2")
    whole = (8 * 1024**2, None)
    for asked in (cache.find_local, cache.fetch):
        found = asked(str(mine), store.images)
        assert (found.path, found.format, found.source) == (str(mine), "qcow2", str(mine))
        assert (found.virtual_size_bytes, found.sha256) == whole
    assert cache.cached_size_bytes(str(mine), store.images) == whole[0]
    for ask in (cache.find_local, cache.cached_size_bytes, cache.fetch):
        with pytest.raises(errors.NotFound, match=r"none\.raw does not exist"):
            ask(str(tmp_path / "none.raw"), store.images)


def test_a_volume_is_used_where_it_lies_by_the_format_that_is_declared(store, tmp_path):
    mine = create(tmp_path / "mine.qcow2")
    whole = -(-os.path.getsize(mine) // 512) * 512
    place = cache.ImageFile(str(mine), "raw")
    for asked in (cache.find_local, cache.fetch):
        found = asked("pool://there/mine", store.images, local_file=place)
        assert (found.path, found.format, found.source) == (str(mine), "raw", "pool://there/mine")
        assert found.virtual_size_bytes == whole
    assert cache.cached_size_bytes("pool://there/mine", store.images, place) == whole


def test_a_cache_that_cannot_be_read_is_one_line(store, tmp_path):
    (tmp_path / "_base").touch()
    for ask in (cache.find_local, cache.cached_size_bytes):
        with pytest.raises(errors.ImageError, match=f"cannot read {SOURCE}: Not a directory"):
            ask(*([SOURCE, tmp_path, master({"v": 1})][: 3 if ask is cache.find_local else 2]))


def test_who_is_given_an_image_uses_it(store):
    note = store.path(".meta", "debian-0.raw.json")
    for image_hash in (None, f"sha256={'a' * 64}"):
        os.utime(note, (1000, 1000))
        cache.fetch(SOURCE, store.images, master({"v": 1}), image_hash)
        assert cache.used(store.images, "debian-0.raw") > 1000
    assert cache.used(store.images, "none.raw") is None


def test_an_image_goes_with_what_is_known_of_it(store):
    cache.forget(store.images, "debian-0.raw")
    assert os.listdir(store.path(".meta")) == []
    assert not os.path.exists(store.path("debian-0.raw"))
    cache.forget(store.images, "debian-0.raw")
    add(store, "debian-0.raw", b"x", SOURCE)
    os.unlink(store.path("debian-0.raw"))
    cache.forget(store.images, "debian-0.raw")
    assert os.listdir(store.path(".meta")) == [], "a note of nothing"


KEYS = {name: cache.key(name) for name in ("left", "young", "half young", "noted", "busy")}


@pytest.fixture
def parts(store, monkeypatch):
    """Downloads that were broken off, at a second that is fixed."""
    now = int(time.time())
    old, young = now - cache.PARTIAL_LIFETIME_S - 1, now - cache.PARTIAL_LIFETIME_S
    monkeypatch.setattr(cache, "time", SimpleNamespace(time=lambda: now))

    def part(name, when):
        path = store.path(".partial", name)
        with open(path, "wb"):
            pass
        os.utime(path, (when, when))

    for name, when, noted in (
        ("left", old, old), ("young", young, young), ("half young", old, young),
        ("noted", None, old), ("busy", old, old),
    ):  # fmt: skip
        if when:
            part(KEYS[name], when)
        part(f"{KEYS[name]}.json", noted)
    part("notes", old)
    part(KEYS["left"][:-1], old)
    part(KEYS["left"] + "x", old)
    return store


def test_downloads_go_that_nobody_goes_on_with(parts):
    with file_lock.exclusive(parts.path(".locks", KEYS["busy"])):
        gone = cache.forget_partial(parts.images)
    assert sorted(gone) == sorted(f".partial/{KEYS[name]}" for name in ("left", "noted"))
    left = set(os.listdir(parts.path(".partial")))
    assert {name for name, key in KEYS.items() if key in left or f"{key}.json" in left} == {
        "young", "half young", "busy"
    }  # fmt: skip
    assert {"notes", KEYS["left"][:-1], KEYS["left"] + "x"} <= left
    assert cache.forget_partial(parts.images) == [f".partial/{KEYS['busy']}"]


def test_a_download_that_is_gone_on_with_in_this_moment_stays(parts, monkeypatch):
    """Whoever held the lock before has just written to it."""
    real = file_lock.exclusive

    def exclusive(path, **more):
        name = os.path.basename(path)
        os.utime(parts.path(".partial", f"{name}.json"))
        return real(path, **more)

    monkeypatch.setattr(file_lock, "exclusive", exclusive)
    assert cache.forget_partial(parts.images) == []
    assert KEYS["left"] in os.listdir(parts.path(".partial"))


def test_without_downloads_nothing_goes(tmp_path):
    assert cache.forget_partial(tmp_path / "none") == []
    assert cache._is_old(str(tmp_path / "none")) is False


# -- what goes from it --------------------------------------------------------------------


@pytest.fixture
def host(store, conn, monkeypatch):
    """The cache of a host without guests; its image was given to nobody for long."""
    old = time.time() - image_users.GRACE_S - 60
    os.utime(store.path(".meta", "debian-0.raw.json"), (old, old))
    monkeypatch.setattr(sharing, "sharing_reason", lambda path: None)
    store.prune = lambda *args, **more: image_users.prune(conn, store.images, *args, **more)
    store.there = lambda: os.path.exists(store.path("debian-0.raw"))
    store.conn = conn
    return store


def guest(host, path, format="raw"):
    host.conn.defineXML(GUEST.format(name="web1", more="", os="", devices=disk(path, format)))


def test_an_image_that_nobody_needs_goes(host):
    part = host.path(".partial", cache.key("x"))
    with open(part, "wb"):
        pass
    os.utime(part, (0, 0))
    known = image_users.listed(host.conn, host.images)["debian-0.raw"]
    assert (known["size_bytes"], known["allocated_bytes"]) == (4096, 4096)
    assert (known["fetched"], known["used_by"]) == ("1970-01-01T00:00:09Z", [])
    gone = [f".partial/{cache.key('x')}", "debian-0.raw"]
    assert host.prune() == {"removed": gone, "retained": {}}
    assert not host.there()


def test_of_one_image_only_that_one_goes(host):
    part = host.path(".partial", cache.key("x"))
    with open(part, "wb"):
        pass
    os.utime(part, (0, 0))
    add(host, "7", b"x", "salt://seven")
    assert host.prune(7, grace_s=0) == {"removed": ["7"], "retained": {}}
    assert (os.path.exists(part), host.there()) == (True, True)
    for name in ("8", ""):
        with pytest.raises(errors.NotFound, match="does not exist in"):
            host.prune(name)


@pytest.mark.parametrize("age_s", [-1, 1])
def test_an_image_that_was_just_given_to_somebody_stays(host, monkeypatch, age_s):
    now = os.stat(host.path(".meta", "debian-0.raw.json")).st_mtime
    clock = SimpleNamespace(time=lambda: now + image_users.GRACE_S + age_s)
    monkeypatch.setattr(image_users, "time", clock)
    done = host.prune()
    assert done["retained"] == ({} if age_s > 0 else {"debian-0.raw": "used a few minutes ago"})
    assert host.there() is (age_s < 0)


def test_at_the_end_of_its_time_it_goes(host, monkeypatch):
    now = os.stat(host.path(".meta", "debian-0.raw.json")).st_mtime
    clock = SimpleNamespace(time=lambda: now + image_users.GRACE_S)
    monkeypatch.setattr(image_users, "time", clock)
    assert host.prune()["retained"] == {}


def test_an_image_that_a_guest_needs_stays(host):
    guest(host, host.path("debian-0.raw"))
    assert host.prune() == {"removed": [], "retained": {"debian-0.raw": "used by web1"}}
    with pytest.raises(errors.Refused, match=r"image debian-0.raw is kept: used by web1"):
        host.prune("debian-0.raw")
    assert host.there()


def test_an_image_that_others_may_have_or_of_which_it_is_not_known_stays(host, monkeypatch):
    monkeypatch.setattr(sharing, "sharing_reason", lambda path: "nfs at /srv")
    kept = {"debian-0.raw": "other hosts may use it: nfs at /srv"}
    assert host.prune()["retained"] == kept
    create(host.path("..", "above.qcow2"), "/nonexistent/base", "qcow2")
    guest(host, os.path.abspath(host.path("..", "above.qcow2")), "qcow2")
    assert "cannot be proven to be unused" in host.prune()["retained"]["debian-0.raw"]
    assert host.there()


@pytest.mark.parametrize("who", ["a QEMU", "a guest"])
def test_who_begins_to_use_an_image_meanwhile_keeps_it(host, monkeypatch, who):
    def late(conn, path):
        if who == "a guest":
            guest(host, host.path("debian-0.raw"))
        return "it is open" if who == "a QEMU" else None

    monkeypatch.setattr(image_users.usage, "open_reason", late)
    why = "used by web1" if who == "a guest" else "it is open"
    assert host.prune()["retained"] == {"debian-0.raw": why}
    assert host.there()
