"""Real files, a real qemu-img and a real web server, without libvirt and root."""

import contextlib
import email.message
import errno
import fcntl
import hashlib
import http.client
import itertools
import json
import os
import socketserver
import struct
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import pytest

from saltvirt import errors
from saltvirt.images import (
    cache,
    chain,
    checksum,
    clone,
    confined,
    free_space,
    header,
    inspect,
    sources,
    storage,
)
from saltvirt.images import web as web_of
from saltvirt.system import file_lock, file_probe, tools
from tests.functional import ftpd
from tests.lab import paths

MIB = 1024 * 1024
pytestmark = pytest.mark.skipif(
    subprocess.run(["which", "qemu-img"], capture_output=True, check=False).returncode != 0,
    reason="no qemu-img here",
)


def qemu_img(*argv):
    return subprocess.run(
        ["qemu-img", *map(str, argv)], check=True, capture_output=True, text=True
    ).stdout


def info(path):
    return json.loads(qemu_img("info", "--output=json", path))


def allocated(path):
    return os.stat(path).st_blocks * 512


@pytest.fixture
def raw(tmp_path):
    """A sparse raw disk: an MBR, 3 MiB of data in the middle, holes around it."""
    path = tmp_path / "disk.raw"
    with open(path, "wb") as file:
        file.write(b"\0" * 510 + b"\x55\xaa")
        file.seek(20 * MIB)
        file.write(os.urandom(3 * MIB))
        file.truncate(64 * MIB)
    return path


@pytest.fixture
def qcow2(raw, tmp_path):
    path = tmp_path / "disk.qcow2"
    qemu_img("convert", "-O", "qcow2", raw, path)
    return path


def same_content(one, other):
    subprocess.run(["qemu-img", "compare", str(one), str(other)], check=True, capture_output=True)


@pytest.mark.parametrize("format", ["raw", "qcow2"])
def test_an_image_is_copied_to_another_kind_of_file_system(raw, qcow2, format):
    """The kernel's own copying knows no way from ext4 to tmpfs, or to one of FUSE."""
    image = raw if format == "raw" else qcow2
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        assert os.stat(folder).st_dev != image.stat().st_dev
        made = Path(folder) / "vm"
        clone.clone(inspect.inspect(image), made, format)
        same_content(image, made)
        assert allocated(made) < 5 * MIB


def test_tools_do_not_speak_for_the_minions_service(monkeypatch):
    """systemd-nspawn would tell systemd that the minion is stopping."""
    monkeypatch.setenv("NOTIFY_SOCKET", "/run/systemd/notify")
    said = tools.run(["env"], "see the environment").decode()
    assert "NOTIFY_SOCKET" not in said
    assert "LC_ALL=C\n" in said


@pytest.mark.parametrize("run", [tools.run, confined.run])
def test_a_tool_that_is_not_installed_is_named(run):
    with pytest.raises(errors.Unsupported, match=r"^no-such-tool is not installed on this host$"):
        run(["no-such-tool"], "do it")


def test_a_tool_that_does_not_listen_is_not_waited_for():
    said = tools.run(["sh", "-c", "exec <&-; echo said"], "talk", stdin=b"x" * MIB)
    assert said == b"said\n"
    assert tools.run(["cat"], "talk", stdin=b"x" * MIB, timeout_s=None) == b"x" * MIB


def test_a_tool_that_says_that_it_is_done_and_goes_on_has_its_time():
    with pytest.raises(errors.OperationFailed, match=r"cannot wait: sh took longer than 0.5 s"):
        tools.run(["sh", "-c", "exec >&- 2>&-; exec sleep 60"], "wait", timeout_s=0.5)


def test_a_process_without_a_pipe_has_none():
    with pytest.raises(ValueError, match="no such pipe"):
        tools.pipe(None)


# -- what is an image ---------------------------------------------------------------------


def test_inspect_tells_format_and_sizes(raw, qcow2):
    assert inspect.inspect(raw).format == "raw"
    found = inspect.inspect(qcow2)
    assert (found.format, found.virtual_size_bytes) == ("qcow2", 64 * MIB)
    assert found.allocated_bytes < 8 * MIB


@pytest.mark.parametrize(
    "content, words",
    [
        (b"#!/bin/sh\necho hello\n" * 100, "not a disk image"),
        (b"", "not a disk image"),
        (b"\0" * 200000, "not a disk image"),
        (b"\x1f\x8b" + b"x" * 1000, "compressed with gzip"),
        (b"QFI\xfb\0\0\0\3" + b"\0" * 20, "ends within"),
        (b"LUKS\xba\xbe" + b"x" * 1000, "encrypted"),
    ],
)
def test_inspect_refuses_what_is_no_image(tmp_path, content, words):
    path = tmp_path / "debian.qcow2"
    path.write_bytes(content)
    with pytest.raises(errors.ImageError, match=words):
        inspect.inspect(path)


def test_inspect_names_what_does_not_exist(tmp_path):
    with pytest.raises(errors.NotFound, match="does not exist"):
        inspect.inspect(tmp_path / "none.qcow2")
    with pytest.raises(errors.ImageError):
        inspect.inspect(tmp_path)


def test_a_declared_raw_disk_is_never_reinterpreted(tmp_path):
    """The guest wrote a qcow2 header with a backing file to its raw disk."""
    evil = tmp_path / "evil.raw"
    qemu_img("create", "-f", "qcow2", "-u", "-b", "/etc/shadow", "-F", "raw", evil, "1M")
    found = inspect.inspect(evil, format="raw")
    assert found.format == "raw"
    assert found.backing is None
    assert found.virtual_size_bytes >= evil.stat().st_size


@pytest.mark.parametrize(
    "backing", ["/etc/shadow", "../../etc/shadow", "nbd://1.2.3.4/x", "json:{}"]
)
def test_a_backing_file_elsewhere_is_refused_unopened(tmp_path, backing):
    evil = tmp_path / "evil.qcow2"
    qemu_img("create", "-q", "-f", "qcow2", "-u", "-b", backing, "-F", "raw", evil, "1M")
    with pytest.raises(errors.ImageError, match="refers to"):
        inspect.inspect(evil)


def test_a_link_beside_the_image_does_not_lead_out(tmp_path):
    (tmp_path / "base.raw").symlink_to("/etc/passwd")
    evil = tmp_path / "evil.qcow2"
    qemu_img("create", "-q", "-f", "qcow2", "-u", "-b", "base.raw", "-F", "raw", evil, "1M")
    with pytest.raises(errors.ImageError, match="outside"):
        inspect.inspect(evil)


def test_a_data_file_is_refused(tmp_path):
    image = tmp_path / "split.qcow2"
    qemu_img("create", "-q", "-f", "qcow2", "-o", f"data_file={tmp_path}/data.raw", image, "1M")
    with pytest.raises(errors.ImageError, match="data in another file"):
        inspect.inspect(image)


def test_a_backing_file_of_undeclared_format_is_refused(tmp_path, qcow2):
    overlay = tmp_path / "overlay.qcow2"
    qemu_img("create", "-q", "-f", "qcow2", "-u", "-b", qcow2, "-F", "qcow2", overlay, "64M")
    head = bytearray(overlay.read_bytes())
    length = struct.unpack_from(">I", head, 100)[0]
    assert struct.unpack_from(">I", head, length)[0] == 0xE2792ACA
    struct.pack_into(">I", head, length, 0x12345678)
    overlay.write_bytes(head)
    with pytest.raises(errors.ImageError, match="does not declare the format"):
        inspect.inspect(overlay)


def test_a_backing_file_in_the_same_folder_is_fine(tmp_path, qcow2):
    overlay = tmp_path / "overlay.qcow2"
    qemu_img("create", "-q", "-f", "qcow2", "-b", qcow2, "-F", "qcow2", overlay)
    found = inspect.inspect(overlay, "qcow2")
    assert (found.backing, found.backing_format) == (str(qcow2), "qcow2")


def test_a_neighbour_is_not_copied_on_a_headers_word(tmp_path, raw):
    """No domain declares the disk any more, and its guest wrote a header that names the file
    beside it."""
    evil = tmp_path / "evil.raw"
    qemu_img("create", "-q", "-f", "qcow2", "-u", "-b", raw, "-F", "raw", evil, "64M")
    with pytest.raises(errors.ImageError, match="a guest could have written"):
        cache.fetch(str(evil), tmp_path / "images")
    with pytest.raises(errors.ImageError, match="a guest could have written"):
        inspect.inspect(evil)


# -- VMDK ---------------------------------------------------------------------------------


