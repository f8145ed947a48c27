"""The backing chain of a disk, from the headers of its images down to the last file."""

import errno
import stat
from types import SimpleNamespace

import pytest

pytest.importorskip("salt")

from saltvirt import errors
from saltvirt.host.storage import chains, identity
from saltvirt.system import bounded_io


class Images:
    """Files by path: what the header of each names, or the error that reading it is."""

    def __init__(self, monkeypatch):
        self.heads, self.below, self.links, self.there = {}, {}, {}, set()
        self.silent, self.modes, self.asked = set(), {}, []
        monkeypatch.setattr(chains.header, "read", self.read)
        monkeypatch.setattr(identity, "underlying_paths", lambda path: self.below.get(path, []))
        monkeypatch.setattr(identity, "real", lambda path: self.links.get(path, path))
        monkeypatch.setattr(bounded_io, "lexists", self.lexists)
        monkeypatch.setattr(bounded_io, "stat", self.stat)

    def put(self, path, backing=None, format=None, data_file=None):
        self.heads[path] = SimpleNamespace(
            backing=backing, backing_format=format, data_file=data_file
        )
        self.there.add(path)

    def read(self, path, format):
        self.asked.append((path, format))
        found = self.heads.get(path)
        if found is None:
            raise errors.NotFound(f"{path} is not there")
        if isinstance(found, Exception):
            raise found
        return found

    def lexists(self, path):
        if path in self.silent:
            raise bounded_io.StorageTimeout("/nas")
        return path in self.there

    def stat(self, path):
        if path not in self.modes:
            raise FileNotFoundError(errno.ENOENT, "gone")
        return SimpleNamespace(st_mode=self.modes[path])


@pytest.fixture
def images(monkeypatch):
    return Images(monkeypatch)


def read(path, format=None):
    found = chains.read(path, format)
    return found.paths, (found.missing_path, found.unreadable, found.broken)


NOTHING = (None, None, None)


def test_all_that_a_disk_is_based_on(images):
    images.put("/a/top", "/b/mid", "qcow2")
    images.put("/b/mid", "/c/base", "raw")
    images.put("/c/base", "/d/never")
    assert read("/a/top", "qcow2") == (["/a/top", "/b/mid", "/c/base"], NOTHING)
    assert images.asked == [("/a/top", "qcow2"), ("/b/mid", "qcow2")], "a guest writes a raw disk"
    assert read("/c/base", "raw") == (["/c/base"], NOTHING)
    assert read("/c/base")[0] == ["/c/base", "/d/never"]


def test_a_data_file_is_raw_and_what_is_below_a_device_is_too(images):
    images.put("/a", "/b", "qcow2", data_file="/data")
    images.put("/b")
    images.put("/data", "/never")
    images.below = {"/a": ["/dev/sda"], "/dev/sda": ["/dev/sdb"]}
    images.put("/dev/sda", "/never")
    found, wrong = read("/a", "qcow2")
    assert (sorted(found), wrong) == (["/a", "/b", "/data", "/dev/sda", "/dev/sdb"], NOTHING)
    assert ("/data", "raw") not in images.asked


def test_a_ring_has_an_end_and_so_has_what_is_too_deep(images):
    images.put("/a", "/b", "qcow2")
    images.put("/b", "/a", "qcow2")
    assert read("/a", "qcow2") == (["/a", "/b"], NOTHING)
    for number in range(40):
        images.put(f"/{number}", f"/{number + 1}", "raw" if number == 32 else "qcow2")
    found, wrong = read("/1", "qcow2")
    assert (len(found), wrong) == (33, NOTHING), "as many as are read"
    found, wrong = read("/0", "qcow2")
    assert (len(found), wrong) == (33, (None, None, "/0 has more than 32 backing files"))


def test_what_is_missing_is_the_first_that_is_declared(images):
    images.put("/a", "/b", "qcow2")
    assert read("/a", "qcow2") == (["/a", "/b"], ("/b", None, None))
    assert read("/c") == (["/c"], NOTHING), "nobody says that it is an image"
    images.put("/d", "/e", "qcow2", data_file="/data")
    assert read("/d", "qcow2") == (["/d", "/e", "/data"], ("/e", None, None))


def image_error(path, text, cause=None):
    found = errors.ImageError(text)
    found.__cause__ = cause
    return found


