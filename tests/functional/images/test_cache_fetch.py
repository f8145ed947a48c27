"""An image enters the cache once, complete and verified, or not at all."""

import contextlib
import errno
import hashlib
import os
import stat
from dataclasses import replace
from types import SimpleNamespace

import pytest

pytest.importorskip("libvirt")
pytest.importorskip("salt")

from saltvirt import errors
from saltvirt.images import cache, free_space
from saltvirt.migration import storage as migration_storage
from saltvirt.system import file_lock
from tests.functional.host.storage.test_usage import create

SOURCE = "salt://linux/debian.raw"
RAW = bytes(510) + b"\x55\xaa" + bytes(1024**2 - 512)
SHA = hashlib.sha256(RAW).hexdigest()
MIB = 1024**2


class Master:
    """The master's files: one image, of a version, and texts by address."""

    def __init__(self, data=RAW, fails=None, **version):
        self.data, self.fails, self.told = data, fails, version or {"v": 1}
        self.asked, self.fetched, self.texts = [], [], {}

    def version(self, source):
        self.asked.append(source)
        return self.told

    def fetch(self, source, part, version, progress):
        self.fetched.append((source, version))
        with open(part, "wb") as file:
            file.write(self.data)
        progress(len(self.data), len(self.data))
        if self.fails:
            raise self.fails
        return version

    def read(self, source):
        return self.texts[source]


@pytest.fixture
def images(tmp_path):
    return str(tmp_path / "images")


def left(images):
    return os.listdir(os.path.join(images, "_base", ".partial"))


def test_an_image_comes_once_and_is_named_by_its_content(images):
    master, seen = Master(), []
    found = cache.fetch(SOURCE, images, master, progress=lambda *of: seen.append(of))
    path = os.path.join(images, "_base", f"debian-{SHA[:16]}.raw")
    assert found == cache.CachedImage(path, "raw", MIB, SHA, SOURCE)
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o444
    with open(path, "rb") as file:
        assert file.read() == RAW
    assert seen == [(MIB, MIB)]
    assert left(images) == []
    again = cache.fetch(SOURCE, images, master)
    assert (again, len(master.fetched), len(master.asked)) == (found, 1, 2)
    cache.fetch(SOURCE, images, Master(v=2))
    [known] = cache.cached_images(images)
    assert known.fetched > 0
    assert replace(known, fetched=0) == cache.ImageNote(
        file=os.path.basename(path), path=path, format="raw", size_bytes=MIB, fetched=0,
        sums={"sha256": SHA, "sha512": hashlib.sha512(RAW).hexdigest()}, source=SOURCE,
    )  # fmt: skip


def test_a_new_version_is_a_new_file(images):
    old = cache.fetch(SOURCE, images, Master())
    new = cache.fetch(SOURCE, images, Master(RAW + bytes(MIB), v=2))
    assert (old.path != new.path, new.virtual_size_bytes) == (True, 2 * MIB)
    assert os.path.exists(old.path)
    assert cache.find_local(SOURCE, images, Master(v=1)) is None


@pytest.mark.parametrize(
    ("kind", "hsum", "words"),
    [
        ("sha256", SHA, None), ("sha256", "0" * 64, "changed during the download: try again"),
        ("md5", hashlib.md5(RAW, usedforsecurity=False).hexdigest(), None),
        ("md5", "0" * 32, "changed during the download: try again"), ("own", "0" * 32, None),
        (None, "0", None),
    ],
)  # fmt: skip
def test_it_is_what_the_master_said_it_has(images, kind, hsum, words):
    master = Master(hash_type=kind, hsum=hsum)
    if words is None:
        cache.fetch(SOURCE, images, master)
        [known] = cache.cached_images(images)
        assert set(known.sums) == {"sha256", "sha512"} | ({kind} & {"md5"})
    else:
        with pytest.raises(errors.ImageError, match=f"^{SOURCE} {words}"):
            cache.fetch(SOURCE, images, master)
        assert list(cache.cached_images(images)) == []
        assert left(images) == []