VMDK = """# Disk DescriptorFile
version=1
CID=12345678
parentCID=ffffffff
createType="monolithicSparse"
RW 2048 SPARSE "disk.vmdk"
"""


def vmdk(path, descriptor=VMDK, capacity=2048, at=1):
    """A VMDK of 1 MiB with this descriptor in it."""
    qemu_img("create", "-q", "-f", "vmdk", path, "1M")
    content = bytearray(path.read_bytes())
    struct.pack_into("<Q", content, 12, capacity)
    struct.pack_into("<QQ", content, 28, at, 20)
    content[512 : 512 + 20 * 512] = descriptor.encode().ljust(20 * 512, b"\0")
    path.write_bytes(content)
    return path


def a_flat_extent(path, secret):
    """createType is first met without what we would look for, and the capacity is 0."""
    text = VMDK.replace("createType=", 'createType= monolithicFlat"\ncreateType=')
    text = text.replace('RW 2048 SPARSE "disk.vmdk"', f'RW 2048 FLAT "{secret}" 0')
    return vmdk(path, text, capacity=0)


def a_parent(path, secret):
    text = VMDK.replace("ffffffff", "12345678") + f'parentFileNameHint="{secret}"\n'
    return vmdk(path, text)


def a_hint_alone(path, secret):
    return vmdk(path, VMDK + f'parentFileNameHint="{secret}"\n')


def a_descriptor_elsewhere(path, secret):
    """What is told as its place is good; QEMU looks behind the first sector."""
    vmdk(path, VMDK + f'parentFileNameHint="{secret}"\n', at=100)
    content = bytearray(path.read_bytes().ljust(200 * 512, b"\0"))
    content[51200 : 51200 + len(VMDK)] = VMDK.encode()
    path.write_bytes(content)
    return path


def no_descriptor(path, _secret):
    return vmdk(path, "")


EVIL_VMDKS = [a_flat_extent, a_parent, a_hint_alone, a_descriptor_elsewhere, no_descriptor]


@pytest.mark.parametrize("make", EVIL_VMDKS)
def test_a_vmdk_that_could_name_another_file_is_refused(tmp_path, make):
    secret = tmp_path / "secret"
    secret.write_bytes(b"root:$6$secret" * 100000)
    evil = make(tmp_path / "evil.vmdk", secret)
    with pytest.raises(errors.ImageError, match="convert it to qcow2 first"):
        inspect.inspect(evil)
    with pytest.raises(errors.ImageError, match="convert it to qcow2 first"):
        cache.fetch(str(evil), tmp_path / "images")


@pytest.mark.skipif(os.geteuid() != 0, reason="qemu-img is confined where it would be root")
@pytest.mark.parametrize("make", [a_flat_extent, a_parent])
def test_a_trick_that_we_miss_reads_nothing(tmp_path, monkeypatch, make):
    """QEMU itself follows it: plainly it copies the file, confined it finds none."""
    secret = tmp_path / "secret"
    qemu_img("create", "-q", "-f", "vmdk", secret, "1M")
    if make is a_flat_extent:
        secret.write_bytes(b"root:$6$secret" * 100000)
    evil = make(tmp_path / "evil.vmdk", secret)
    qemu_img("convert", "-f", "vmdk", "-O", "raw", evil, tmp_path / "stolen")
    stolen = (tmp_path / "stolen").read_bytes()
    assert stolen.startswith(b"root:$6$secret") or make is a_parent
    monkeypatch.setattr(header, "_vmdk", lambda *_: header.Header("vmdk"))
    monkeypatch.setitem(header._READERS, b"KDMV", lambda *_: header.Header("vmdk"))
    with pytest.raises(errors.ImageError, match="No such file"):
        clone.clone(inspect.inspect(evil), tmp_path / "vm.raw", "raw")
    assert not (tmp_path / "vm.raw").exists()


def test_what_an_image_may_be_based_on_is_what_it_was_found_to_be_based_on(tmp_path, raw):
    folders = [tmp_path / name for name in ("disks", "bases", "secrets")]
    for folder in folders:
        folder.mkdir()
    disk, base, secret = (folder / "file" for folder in folders)
    for there in (base, secret):
        os.link(raw, there)
    qemu_img("create", "-f", "qcow2", "-b", base, "-F", "raw", disk)
    found = inspect.inspect(disk, "qcow2", folders=["/"])
    clone.clone(found, tmp_path / "copy", "qcow2")
    same_content(raw, tmp_path / "copy")
    qemu_img("rebase", "-u", "-b", secret, "-F", "raw", "-f", "qcow2", disk)
    with pytest.raises(errors.ImageError, match="secrets/file, outside"):
        clone.clone(found, tmp_path / "another", "qcow2")
    assert not (tmp_path / "another").exists()


@pytest.mark.parametrize("subformat", ["monolithicSparse", "streamOptimized"])
def test_a_whole_vmdk_is_an_image(tmp_path, raw, subformat):
    image = tmp_path / "disk.vmdk"
    qemu_img("convert", "-O", "vmdk", "-o", f"subformat={subformat}", raw, image)
    found = inspect.inspect(image)
    assert (found.format, found.virtual_size_bytes) == ("vmdk", 64 * MIB)
    clone.clone(found, tmp_path / "vm.qcow2", "qcow2")
    same_content(raw, tmp_path / "vm.qcow2")


@pytest.mark.parametrize("subformat", ["monolithicFlat", "twoGbMaxExtentSparse"])
def test_a_vmdk_in_several_files_is_refused(tmp_path, raw, subformat):
    image = tmp_path / "disk.vmdk"
    qemu_img("convert", "-O", "vmdk", "-o", f"subformat={subformat}", raw, image)
    with pytest.raises(errors.ImageError):
        inspect.inspect(image)


# -- qemu-img without privileges ----------------------------------------------------------

confined_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root is confined")


@confined_only
def test_a_confined_tool_reaches_what_it_was_given_and_nothing_else(tmp_path):
    given, other = tmp_path / "given", tmp_path / "other"
    given.write_text("hello")
    other.write_text("secret")
    os.chmod(given, 0o000)
    assert confined.run(["cat", str(given)], "read it", reads=[str(given)]) == b"hello"
    for path in (other, "/etc/passwd", "/proc/self/status", "/run"):
        with pytest.raises(errors.OperationFailed, match="No such file"):
            confined.run(["cat", str(path)], "read it", reads=[str(given)])
    with pytest.raises(errors.OperationFailed, match="Read-only"):
        confined.run(["sh", "-c", f"echo no > {given}"], "write it", reads=[str(given)])
    gone = str(tmp_path / "gone")
    with pytest.raises(errors.OperationFailed, match=f"^cannot read it: {gone} does not exist$"):
        confined.run(["cat", gone], "read it", reads=[gone])
    with pytest.raises(errors.OperationFailed):
        confined.run(["mknod", "/disk", "b", "8", "0"], "make a device")
    confined.run(["sh", "-c", f"echo yes > {given}"], "write it", writes=[str(given)])
    assert given.read_text() == "yes\n"