def test_what_the_system_refuses_is_unreadable_and_other_faults_break_the_chain(images):
    refused = PermissionError(13, "Permission denied")
    images.heads["/a"] = image_error("/a", "cannot read /a", refused)
    images.heads["/b"] = image_error("/b", "damaged")
    unreadable, broken = (None, "cannot read /a", None), (None, None, "damaged")
    assert read("/a", "qcow2") == read("/a") == (["/a"], unreadable)
    assert read("/b", "qcow2") == (["/b"], broken)
    assert read("/b") == (["/b"], NOTHING), "what cannot be told is no image"
    images.heads["/b"] = image_error("/b", "damaged", ValueError("no number"))
    assert read("/b", "qcow2") == (["/b"], broken)
    other = (None, None, "cannot read /a")
    for kind, seen in (
        (stat.S_IFREG, unreadable), (stat.S_IFBLK, unreadable),
        (stat.S_IFIFO, other), (stat.S_IFCHR, other),
    ):  # fmt: skip
        images.modes["/a"] = kind
        assert read("/a", "qcow2") == (["/a"], seen)
    assert read("/a") == (["/a"], NOTHING)


@pytest.mark.parametrize("number", [errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP])
def test_a_path_that_leads_to_nothing_is_missing(images, number):
    images.put("/a", "/b", "qcow2")
    images.heads["/b"] = image_error("/b", "cannot read /b", OSError(number, "x"))
    assert read("/a", "qcow2") == (["/a", "/b"], ("/b", None, None))
    images.put("/a", "/b")
    assert read("/a") == (["/a", "/b"], NOTHING), "nobody says that it is an image"
    found = chains.ChainScan(missing_path="/first")
    assert chains._references(found, "/b", "qcow2") == []
    assert found.missing_path == "/first"


def test_the_first_fault_is_said(images):
    found = chains.ChainScan(missing_path="/first", unreadable="first", broken="first")
    images.heads["/r"] = image_error("/r", "second", PermissionError(13, "x"))
    images.heads["/b"] = image_error("/b", "second")
    for path in ("/gone", "/r", "/b"):
        assert chains._references(found, path, "qcow2") == []
    assert chains._candidates(found, "/x", "json:{", "qcow2") == []
    assert chains._candidates(found, "/x", "rbd:pool", "qcow2") == []
    assert (found.missing_path, found.unreadable, found.broken) == ("/first", "first", "first")


# -- where a name leads -------------------------------------------------------------------


def places(name, format="qcow2", path="/dir/top"):
    found = chains.ChainScan()
    return chains._candidates(found, path, name, format), found.broken


def test_a_name_leads_beside_the_image_or_beside_its_file(images):
    assert places("base") == ([("/dir/base", "qcow2")], None)
    images.links["/dir/top"] = "/real/top"
    assert places("base") == ([("/dir/base", "qcow2")], None), "as QEMU reads it"
    images.there = {"/real/base"}
    assert places("base") == ([("/real/base", "qcow2")], None)
    images.there.add("/dir/base")
    assert places("base", None) == ([("/dir/base", None), ("/real/base", None)], None)
    images.there, images.silent = set(), {"/real/base"}
    assert places("base")[0] == [("/real/base", "qcow2")], "it may be there"
    assert places("/x/base")[0] == [("/x/base", "qcow2")]


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("file:/x", "/x"), ("file:///x", "/x"), ("//x/y", "/x/y"), ("file:x", "/dir/x"),
        ("x/a:b", "/dir/x/a:b"), ("/a:b", "/a:b"), ("file:a", "/dir/a"),
    ],
)  # fmt: skip
def test_names_of_files(images, name, path):
    assert places(name) == ([(path, "qcow2")], None)


@pytest.mark.parametrize(
    ("name", "path"),
    [("nbd://h/x", "//h/x"), ("host_device:/dev/sda", "/dev/sda"), ("rbd:pool", None)],
)
def test_what_another_protocol_has_cannot_be_read_here(images, name, path):
    broken = f"/dir/top has the backing file {name}, which cannot be read on this host"
    found = [] if path is None else [(path, "raw")]
    assert places(name) == places(name, None) == (found, broken)
    assert places(name, "raw") == (found, None)


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        ('{"driver":"raw","file":{"driver":"file","filename":"/x"}}', ["/x"]),
        ('{"driver":"qcow2","file.filename":"/x"}', ["/x"]),
        ('{"a":{"filename":"/x"},"b":{"filename":"/y"}}', ["/x", "/y"]),
        ('{"filename":{"filename":"/x"}}', ["/x"]),
        ('{"filename":7}', []), ('["/x"]', []), ("{", []), ("7", []),
        ('{"a":' * 100_000, []), ('{"name":"/x"}', []),
    ],
    ids=range(10),
)  # fmt: skip
def test_names_in_json(images, text, paths):
    name = f"json:{text}"
    found, broken = places(name)
    assert found == [(path, "qcow2") for path in paths]
    words = f"/dir/top has the backing file {name[:60]}, which cannot be read on this host"
    assert broken == (None if paths else words)


def test_of_an_image_counts_what_its_header_names(images, tmp_path):
    images.put("/a/top", 'json:{"file":{"filename":"base"}}', "raw")
    images.put("/a/base")
    assert read("/a/top") == (["/a/top", "/a/base"], NOTHING)