def test_it_is_what_was_demanded(images):
    wrong = f"has the sha256 {SHA} instead of {'0' * 64}"
    master = Master()
    with pytest.raises(errors.ImageError, match=wrong):
        cache.fetch(SOURCE, images, master, "sha256=" + "0" * 64)
    assert (list(cache.cached_images(images)), left(images)) == ([], [])
    found = cache.fetch(SOURCE, images, master, f"sha256:{SHA}")
    asked = len(master.asked)
    assert cache.fetch(SOURCE, images, master, SHA) == found
    assert len(master.asked) == asked, "with a hash nobody need be asked"
    sha384 = hashlib.sha384(RAW).hexdigest()
    assert cache.fetch(SOURCE, images, master, sha384) == found
    assert "sha384" in next(cache.cached_images(images)).sums


@pytest.mark.parametrize("where", ["salt", "web", "path"])
def test_what_is_demanded_may_be_in_a_list(images, tmp_path, monkeypatch, where):
    text = f"{SHA}  debian.raw\n{'0' * 64}  other.raw\n"
    master = Master()
    address = {
        "salt": "salt://linux/SHA256SUMS", "web": "https://x.org/SHA256SUMS",
        "path": str(tmp_path / "SHA256SUMS"),
    }[where]  # fmt: skip
    master.texts["salt://linux/SHA256SUMS"] = text
    monkeypatch.setattr(cache.web, "read_list", lambda source: text)
    (tmp_path / "SHA256SUMS").write_text(text)
    assert cache.fetch(SOURCE, images, master, address).sha256 == SHA
    with pytest.raises(errors.ImageError, match="instead of 0000"):
        cache.fetch("salt://other.raw", images, master, address)
    with pytest.raises(errors.ImageError, match=f"{address} contains no hash of third.raw"):
        cache.fetch("salt://third.raw", images, master, address)


def test_a_list_that_cannot_be_read_and_what_is_no_hash_are_said(images, tmp_path):
    path = str(tmp_path / "none")
    with pytest.raises(errors.ImageError, match=f"cannot read the list of hashes {path}: No such"):
        cache.fetch(SOURCE, images, Master(), path)
    with pytest.raises(errors.InvalidInput, match="image_hash 'abc' is neither a sha256"):
        cache.fetch(SOURCE, images, Master(), "abc")
    for source, image_hash in ((SOURCE, None), ("https://x.org/x.raw", "salt://SHA256SUMS")):
        with pytest.raises(errors.InvalidInput, match="cannot be fetched without a master"):
            cache.fetch(source, images, None, image_hash)


def test_only_a_volume_whose_place_is_known_is_used(images):
    with pytest.raises(errors.InvalidInput, match="a volume of a pool cannot be used here"):
        cache.fetch("pool://there/x", images, Master())


def test_what_is_no_whole_disk_is_no_image(images, tmp_path):
    base = create(tmp_path / "above.qcow2", "/etc/passwd")
    data = tmp_path / "data.qcow2"
    create(data, option=f"data_file={tmp_path}/raw")
    for file, other in ((base, "/etc/passwd"), (data, f"{tmp_path}/raw")):
        words = f"^{SOURCE} refers to another file, '{other}': merge them with qemu-img convert"
        with pytest.raises(errors.ImageError, match=words):
            cache.fetch(SOURCE, images, Master(file.read_bytes()))
    with pytest.raises(errors.ImageError, match=SOURCE) as caught:
        cache.fetch(SOURCE, images, Master(b"<html>"))
    assert ".partial" not in caught.value.text
    assert (list(cache.cached_images(images)), left(images)) == ([], [])


def test_a_disk_without_a_size_is_no_image(images, monkeypatch):
    nothing = SimpleNamespace(virtual_size_bytes=0, path="x", format="raw")
    monkeypatch.setattr(cache.inspect, "inspect", lambda *of: nothing)
    with pytest.raises(errors.ImageError, match=f"{SOURCE} is not a disk image: its disk has"):
        cache.fetch(SOURCE, images, Master())


def test_an_image_is_checked_before_it_has_its_name(images, monkeypatch):
    def check(_path, _format):
        raise errors.ImageError("damaged")

    monkeypatch.setattr(cache.inspect, "check", check)
    with pytest.raises(errors.ImageError, match="damaged"):
        cache.fetch(SOURCE, images, Master())
    assert list(cache.cached_images(images)) == []