@confined_only
def test_who_is_not_root_has_the_limits_alone(tmp_path, monkeypatch):
    """There is nothing that such a user could take from a tool that it has not itself."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    limits = confined.Limits(20, file_bytes=MIB)
    assert confined.command(["cat", "/a"], ["/a"], limits=limits) == [*limits.argv(), "cat", "/a"]
    (tmp_path / "a").write_text("hello")
    assert confined.run(["cat", str(tmp_path / "a")], "read it") == b"hello"
    assert confined.run(["sh", "-c", "ulimit -c"], "see the limits") == b"0\n"


@confined_only
def test_where_nothing_can_be_shown_to_a_tool_nothing_runs(tmp_path, monkeypatch):
    monkeypatch.setattr(confined, "_ROOT", "/proc/none/root")
    with pytest.raises(errors.OperationFailed, match=r"^cannot read it: /proc/none: No such file"):
        confined.run(["touch", str(tmp_path / "a")], "read it")
    assert not (tmp_path / "a").exists()


@confined_only
def test_a_confined_tool_has_limits(tmp_path):
    big = tmp_path / "big"
    big.touch()
    with pytest.raises(errors.OperationFailed, match="took longer than 1 s"):
        confined.run(["sleep", "60"], "wait", limits=confined.Limits(1))
    with pytest.raises(errors.OperationFailed):
        confined.run(
            ["dd", "if=/dev/zero", f"of={big}", "bs=1M", "count=4"], "fill it",
            writes=[str(big)], limits=confined.Limits(file_bytes=MIB),
        )  # fmt: skip
    assert big.stat().st_size <= MIB


@confined_only
def test_a_path_that_is_written_otherwise_is_shown_all_the_same(tmp_path):
    (tmp_path / "a").write_text("hello")
    for path in (f"{tmp_path}//a", f"{tmp_path}/./a", f"/{tmp_path}/a"):
        assert confined.run(["cat", path], "read it", reads=[path]) == b"hello"
    with pytest.raises(errors.ImageError, match="without"):
        confined.run(["cat", "/x"], "read it", reads=[f"{tmp_path}/../{tmp_path.name}/a"])


@confined_only
def test_what_is_below_usr_is_not_emptied_by_being_shown(tmp_path):
    program = Path("/usr/bin/env")
    before = program.read_bytes()
    assert confined.run(["cat", "/usr/bin/env"], "read", reads=["/usr/bin/env"]) == before
    assert program.read_bytes() == before


def test_an_image_by_a_link_and_its_chain_are_found(tmp_path, raw):
    data = tmp_path / "data"
    data.mkdir()
    os.rename(raw, data / "base.raw")
    qemu_img("create", "-q", "-f", "qcow2", "-b", "base.raw", "-F", "raw", data / "top.qcow2")
    (tmp_path / "link").symlink_to(data)
    found = inspect.inspect(tmp_path / "link" / "top.qcow2", "qcow2")
    clone.clone(found, tmp_path / "vm.raw", "raw")
    same_content(data / "base.raw", tmp_path / "vm.raw")


def test_a_small_image_that_becomes_a_large_disk_is_refused_before(tmp_path, raw, monkeypatch):
    """Many of its clusters could be one: what it takes is measured, not guessed by its size."""
    image = tmp_path / "small.qcow2"
    raw.write_bytes((b"\0" * 510 + b"\x55\xaa") + b"salt virt " * MIB)
    qemu_img("convert", "-c", "-O", "qcow2", raw, image)
    monkeypatch.setattr(clone.shutil, "disk_usage", lambda _: SimpleNamespace(free=5 * MIB))
    with pytest.raises(errors.ImageError, match="5 MiB free, but the image"):
        clone.clone(inspect.inspect(image), tmp_path / "vm.raw", "raw")


# -- what is never opened -----------------------------------------------------------------


@pytest.fixture
def fifo(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    return path


@pytest.mark.parametrize("format", [None, "raw", "qcow2"])
def test_a_fifo_is_refused_and_not_waited_for(fifo, format):
    with pytest.raises(errors.ImageError, match="neither a regular file nor a block device"):
        header.read(fifo, format)
    assert chain.read(fifo, format).links == (chain.Link(str(fifo), format, str(fifo)),)


def test_a_character_device_is_never_opened(monkeypatch):
    """Opening /dev/watchdog begins its countdown."""
    opened = []
    real = os.open
    monkeypatch.setattr(os, "open", lambda p, flags, *r: opened.append(flags) or real(p, flags, *r))
    with pytest.raises(errors.ImageError, match="neither"):
        header.read("/dev/zero")
    assert opened
    assert all(flags & os.O_PATH for flags in opened)


def test_a_backing_file_that_is_a_fifo_hangs_nobody(tmp_path, fifo):
    top = tmp_path / "top.qcow2"
    qemu_img("create", "-q", "-f", "qcow2", "-u", "-b", fifo, "-F", "qcow2", top, "1M")
    found = chain.read(top, "qcow2")
    assert [link.path for link in found.links] == [str(top), str(fifo)]
    assert "neither a regular file" in found.broken


def test_a_name_with_a_nul_in_it_is_refused(tmp_path):
    evil = tmp_path / "evil.qcow2"
    qemu_img("create", "-q", "-f", "qcow2", "-u", "-b", "baseXfile", "-F", "raw", evil, "1M")
    evil.write_bytes(evil.read_bytes().replace(b"baseXfile", b"base\0file"))
    with pytest.raises(errors.ImageError, match="NUL"):
        inspect.inspect(evil, "qcow2")
    for read in (storage.open_for_reading, lambda path: storage.head(path, 4)):
        with pytest.raises(
            errors.ImageError, match=r"^'/a\\x00b' is neither a regular file nor a block"
        ):
            read("/a\0b")


# -- what an image is based on -------------------------------------------------------------


def test_a_chain_goes_by_what_is_declared(tmp_path, raw):
    top = tmp_path / "top.disk"
    qemu_img("create", "-q", "-f", "qcow2", "-b", raw, "-F", "raw", top)
    assert [link.path for link in chain.read(top, "qcow2").links] == [str(top), str(raw)]
    assert [link.format for link in chain.read(top, "qcow2").links] == ["qcow2", "raw"]
    assert [link.path for link in chain.read(top, "raw").links] == [str(top)]
    assert [link.path for link in chain.read(top).links] == [str(top), str(raw)]


def test_a_raw_base_is_the_end_whatever_is_in_it(tmp_path, qcow2):
    """The base is declared raw; what looks like a header in it is a guest's data."""
    middle, top = tmp_path / "middle", tmp_path / "top"
    qemu_img("create", "-q", "-f", "qcow2", "-b", qcow2, "-F", "qcow2", middle)
    qemu_img("create", "-q", "-f", "qcow2", "-u", "-b", middle, "-F", "raw", top, "64M")
    assert [link.path for link in chain.read(top, "qcow2").links] == [str(top), str(middle)]


def test_a_chain_knows_data_files_and_where_it_breaks(tmp_path):
    data, image = tmp_path / "data.raw", tmp_path / "split.qcow2"
    qemu_img("create", "-q", "-f", "qcow2", "-o", f"data_file={data}", image, "1M")
    assert chain.read(image, "qcow2").data_files == (str(data),)
    top = tmp_path / "top.qcow2"
    gone = tmp_path / "gone"
    qemu_img("create", "-q", "-f", "qcow2", "-u", "-b", gone, "-F", "qcow2", top, "1M")
    found = chain.read(top, "qcow2")
    assert [link.path for link in found.links] == [str(top), str(gone)]
    assert "does not exist" in found.broken


def test_a_chain_that_leads_back_or_too_deep_has_an_end(tmp_path, monkeypatch):
    one, other = tmp_path / "one", tmp_path / "other"
    for path, backing in ((one, other), (other, one)):
        qemu_img("create", "-q", "-f", "qcow2", "-u", "-b", backing, "-F", "qcow2", path, "1M")
    found = chain.read(one, "qcow2")
    assert ([link.path for link in found.links], found.broken) == ([str(one), str(other)], None)
    layers = [tmp_path / name for name in "abcd"]
    for path, backing in itertools.pairwise(layers):
        qemu_img("create", "-q", "-f", "qcow2", "-u", "-b", backing, "-F", "qcow2", path, "1M")
    qemu_img("create", "-q", "-f", "qcow2", layers[-1], "1M")
    monkeypatch.setattr(chain, "_MAX_DEPTH", 3)
    assert (len(chain.read(layers[0], "qcow2").links), chain.read(layers[0]).broken) == (4, None)
    monkeypatch.setattr(chain, "_MAX_DEPTH", 2)
    found = chain.read(layers[0], "qcow2")
    assert found.broken == f"{layers[0]} has more than 2 backing files"
    assert [link.path for link in found.links] == [str(path) for path in layers[:3]]


def test_the_base_of_a_qed_is_known_though_qed_is_no_image(tmp_path, raw):
    top = tmp_path / "top.qed"
    qemu_img("create", "-q", "-f", "qed", "-b", raw, "-F", "raw", top)
    assert [link.path for link in chain.read(top, "qed").links] == [str(top), str(raw)]
    with pytest.raises(errors.ImageError, match="qed"):
        inspect.inspect(top, "qed")


# -- clones -------------------------------------------------------------------------------


@pytest.mark.parametrize("source", ["raw", "qcow2"])
@pytest.mark.parametrize("format", ["raw", "qcow2"])
def test_a_clone_is_the_same_disk_and_no_bigger(request, tmp_path, source, format):
    image = inspect.inspect(request.getfixturevalue(source))
    target = tmp_path / "vm" / "system.disk"
    target.parent.mkdir()
    seen = []
    made = clone.clone(
        image, target, format, progress=lambda done, total: seen.append((done, total))
    )
    assert (made.format, made.size_bytes) == (format, 64 * MIB)
    assert info(target)["format"] == format
    same_content(image.path, target)
    assert allocated(target) <= allocated(image.path) * 1.05 + MIB
    assert made.method == "reflink" or seen[-1][0] == seen[-1][1] > 0
    assert os.listdir(target.parent) == ["system.disk"]
    assert target.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("source", ["raw", "qcow2"])
