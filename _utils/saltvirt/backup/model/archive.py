"""The state of a guest beside its disks, as a backup has it: its firmware variables and the state
of its TPM, in a tar archive with the digest of each file."""

from __future__ import annotations

import hashlib
import io
import json
import re
import tarfile
from collections.abc import Mapping

from saltvirt.errors import BadAnswer
from saltvirt.units import short_repr

# of the files in all: the variables of ARM's firmware have 64 MiB
MAX_BYTES = 96 * 1024**2
MAX_FILES = 64
# of an archive: with its headers
MAX_ARCHIVE_BYTES = MAX_BYTES + 1024**2
VARIABLES, TPM = "variables.", "tpm/"
_DIGESTS = "digests.json"
# a qcow2 is compressed by whole clusters
_CLUSTER_BYTES = 64 * 1024
_NAME = re.compile(r"variables\.(fd|qcow2)|tpm(/[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}){1,3}", re.ASCII)


def pack(files: Mapping[str, bytes]) -> bytes:
    """The archive. files: name to content. Raises BadAnswer for what could not be read again."""
    _check({name: len(data) for name, data in files.items()}, "the state of the guest")
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    contents = {_DIGESTS: json.dumps(digests, indent=1, sort_keys=True).encode("ascii"), **files}
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, data in contents.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(data), 0o600
            tar.addfile(member, io.BytesIO(data))
    return stream.getvalue() + bytes(-stream.tell() % _CLUSTER_BYTES)


def unpack(data: bytes, label: str) -> dict[str, bytes]:
    """The files in an archive, each as its digest says. Raises BadAnswer."""
    files: dict[str, bytes] = {}
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as tar:
            for member in tar:
                # the holes of a sparse one would fill the memory
                plain = member.isreg() and not member.issparse() and member.size <= MAX_BYTES
                if not plain or member.name in files or len(files) > MAX_FILES:
                    raise BadAnswer(f"{label}: {short_repr(member.name)} is no file of the state")
                file = tar.extractfile(member)
                files[member.name] = file.read() if file else b""
        digests = json.loads(files.pop(_DIGESTS))
    except (tarfile.TarError, ValueError, KeyError, RecursionError, EOFError) as exc:
        raise BadAnswer(f"{label}: it is no archive of a guest's state") from exc
    _check({name: len(content) for name, content in files.items()}, label)
    if digests != {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}:
        raise BadAnswer(f"{label}: a file in it is not what its digest says")
    return files


def _check(lengths: Mapping[str, int], label: str) -> None:
    for name in lengths:
        if not _NAME.fullmatch(name):
            raise BadAnswer(f"{label}: {short_repr(name)} is no name of a file in it")
    if len(lengths) > MAX_FILES or sum(lengths.values()) > MAX_BYTES:
        raise BadAnswer(f"{label}: it is larger than any guest's state")
