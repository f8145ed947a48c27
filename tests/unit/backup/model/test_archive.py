"""The archive of a guest's state files: digests are checked, and its size is limited."""

import io
import tarfile

import pytest

from saltvirt.backup.model import archive
from saltvirt.errors import BadAnswer

FILES = {"variables.fd": b"v" * 70000, "tpm/tpm2/tpm2-00.permall": b"secret"}


def sparse(size):
    """An old GNU archive with one file that is all hole."""
    head = bytearray(512)
    for at, text in (
        (0, b"variables.fd"), (100, b"0000600"), (108, b"0000000"), (116, b"0000000"),
        (124, b"00000000000"), (136, b"00000000000"), (156, b"S"), (257, b"ustar  "),
        (386, b"00000000000"), (398, b"00000000000"), (483, b"%012o" % size), (148, b" " * 8),
    ):  # fmt: skip
        head[at : at + len(text)] = text
    head[148:156] = b"%06o\0 " % sum(head)
    return bytes(head) + bytes(1024)


def tar_of(member, data=b""):
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        tar.addfile(member, io.BytesIO(data))
    return stream.getvalue()


def link():
    found = tarfile.TarInfo("variables.fd")
    found.type, found.linkname = tarfile.SYMTYPE, "/etc/shadow"
    return tar_of(found)


def test_what_was_packed_is_unpacked():
    assert archive.unpack(archive.pack(FILES), "it") == FILES


@pytest.mark.parametrize("data", [
    sparse(8 * 1024**3), link(), tar_of(tarfile.TarInfo("variables.fd")), b"", bytes(65536), b"x",
    archive.pack(FILES).replace(b"secret", b"Secret"),
], ids=["sparse", "a link", "no digests", "nothing", "zeros", "no archive", "another"])  # fmt: skip
def test_what_is_not_as_its_digests_say_is_refused(data):
    with pytest.raises(BadAnswer, match=r"^it: "):
        archive.unpack(data, "it")


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "tpm/../x", "variables.sh", "tpm/a/b/c/d"])
def test_no_name_leads_elsewhere(name):
    with pytest.raises(BadAnswer, match="unexpected file name"):
        archive.pack({name: b""})