@pytest.mark.parametrize("format", ["raw", "qcow2"])
def test_a_clone_grows_to_the_size_asked_for(request, tmp_path, source, format):
    image = inspect.inspect(request.getfixturevalue(source))
    made = clone.clone(image, tmp_path / "big", format, size_bytes=200 * MIB)
    assert made.size_bytes == info(tmp_path / "big")["virtual-size"] == 200 * MIB
    assert allocated(tmp_path / "big") < 10 * MIB


def test_a_clone_never_shrinks(tmp_path, qcow2):
    with pytest.raises(errors.InvalidInput, match="never shrunk"):
        clone.clone(inspect.inspect(qcow2), tmp_path / "small", "qcow2", size_bytes=10 * MIB)
    assert not (tmp_path / "small").exists()


def test_a_compressed_image_stays_compressed(tmp_path):
    raw = tmp_path / "text.raw"
    raw.write_bytes((b"\0" * 510 + b"\x55\xaa") + b"salt virt " * MIB)
    source = tmp_path / "small.qcow2"
    qemu_img("convert", "-c", "-O", "qcow2", raw, source)
    clone.clone(inspect.inspect(source), tmp_path / "vm.qcow2", "qcow2", size_bytes=64 * MIB)
    assert allocated(tmp_path / "vm.qcow2") <= allocated(source) * 1.05 + MIB


def test_snapshots_of_the_image_are_not_the_guests(tmp_path, qcow2):
    qemu_img("snapshot", "-c", "before", qcow2)
    image = inspect.inspect(qcow2)
    assert image.snapshots == 1
    clone.clone(image, tmp_path / "vm.qcow2", "qcow2", size_bytes=100 * MIB)
    assert "snapshots" not in info(tmp_path / "vm.qcow2")
    assert info(tmp_path / "vm.qcow2")["virtual-size"] == 100 * MIB


@pytest.mark.parametrize("source", ["raw", "qcow2"])
def test_an_overlay_declares_its_base_and_the_bases_format(request, tmp_path, source):
    image = inspect.inspect(request.getfixturevalue(source))
    made = clone.clone(image, tmp_path / "vm.qcow2", "raw", size_bytes=1024 * MIB, overlay=True)
    found = info(tmp_path / "vm.qcow2")
    assert made.method == "overlay"
    assert (made.format, found["format"]) == ("qcow2", "qcow2")
    assert found["backing-filename"] == image.path
    assert found["backing-filename-format"] == image.format
    assert found["virtual-size"] == 1024 * MIB


def test_an_overlay_over_an_overlay_has_its_chain_opened_once_more(tmp_path, qcow2):
    """What lies below the base was not opened when the base was inspected."""
    base = tmp_path / "base.qcow2"
    clone.clone(inspect.inspect(qcow2), base, "qcow2", overlay=True)
    whole = Path(qcow2).read_bytes()
    Path(qcow2).write_bytes(whole[:40] + b"\0\0\0\0\0\0\0\7" + whole[48:])  # the L1 table's place
    with pytest.raises(errors.ImageError, match="cannot create an overlay of"):
        clone.clone(inspect.inspect(base, "qcow2"), tmp_path / "vm.qcow2", "qcow2", overlay=True)
    assert not (tmp_path / "vm.qcow2").exists()


@pytest.fixture
def opened(monkeypatch):
    """Arguments with which qemu-img opens images; those of the tests are as old as any."""
    real, seen = confined.run, []

    def run(argv, *more, **options):
        seen.append(argv[3:-3])
        return real(argv, *more, **options)

    monkeypatch.setattr(confined, "run", run)
    monkeypatch.setattr(inspect, "_UNCHANGED_S", -60)
    monkeypatch.setattr(inspect, "_info_cache", {})
    return seen


def test_an_image_of_many_guests_is_opened_once(qcow2, opened):
    found = inspect.inspect(qcow2, "qcow2", unused=True)
    assert inspect.inspect(qcow2, "qcow2") == found == inspect.inspect(qcow2, unused=True)
    assert opened == [[]]


def test_that_an_image_is_unused_is_true_for_a_moment(qcow2, opened, monkeypatch):
    inspect.inspect(qcow2)
    inspect.inspect(qcow2, unused=True)
    assert opened == [["-U"], []], "who did not ask does not know"
    monkeypatch.setattr(inspect, "_UNUSED_S", 0)
    inspect.inspect(qcow2, unused=True)
    assert opened == [["-U"], [], []]
    inspect.inspect(qcow2)
    assert len(opened) == 3


def test_an_image_that_changed_is_opened_again(qcow2, opened, tmp_path):
    inspect.inspect(qcow2, unused=True)
    qemu_img("resize", "-q", qcow2, "+1M")
    larger = inspect.inspect(qcow2, unused=True)
    assert opened == [[], []]
    qemu_img("create", "-q", "-f", "qcow2", tmp_path / "new.qcow2", "5M")
    os.replace(tmp_path / "new.qcow2", qcow2)
    assert inspect.inspect(qcow2).virtual_size_bytes == 5 * MIB != larger.virtual_size_bytes
    assert len(opened) == 3


def test_one_that_was_just_changed_may_change_unseen_and_is_opened_again(
    qcow2, opened, monkeypatch
):
    monkeypatch.setattr(inspect, "_UNCHANGED_S", 600)
    inspect.inspect(qcow2, unused=True)
    inspect.inspect(qcow2, unused=True)
    assert opened == [[], []]


def test_what_exists_is_left_as_it_is(tmp_path, qcow2):
    target = tmp_path / "vm.qcow2"
    target.write_text("mine")
    with pytest.raises(errors.AlreadyExists):
        clone.clone(inspect.inspect(qcow2), target, "qcow2")
    assert target.read_text() == "mine"


@pytest.mark.parametrize("format", ["raw", "qcow2"])
def test_a_disk_counts_when_its_storage_has_it(tmp_path, qcow2, monkeypatch, format):
    """A server may say only then that it is full, and a power cut takes what is in memory."""
    target, flushed = tmp_path / f"vm.{format}", []

    def fsync(fd):
        flushed.append(os.readlink(f"/proc/self/fd/{fd}"))
        raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(errors.ImageError, match=r"vm\.\w+: Disk quota exceeded"):
        clone.clone(inspect.inspect(qcow2), str(target), format)
    assert flushed == [str(tmp_path / f".vm.{format}.part")]
    assert not target.exists() and not os.path.exists(flushed[0])


def test_a_name_that_is_taken_while_the_disk_is_made_stays(tmp_path):
    target = tmp_path / "vm.raw"

    def fill(path):
        Path(path).write_text("ours")
        target.write_text("theirs")

    with pytest.raises(errors.AlreadyExists, match=r"vm.raw already exists and is left unchanged$"):
        clone.create_atomic(str(target), fill)
    assert (target.read_text(), os.listdir(tmp_path)) == ("theirs", ["vm.raw"])


def test_two_do_not_make_one_disk(tmp_path):
    target = str(tmp_path / "vm.raw")
    with clone.part_of(target) as part:
        Path(part).write_text("first")
        with pytest.raises(
            errors.AlreadyExists, match=r"vm.raw is being created by another process"
        ):
            clone.create_atomic(target, lambda path: Path(path).write_text("second"))
        assert Path(part).read_text() == "first"
    assert os.listdir(tmp_path) == []


def test_what_is_being_made_is_locked_where_no_qemu_locks_it(tmp_path):
    """GlusterFS and NFS make of an flock a lock of all bytes: qemu-img would not open the file."""
    with clone.part_of(str(tmp_path / "vm.raw")) as part, open(part, "r+b") as other:
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for byte in range(300):
            fcntl.fcntl(other, fcntl.F_OFD_SETLK, file_probe.flock(fcntl.F_WRLCK, byte))
        with pytest.raises(BlockingIOError):
            fcntl.fcntl(
                other, fcntl.F_OFD_SETLK, file_probe.flock(fcntl.F_WRLCK, clone._LOCKED_BYTE)
            )


def test_a_disk_of_another_format_is_refused(tmp_path, qcow2):
    with pytest.raises(errors.InvalidInput, match="raw or qcow2, not 'vmdk'"):
        clone.clone(inspect.inspect(qcow2), tmp_path / "vm", "vmdk")


def test_a_device_that_is_too_small_is_not_written_to(tmp_path, qcow2, monkeypatch):
    device = tmp_path / "device"
    device.write_bytes(b"x" * MIB)
    monkeypatch.setattr(clone, "_is_device", lambda path: path == str(device))
    with pytest.raises(errors.ImageError, match=r"device has 1 MiB, but the disk needs 64 MiB$"):
        clone.clone(inspect.inspect(qcow2), device, "raw")
    assert device.read_bytes() == b"x" * MIB