@pytest.mark.parametrize(
    ("error", "kind", "stays"),
    [
        (errors.Refused("no room"), errors.Refused, False),
        (OSError(errno.ENOSPC, "No space left on device"), errors.Refused, False),
        (OSError(errno.EIO, "Input/output error"), errors.ImageError, True),
        (errors.ImageError("cut"), errors.ImageError, True),
    ],
)
def test_a_download_that_is_cut_goes_on_later_unless_there_is_no_room(images, error, kind, stays):
    with pytest.raises(errors.VirtError) as caught:
        cache.fetch(SOURCE, images, Master(fails=error))
    assert type(caught.value) is kind
    key = cache.key(SOURCE)
    assert sorted(left(images)) == ([key, f"{key}.json"] if stays else [])
    if isinstance(error, OSError):
        assert (
            caught.value.text.removeprefix("refused: ")
            == f"cannot fetch {SOURCE} to {images}: {error.strerror}"
        )


def test_what_is_too_large_is_refused_on_its_way(images, monkeypatch):
    monkeypatch.setattr(free_space, "MAX_BYTES", MIB - 1)
    with pytest.raises(errors.Refused, match=f"image {SOURCE} is larger than"):
        cache.fetch(SOURCE, images, Master())
    assert left(images) == []


@pytest.mark.parametrize("have", [0, 7])
def test_who_waits_for_another_sees_how_far_that_one_is(images, monkeypatch, have):
    folder, seen, said = cache._Folder(images), [], []
    folder.make()
    part = folder.path(".partial", cache.key(SOURCE))
    real = file_lock.exclusive

    @contextlib.contextmanager
    def exclusive(path, **more):
        if "progress" in more:
            assert path == folder.path(".locks", cache.key(SOURCE))
            said.append(more["progress"]())
            with open(part, "wb") as file:
                file.write(bytes(have))
            said.append(more["progress"]())
        with real(path):
            yield

    monkeypatch.setattr(file_lock, "exclusive", exclusive)
    cache.fetch(SOURCE, images, Master(), progress=lambda *of: seen.append(of))
    assert said == [None, have]
    assert seen == ([(7, None)] if have else []) + [(MIB, MIB)]


def test_it_is_on_the_disk_before_anybody_knows_it(images, monkeypatch):
    synced, real = [], os.fsync

    def fsync(handle):
        synced.append(os.path.basename(os.readlink(f"/proc/self/fd/{handle}")))
        real(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    cache.fetch(SOURCE, images, Master())
    assert synced == [cache.key(SOURCE)]


# -- what lies on this host ---------------------------------------------------------------


def test_a_file_of_this_host_is_hashed_only_when_that_is_demanded(images, tmp_path, monkeypatch):
    path = tmp_path / "mine.raw"
    path.write_bytes(RAW)
    assert cache.fetch(str(path), images).sha256 is None
    assert cache.fetch(str(path), images, image_hash=SHA).sha256 == SHA
    sha512 = hashlib.sha512(RAW).hexdigest()
    assert cache.fetch(str(path), images, image_hash=sha512).sha256 == SHA
    with pytest.raises(errors.ImageError, match=f"image {path} has the sha256 {SHA} instead of"):
        cache.fetch(str(path), images, image_hash="0" * 64)
    assert not os.path.exists(images)
    monkeypatch.setattr(free_space, "MAX_BYTES", MIB)
    cache.fetch(str(path), images, image_hash=SHA)
    monkeypatch.setattr(free_space, "MAX_BYTES", MIB - 1)
    cache.fetch(str(path), images)
    with pytest.raises(errors.ImageError, match="its hash is not computed"):
        cache.fetch(str(path), images, image_hash=SHA)


def test_a_file_that_is_just_coming_to_this_host_is_not_used(images, tmp_path, monkeypatch):
    path = tmp_path / "mine.raw"
    path.write_bytes(RAW)
    open(migration_storage.incoming_path(str(path)), "w", encoding="utf-8").close()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(errors.ImageError, match=r"mine\.raw is being copied to this"):
        cache.fetch("pool://there/x", images, local_file=cache.ImageFile("mine.raw"))


def test_a_file_without_a_disk_in_it_is_no_image(images, tmp_path, monkeypatch):
    path = tmp_path / "mine.raw"
    path.write_bytes(RAW)
    nothing = SimpleNamespace(virtual_size_bytes=0, path=str(path), format="raw")
    monkeypatch.setattr(cache.inspect, "inspect", lambda *of: nothing)
    with pytest.raises(errors.ImageError, match=f"{path} is not a disk image: its disk has no"):
        cache.fetch(str(path), images)