def test_an_image_that_becomes_shorter_while_it_is_copied_is_no_disk(tmp_path, raw, monkeypatch):
    monkeypatch.setattr(clone, "_CHUNK", MIB)
    with (
        open(raw, "r+b") as source,
        open(tmp_path / "vm.raw", "wb") as target,
        pytest.raises(OSError, match="was truncated during the copy"),
    ):
        clone.copy_sparse(source, target, lambda done, _: source.truncate(21 * MIB))


def test_what_the_kernel_refuses_is_neither_a_hole_nor_another_way_to_copy(tmp_path, raw):
    with pytest.raises(OSError, match="Bad file descriptor"):
        list(clone._extents(-1, MIB))
    with (
        open(raw, "ab") as source,
        open(tmp_path / "vm.raw", "wb") as target,
        pytest.raises(OSError, match="Bad file descriptor"),
    ):
        clone.copy_sparse(source, target)
    assert allocated(tmp_path / "vm.raw") == 0


def test_a_conversion_that_gets_no_further_is_ended(monkeypatch):
    monkeypatch.setattr(clone, "_STALL_TIMEOUT_S", 0)
    with subprocess.Popen(["sleep", "60"], stdout=subprocess.PIPE) as process:
        said = clone._follow(process, MIB, lambda *_: None)
    assert (said, process.returncode) == (b"qemu-img got no further for 0 s", -9)


def test_an_image_with_damaged_tables_is_no_disk(tmp_path, qcow2):
    target = tmp_path / "vm.raw"
    target.touch()
    found = inspect.inspect(qcow2)
    with open(qcow2, "r+b") as file:
        (tables,) = struct.unpack(">40xQ", file.read(48))
        file.seek(tables)
        file.write(struct.pack(">Q", 1 << 63 | 0x10200))  # where no table begins
    with pytest.raises(errors.ImageError, match=r"cannot use image .*disk.qcow2: "):
        clone._convert(found, str(target), "raw", lambda *_: None)


def test_what_qemu_img_says_of_a_conversion_that_fails_is_told(tmp_path, qcow2):
    target = tmp_path / "vm.raw"
    target.write_bytes(bytes(MIB // 2))
    found = inspect.inspect(qcow2)
    with pytest.raises(
        errors.ImageError, match=rf"^cannot convert {qcow2} to {target}: .*smaller than"
    ):
        clone._convert(found, str(target), "raw", lambda *_: None, existing=True)


def cut(path):
    """What holds an image's content is gone, and its tables name it still."""
    os.truncate(path, path.stat().st_size // 2)


def test_a_cut_image_on_this_host_is_not_converted_to_a_disk_of_zeros(tmp_path, qcow2):
    cut(qcow2)
    with pytest.raises(
        errors.ImageError, match=r"cannot use image .*disk.qcow2: .*end of the file"
    ):
        clone.clone(inspect.inspect(qcow2), tmp_path / "vm.raw", "raw")
    assert sorted(os.listdir(tmp_path)) == ["disk.qcow2", "disk.raw"]


def test_nor_is_what_is_based_on_one(tmp_path, qcow2):
    top = tmp_path / "top.qcow2"
    qemu_img("create", "-q", "-f", "qcow2", "-b", qcow2, "-F", "qcow2", top)
    whole = inspect.inspect(top, "qcow2")
    clone.clone(whole, tmp_path / "vm.raw", "raw")
    same_content(qcow2, tmp_path / "vm.raw")
    cut(qcow2)
    with pytest.raises(
        errors.ImageError, match=r"cannot use image .*disk.qcow2: .*end of the file"
    ):
        clone.clone(whole, tmp_path / "other.raw", "raw")


def test_a_failure_leaves_nothing_and_what_a_crash_left_is_used_up(tmp_path, qcow2):
    folder = tmp_path / "vms"
    folder.mkdir()
    (folder / ".vm.raw.part").write_bytes(b"x" * MIB)
    broken = tmp_path / "cut.qcow2"
    broken.write_bytes(qcow2.read_bytes()[: MIB // 2])
    with pytest.raises(errors.ImageError):
        clone.clone(inspect.inspect(broken), tmp_path / "no" / "vm.raw", "raw")
    clone.clone(inspect.inspect(qcow2), folder / "vm.raw", "raw")
    assert os.listdir(folder) == ["vm.raw"]
    same_content(qcow2, folder / "vm.raw")


def test_clones_at_once_have_the_same_content(tmp_path, qcow2):
    image = inspect.inspect(qcow2)
    targets = [tmp_path / f"vm{n}.qcow2" for n in range(10)]
    with ThreadPoolExecutor(10) as pool:
        list(pool.map(partial(clone.clone, image, format="qcow2"), targets))
    for target in targets:
        same_content(qcow2, target)


# -- the cache ----------------------------------------------------------------------------


class Master:
    """Stands for the master's file server: a folder, and how often it was read."""

    def __init__(self, folder):
        self.folder = folder
        self.copies = 0
        self.lock = threading.Lock()

    def _path(self, source):
        return self.folder / source.removeprefix("salt://")

    def version(self, source):
        path = self._path(source)
        if not path.exists():
            raise errors.NotFound(f"image {source} does not exist on the master")
        return {"hash_type": "sha256", "hsum": hashlib.sha256(path.read_bytes()).hexdigest()}

    def fetch(self, source, target, version, _progress):
        with self.lock:
            self.copies += 1
        with open(target, "wb") as file:
            file.write(self._path(source).read_bytes())
        return version

    def read(self, source):
        return self._path(source).read_text()


@pytest.fixture
def master(tmp_path, qcow2):
    folder = tmp_path / "master"
    folder.mkdir()
    os.rename(qcow2, folder / "debian.qcow2")
    return Master(folder)


def files(images):
    return sorted(name for name in os.listdir(images / "_base") if not name.startswith("."))


def test_one_copy_however_many_ask(tmp_path, master):
    images = tmp_path / "images"
    with ThreadPoolExecutor(10) as pool:
        got = list(
            pool.map(lambda _: cache.fetch("salt://debian.qcow2", images, master), range(10))
        )
    assert master.copies == 1
    assert len(set(got)) == 1
    assert got[0].sha256 == hashlib.sha256(Path(got[0].path).read_bytes()).hexdigest()
    assert os.stat(got[0].path).st_mode & 0o777 == 0o444
    assert os.listdir(images / "_base" / ".partial") == []


def test_a_new_version_leaves_the_old_file_alone(tmp_path, master, raw):
    images = tmp_path / "images"
    old = cache.fetch("salt://debian.qcow2", images, master)
    before = Path(old.path).read_bytes()
    qemu_img("convert", "-O", "raw", raw, master.folder / "debian.qcow2")
    new = cache.fetch("salt://debian.qcow2", images, master)
    assert new.path != old.path
    assert (old.format, new.format) == ("qcow2", "raw")
    assert Path(old.path).read_bytes() == before
    assert len(files(images)) == 2
    assert [one.path for one in cache.cached_images(images)] == sorted([old.path, new.path])


def test_what_the_master_lacks_is_named_and_nothing_is_kept(tmp_path, master):
    with pytest.raises(errors.NotFound, match=r"salt://none\.qcow2"):
        cache.fetch("salt://none.qcow2", tmp_path / "images", master)
    assert files(tmp_path / "images") == []


def test_what_is_no_image_is_not_kept(tmp_path, master):
    (master.folder / "top.sls").write_text("base:\n  '*': []\n" * 100)
    with pytest.raises(errors.ImageError, match="not a disk image"):
        cache.fetch("salt://top.sls", tmp_path / "images", master)
    assert files(tmp_path / "images") == []
    assert os.listdir(tmp_path / "images" / "_base" / ".partial") == []


@pytest.mark.parametrize(
    "source",
    ["debian.qcow2", "../x", "file:///etc/passwd", "s3://x/y", "salt://", "", "http://", "/a\nb"],
)
def test_an_address_that_means_nothing_is_refused(tmp_path, source):
    with pytest.raises(errors.InvalidInput):
        cache.fetch(source, tmp_path / "images")
    assert not (tmp_path / "images").exists()


def test_a_file_on_the_host_is_used_where_it_lies(tmp_path, raw):
    found = cache.fetch(str(raw), tmp_path / "images")
    assert (found.path, found.format) == (str(raw), "raw")
    assert not (tmp_path / "images").exists()


def test_the_demanded_hash(tmp_path, master):
    content = (master.folder / "debian.qcow2").read_bytes()
    right = hashlib.sha512(content).hexdigest()
    (master.folder / "SUMS").write_text(f"{'0' * 64}  other.qcow2\n{right} *debian.qcow2\n")
    for image_hash in (right, f"sha512:{right.upper()}", "salt://SUMS"):
        found = cache.fetch("salt://debian.qcow2", tmp_path / "images", master, image_hash)
        assert found.sha256 == hashlib.sha256(content).hexdigest()
    assert master.copies == 1


@pytest.mark.parametrize(
    ("text", "digits"),
    [
        ("SHA256 (a.img) = {a}\nSHA256 (b.img) = {b}\n", "b"),
        ("{b}\n", "b"),
        ("{a}\n{b}  b.img\n", "b"),
        ("{b} *./pool/b.img\n{a}  b.img.asc\n", "b"),
        ("{a}\n{b}  c.img\n", None),
        ("MD5 (b.img) = {b}\n", None),
        ("", None),
    ],
)
def test_a_list_of_hashes_as_it_is_written(text, digits):
    known = {"a": "a1" * 32, "b": "b2" * 32}
    if digits is None:
        with pytest.raises(errors.ImageError, match=r"^SUMS contains no hash of b\.img$"):
            checksum.from_list(text.format(**known), "b.img", "SUMS")
        return
    found = checksum.from_list(text.format(**known), "b.img", "SUMS")
    assert found == ("sha256", known[digits])


def test_a_wrong_hash_keeps_nothing(tmp_path, master, raw):
    images = tmp_path / "images"
    with pytest.raises(errors.ImageError, match="instead of"):
        cache.fetch("salt://debian.qcow2", images, master, "ab" * 32)
    assert files(images) == []
    with pytest.raises(errors.ImageError, match="instead of"):
        cache.fetch(str(raw), images, None, "ab" * 32)
    for bad in ("md5:" + "a" * 32, "abc", "sha256:" + "a" * 128):
        with pytest.raises(errors.InvalidInput, match="image_hash"):
            cache.fetch("salt://debian.qcow2", images, master, bad)


# -- from the web -------------------------------------------------------------------------


class Web(BaseHTTPRequestHandler):
    """A server with ranges, which can cut an answer in the middle."""

    content = b""
    etag = '"1"'
    cut_after = None
    log = []
    files = {}

    def do_HEAD(self):
        self._head(200, len(self.content))

    def do_GET(self):
        start = 0
        asked = self.headers.get("Range")
        if asked and self.headers.get("If-Range") == self.etag:
            start = int(asked.removeprefix("bytes=").rstrip("-"))
        body = self.files.get(self.path, self.content)[start:]
        type(self).log.append(start)
        if self.path == "/none":
            self.send_error(404)
            return
        self._head(206 if start else 200, len(body), start)
        if type(self).cut_after is not None:
            body, type(self).cut_after = body[: type(self).cut_after], None
        self.wfile.write(body)

    def _head(self, status, length, start=0):
        self.send_response(404 if self.path == "/none" else status)
        if status == 206:
            end = start + length
            self.send_header("Content-Range", f"bytes {start}-{end - 1}/{end}")
        self.send_header("ETag", self.etag)
        self.send_header("Content-Length", str(length))
        self.end_headers()

    def log_message(self, *_args):
        pass


@pytest.fixture
def web(qcow2):
    Web.content, Web.etag, Web.cut_after = qcow2.read_bytes(), '"1"', None
    Web.log, Web.files = [], {}
    server = ThreadingHTTPServer(("127.0.0.1", 0), Web)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def test_a_download_cut_in_half_goes_on_where_it_stopped(tmp_path, web, qcow2):
    Web.cut_after = 2 * MIB
    found = cache.fetch(f"{web}/cloud/debian.qcow2", tmp_path / "images")
    assert [start > 0 for start in Web.log] == [False, True]
    assert sum(Web.log) == 2 * MIB
    assert Path(found.path).read_bytes() == qcow2.read_bytes()
    assert os.path.basename(found.path).startswith("debian-")


def test_a_second_download_moves_nothing_and_a_new_version_is_noticed(tmp_path, web, raw):
    address = f"{web}/debian.qcow2"
    first = cache.fetch(address, tmp_path / "images")
    assert cache.fetch(address, tmp_path / "images") == first
    assert len(Web.log) == 1
    Web.content, Web.etag = raw.read_bytes(), '"2"'
    assert cache.fetch(address, tmp_path / "images").path != first.path


@contextlib.contextmanager
def nonsense(said):
    """The address of a server that answers each request with these lines of a header."""

    class Nonsense(socketserver.BaseRequestHandler):
        def handle(self):
            self.request.recv(4096)
            self.request.sendall(b"HTTP/1.1 " + said + b"\r\n\r\nimage")

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Nonsense) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/a.img"
        finally:
            server.shutdown()


@pytest.mark.parametrize(
    "said", [b"200 OK\r\nContent-Length: much", b"302 Found\r\nLocation: http://[", b"nothing"]
)
def test_a_server_that_speaks_nonsense_is_one_line(tmp_path, monkeypatch, said):
    monkeypatch.setattr(web_of, "_PAUSE_S", 0)
    with nonsense(said) as address, pytest.raises(errors.ImageError, match="cannot fetch"):
        cache.fetch(address, tmp_path)


@pytest.mark.parametrize("length", [b"\xb2", b"1" * 5000])
def test_a_list_whose_length_is_no_number_is_read(length):
    with nonsense(b"200 OK\r\nContent-Length: " + length) as address:
        assert web_of.read_list(address) == "image"


@pytest.mark.parametrize("address", ["http://127.0.0.1:9/\u00fc", "http://.a/x", "ftp://.a/x"])
def test_an_address_that_cannot_be_asked_is_one_line(tmp_path, address):
    with pytest.raises(errors.ImageError, match="cannot fetch"):
        cache.fetch(address, tmp_path)


def test_what_the_web_lacks_is_named_without_the_password(tmp_path, web):
    address = web.replace("http://", "http://user:secret@") + "/none"
    with pytest.raises(errors.NotFound, match="404") as caught:
        cache.fetch(address, tmp_path / "images")
    assert "secret" not in str(caught.value)


@pytest.fixture
def other_host():
    """Another server, which tells what it was asked with; and one that leads where it is told."""

    class Other(BaseHTTPRequestHandler):
        seen, leads, content = [], None, b""

        def do_HEAD(self):
            self._answer(b"")

        def do_GET(self):
            self._answer(self.content)

        def _answer(self, body):
            Other.seen.append(self.headers.get("Authorization"))
            self.send_response(302 if Other.leads else 200)
            if Other.leads:
                self.send_header("Location", Other.leads)
            self.send_header("Content-Length", str(len(self.content)))
            self.end_headers()
            self.wfile.write(b"" if Other.leads else body)

        def log_message(self, *_args):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Other)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield SimpleNamespace(handler=Other, url=f"http://127.0.0.1:{server.server_port}")
    server.shutdown()
    server.server_close()


def test_credentials_stay_with_the_host_they_are_for(tmp_path, web, other_host, qcow2):
    leading = type("Leading", (other_host.handler,), {})
    other_host.handler.content = qcow2.read_bytes()
    asked = []

    def moved(self):
        asked.append(self.headers.get("Authorization"))
        self.send_response(302)
        self.send_header("Location", other_host.url + "/disk.qcow2")
        self.send_header("Content-Length", "0")
        self.end_headers()

    leading.do_GET = leading.do_HEAD = moved
    server = ThreadingHTTPServer(("127.0.0.1", 0), leading)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        address = f"http://user:secret@127.0.0.1:{server.server_port}/disk.qcow2"
        cache.fetch(address, tmp_path / "images")
    finally:
        server.shutdown()
        server.server_close()
    assert set(asked) == {"Basic dXNlcjpzZWNyZXQ="}
    assert set(other_host.handler.seen) == {None}


@pytest.mark.parametrize(
    ("start", "leads", "why"),
    [
        ("https://a.example/x.qcow2", "http://a.example/x.qcow2", "from https to http"),
        ("http://a.example/x.qcow2", "ftp://a.example/x.qcow2", "refused"),
        ("http://a.example/x.qcow2", "http://user:secret@b.example/x.qcow2", "refused"),
    ],
)
def test_where_a_server_may_not_lead(start, leads, why):
    headers = email.message.Message()
    with pytest.raises(errors.ImageError, match=why) as caught:
        web_of._Redirects().redirect_request(
            web_of._request(start), None, 302, "moved", headers, leads
        )
    assert "secret" not in str(caught.value)


def test_a_server_that_leads_to_no_port_is_not_followed():
    with pytest.raises(http.client.InvalidURL, match="Port out of range"):
        web_of._Redirects().redirect_request(
            web_of._request("http://user:secret@a.example/x"),
            *(None, 302, "moved", email.message.Message(), "http://a.example:99999/y"),
        )


def test_a_server_that_knows_no_head_tells_no_version():
    class Plain(BaseHTTPRequestHandler):
        def log_message(self, *_args):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Plain) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            address = f"http://127.0.0.1:{server.server_address[1]}/a.img"
            assert web_of.client(address).version(address) == {}
            with pytest.raises(errors.ImageError, match="HTTP 501"):
                web_of.read_list(address)
        finally:
            server.shutdown()


def test_credentials_stay_where_only_the_path_changes():
    request = web_of._request("https://user:secret@a.example/x")
    moved = [request, None, 302, "moved", email.message.Message()]
    same = web_of._Redirects().redirect_request(*moved, "https://a.example:443/y")
    other = web_of._Redirects().redirect_request(*moved, "https://a.example:444/y")
    assert same.has_header("Authorization")
    assert not other.has_header("Authorization")


def test_a_download_leaves_room_for_the_guests(tmp_path, web, monkeypatch):
    images = tmp_path / "images"
    full = SimpleNamespace(total=100 * MIB, free=5 * MIB + 1)
    monkeypatch.setattr(free_space.shutil, "disk_usage", lambda _: full)
    with pytest.raises(
        errors.Refused, match=r"5.* MiB free, of which 5 MiB are reserved: free some space"
    ):
        cache.fetch(f"{web}/debian.qcow2", images)
    assert os.listdir(images / "_base" / ".partial") == []
    with pytest.raises(errors.Refused, match="is larger than 2 TiB"):
        free_space.SpaceGuard("image x", tmp_path).check(free_space.MAX_BYTES + 1, None)
    with pytest.raises(errors.Refused, match=r"has 3 TiB|is larger"):
        free_space.SpaceGuard("image x", tmp_path).check(1, 3 * 1024**4)


def test_no_address_is_shown_with_what_lets_one_in(tmp_path):
    assert sources.shown("https://u:p@a/x.img?sig=1") == "https://…@a/x.img?…"
    assert sources.shown("salt://x.qcow2?saltenv=dev") == "salt://x.qcow2?saltenv=dev"
    assert sources.shown("/srv/a?b@c") == "/srv/a?b@c"
    assert sources.shown("https://u:p@[h/x.img") == "https://…@[h/x.img"
    for bad in ("htps://user:secret@a/x", "https://user:secret@a:port/x", "http://u:secret@[::1/x"):
        with pytest.raises(errors.InvalidInput) as caught:
            sources.kind(bad)
        assert "secret" not in str(caught.value)


def test_a_list_of_hashes_that_is_a_pipe_is_not_waited_for(tmp_path, raw, fifo):
    with pytest.raises(errors.ImageError, match="neither a regular file"):
        cache.fetch(str(raw), tmp_path / "images", None, str(fifo))


def test_a_truncated_qcow2_is_refused(tmp_path, web):
    Web.content = Web.content[: len(Web.content) // 2]
    with pytest.raises(errors.ImageError):
        cache.fetch(f"{web}/debian.qcow2", tmp_path / "images")
    assert files(tmp_path / "images") == []


# -- who needs what -----------------------------------------------------------------------


DOMAIN = """<domain type='test'><name>{name}</name><memory>65536</memory><os><type>hvm</type></os>
<devices><disk type='file' device='disk'><driver name='qemu' type='qcow2'/><source file='{path}'/>
<target dev='vda' bus='virtio'/></disk></devices></domain>"""


def test_images_that_are_needed_stay(tmp_path, master, raw, conn):
    from saltvirt.host.storage import image_users

    images = tmp_path / "images"
    names = {}
    for vm in ("web1", "orphan", "unused"):
        qemu_img("convert", "-O", "qcow2", raw, master.folder / f"{vm}.qcow2")
        image = cache.fetch(f"salt://{vm}.qcow2", images, master)
        names[vm] = os.path.basename(image.path)
        (images / vm).mkdir()
        if vm != "unused":
            clone.clone(image, images / vm / "system.qcow2", "qcow2", overlay=True)
    # a snapshot's overlay on the overlay: the chain is followed to its end
    top = images / "web1" / "system.snap1"
    lower = images / "web1" / "system.qcow2"
    qemu_img("create", "-q", "-f", "qcow2", "-b", lower, "-F", "qcow2", top)
    domain = conn.defineXML(DOMAIN.format(name="web1", path=top))

    listed = image_users.listed(conn, images)
    assert listed[names["web1"]]["used_by"] == ["web1"]
    assert listed[names["orphan"]]["used_by"] == [str(images / "orphan" / "system.qcow2")]
    assert listed[names["unused"]]["used_by"] == []
    assert image_users.prune(conn, images)["removed"] == []  # just fetched

    with pytest.raises(errors.Refused, match="used by web1"):
        image_users.prune(conn, images, names["web1"], grace_s=0)
    told = image_users.prune(conn, images, grace_s=0, test=True)
    assert told["removed"] == [names["unused"]] and names["unused"] in files(images)
    done = image_users.prune(conn, images, grace_s=0)
    assert done == told and names["unused"] not in files(images)
    assert sorted(done["retained"]) == sorted([names["web1"], names["orphan"]])
    assert files(images) == sorted([names["web1"], names["orphan"]])

    domain.undefine()
    top.unlink()
    lower.unlink()
    assert image_users.prune(conn, images, names["web1"], grace_s=0)["removed"] == [names["web1"]]
    with pytest.raises(errors.NotFound):
        image_users.prune(conn, images, "none.qcow2")


def test_an_image_that_is_asked_for_while_others_are_asked_about_it_stays(
    tmp_path, master, raw, conn, monkeypatch
):
    """Who makes a guest is given the image while prune still looks who needs it."""
    from saltvirt.host.storage import image_users

    images = str(tmp_path / "images")
    qemu_img("convert", "-O", "qcow2", raw, master.folder / "web1.qcow2")
    name = os.path.basename(cache.fetch("salt://web1.qcow2", images, master).path)
    long_ago = time.time() - 3600
    os.utime(os.path.join(images, "_base", ".meta", f"{name}.json"), (long_ago, long_ago))
    real = image_users.usage.open_reason

    def held(conn, path):
        cache.fetch("salt://web1.qcow2", images, master)
        return real(conn, path)

    monkeypatch.setattr(image_users.usage, "open_reason", held)
    assert image_users.prune(conn, images) == {
        "removed": [],
        "retained": {name: "used a few minutes ago"},
    }
    assert os.path.exists(os.path.join(images, "_base", name))


def test_a_download_that_nobody_goes_on_with_is_pruned(tmp_path, conn):
    from saltvirt.host.storage import image_users

    images = tmp_path / "images"
    parts = images / "_base" / ".partial"
    parts.mkdir(parents=True)
    long_ago = time.time() - 8 * 24 * 3600
    left, young, at_work = (cache.key(f"http://images/{n}.qcow2") for n in ("a", "b", "c"))
    for name in (left, young, at_work):
        for path in (parts / name, parts / f"{name}.json"):
            path.write_text("{}")
            if name != young:
                os.utime(path, (long_ago, long_ago))
    (parts / "notes").write_text("an operator's")
    os.utime(parts / "notes", (long_ago, long_ago))
    with file_lock.exclusive(str(images / "_base" / ".locks" / at_work)):
        assert image_users.prune(conn, str(images), test=True)["removed"] == [f".partial/{left}"]
        assert (parts / left).exists()
        done = image_users.prune(conn, str(images))
    assert done == {"removed": [f".partial/{left}"], "retained": {}}
    kept = {"notes", young, f"{young}.json", at_work, f"{at_work}.json"}
    assert set(os.listdir(parts)) == kept


def test_a_pruned_image_is_fetched_again(tmp_path, master, conn):
    from saltvirt.host.storage import image_users

    images = tmp_path / "images"
    first = cache.fetch("salt://debian.qcow2", images, master)
    image_users.prune(conn, images, grace_s=0)
    assert not os.path.exists(first.path)
    assert cache.fetch("salt://debian.qcow2", images, master) == first
    assert master.copies == 2


def test_a_copy_from_the_master_goes_on_where_it_stopped(tmp_path, master):
    from saltvirt.images import sources

    content = (master.folder / "debian.qcow2").read_bytes()
    offsets = []
    broken = {MIB: 1}

    def chunk(source, saltenv, offset):
        assert (source, saltenv) == ("salt://debian.qcow2", "dev")
        if broken.pop(offset, 0):
            raise errors.ImageError("the master restarts")
        offsets.append(offset)
        return content[offset : offset + MIB // 2]

    digest = {"hash_type": "sha256", "hsum": hashlib.sha256(content).hexdigest()}
    call = {"cp.hash_file": lambda source, saltenv: digest}
    found = cache.fetch(
        "salt://debian.qcow2", tmp_path / "images", sources.SaltFiles(call, "dev", chunk)
    )
    assert found.sha256 == digest["hsum"]
    assert offsets == sorted(set(offsets))


def salt_files(chunk, digest=None):
    """The master's files of which ``chunk`` has the bytes."""

    def hash_file(source, saltenv):
        if digest is None:
            raise TimeoutError("no answer")
        return digest

    return sources.SaltFiles({"cp.hash_file": hash_file}, None, lambda _s, _e, at: chunk(at))


def test_a_master_that_does_not_answer_is_one_line(monkeypatch, tmp_path):
    asked = []

    def chunk(offset):
        asked.append(offset)
        raise errors.ImageError("the master restarts")

    monkeypatch.setattr(sources, "_PAUSE_S", 0)
    found = salt_files(chunk)
    with pytest.raises(errors.ImageError, match=r"^cannot ask the master for salt://a: no answer$"):
        found.version("salt://a")
    with pytest.raises(errors.ImageError, match="the master restarts"):
        found.fetch("salt://a", str(tmp_path / "a"), {}, lambda *_: None)
    assert asked == [0] * 4


def test_a_list_of_hashes_of_the_masters_has_an_end():
    text = b"\xff" + b"a" * MIB
    assert salt_files(lambda at: text[at:]).read("salt://SUMS") == "\ufffd" + "a" * MIB
    with pytest.raises(errors.ImageError, match="the list of hashes is larger than 4194304 bytes"):
        salt_files(lambda at: text).read("salt://SUMS")


def test_a_file_that_changes_while_it_is_copied_is_not_kept(tmp_path, master):
    from saltvirt.images import sources

    content = (master.folder / "debian.qcow2").read_bytes()
    call = {"cp.hash_file": lambda source, saltenv: {"hash_type": "sha256", "hsum": "0" * 64}}
    files_ = sources.SaltFiles(call, "base", lambda _s, _e, offset: content[offset:])
    with pytest.raises(errors.ImageError, match="changed during"):
        cache.fetch("salt://debian.qcow2", tmp_path / "images", files_)
    assert files(tmp_path / "images") == []


# -- by FTP -------------------------------------------------------------------------------


@pytest.fixture
def ftp(tmp_path, qcow2):
    (tmp_path / "ftp" / "pub").mkdir(parents=True)
    os.rename(qcow2, tmp_path / "ftp" / "pub" / "debian.qcow2")
    server = ftpd.Server(tmp_path / "ftp", "me", "s3cret")
    yield server
    server.stop()


def test_an_image_by_ftp_goes_on_where_it_was_cut(tmp_path, ftp, raw):
    address = f"ftp://me:s3cret@{ftp.address}/pub/debian.qcow2"
    file = ftp.folder / "pub" / "debian.qcow2"
    content = file.read_bytes()
    ftp.cut_after = 2 * MIB
    found = cache.fetch(address, tmp_path / "images", None, hashlib.sha256(content).hexdigest())
    assert Path(found.path).read_bytes() == content
    assert ("REST", str(2 * MIB)) in ftp.log
    downloads = sum(verb == "RETR" for verb, _ in ftp.log)
    assert downloads == 2
    assert cache.fetch(address, tmp_path / "images").path == found.path
    assert sum(verb == "RETR" for verb, _ in ftp.log) == downloads
    qemu_img("convert", "-O", "raw", raw, file)
    assert cache.fetch(address, tmp_path / "images").path != found.path
    kept = [json.dumps(one.to_answer()) for one in cache.cached_images(tmp_path / "images")]
    assert len(kept) == 2
    assert "s3cret" not in "".join(kept)


def test_what_ftp_lacks_or_refuses_is_named_without_the_password(tmp_path, ftp):
    with pytest.raises(errors.NotFound, match="does not exist") as caught:
        cache.fetch(f"ftp://me:s3cret@{ftp.address}/pub/none", tmp_path / "images")
    assert "s3cret" not in str(caught.value)
    with pytest.raises(errors.ImageError, match="530") as caught:
        cache.fetch(f"ftp://me:wr0ng@{ftp.address}/pub/debian.qcow2", tmp_path / "images")
    assert "wr0ng" not in str(caught.value)
    assert files(tmp_path / "images") == []


def test_the_demanded_hash_from_a_list_in_the_web(tmp_path, web, qcow2):
    right = hashlib.sha256(qcow2.read_bytes()).hexdigest()
    Web.files = {"/SHA256SUMS": f"{right}  debian.qcow2\n{'0' * 64}  other.qcow2\n".encode()}
    image = f"{web}/debian.qcow2"
    found = cache.fetch(image, tmp_path / "images", None, f"{web}/SHA256SUMS")
    assert found.sha256 == right
    Web.files = {"/SHA256SUMS": f"{'0' * 64}  debian.qcow2\n".encode()}
    with pytest.raises(errors.ImageError, match="instead of"):
        cache.fetch(image, tmp_path / "other", None, f"{web}/SHA256SUMS")
    assert files(tmp_path / "other") == []
    Web.files = {"/SHA256SUMS": f"{'0' * 64}  other.qcow2\n".encode()}
    with pytest.raises(errors.ImageError, match=r"contains no hash of debian\.qcow2"):
        cache.fetch(image, tmp_path / "other", None, f"{web}/SHA256SUMS")
    with pytest.raises(errors.NotFound, match="/none does not exist: HTTP 404"):
        cache.fetch(image, tmp_path / "other", None, f"{web}/none")
    assert files(tmp_path / "other") == []


def test_a_list_of_hashes_that_was_cut_says_nothing_of_the_image(tmp_path, web, qcow2):
    right = hashlib.sha256(qcow2.read_bytes()).hexdigest()
    lines = f"{right}  debian.qcow2\n{'0' * 64}  debian.qcow2.asc\n"
    Web.files, Web.cut_after = {"/SHA256SUMS": lines.encode()}, len(lines) - 5
    with pytest.raises(errors.ImageError, match=r"cannot fetch .*/SHA256SUMS: .*5 more expected"):
        cache.fetch(f"{web}/debian.qcow2", tmp_path / "images", None, f"{web}/SHA256SUMS")
    assert not (tmp_path / "images").exists()


def test_a_list_of_hashes_that_is_too_long_is_not_read_in_part(tmp_path, web, raw):
    Web.files = {"/SHA256SUMS": b"a" * (4 * MIB + 1)}
    (tmp_path / "SUMS").write_bytes(Web.files["/SHA256SUMS"])
    for where in (f"{web}/SHA256SUMS", str(tmp_path / "SUMS")):
        with pytest.raises(errors.ImageError, match="larger than 4194304 bytes"):
            cache.fetch(str(raw), tmp_path / "images", None, where)


def test_what_runs_confined_has_memory_for_its_threads():
    """qemu-img begins a thread for each request that waits."""
    program = (
        "import threading, time\n"
        "def work():\n    kept = bytes(100_000)\n    time.sleep(1)\n"
        "all = [threading.Thread(target=work) for _ in range(64)]\n"
        "[t.start() for t in all]; [t.join() for t in all]\n"
    )
    confined.run(["/usr/bin/python3", "-c", program], "start threads")


SHARE = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from saltvirt.images import cache, clone
source, target = (Path(sys.argv[1]) / name for name in ("image.raw", "web1.raw"))
content = bytes(510) + b"\\x55\\xaa" + bytes(range(256)) * 32768
source.write_bytes(content)
made = clone.clone(cache.fetch(str(source)), str(target), "raw")
same = target.read_bytes() == content
with open(target, "r+b") as file:
    file.write(b"the guest's")
print(made.method, same, source.read_bytes() == content)
"""


def test_a_file_system_that_shares_blocks_copies_none(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("only root can mount")
    disk, folder = tmp_path / "disk", tmp_path / "xfs"
    folder.mkdir()
    with open(disk, "wb") as file:
        file.truncate(512 * MIB)
    subprocess.run(["mkfs.xfs", "-q", "-m", "reflink=1", disk], check=True)
    script = 'mount -o loop "$1" "$2" && exec "$3" -c "$4" "$2" "$5"'
    given = [disk, folder, sys.executable, SHARE, paths.REPOSITORY / "_utils"]
    argv = ["unshare", "-m", "sh", "-c", script, "sh", *given]
    done = subprocess.run(list(map(str, argv)), check=False, capture_output=True, text=True)
    assert done.stdout == "reflink True True\n", done.stderr
