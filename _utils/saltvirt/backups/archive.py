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
from saltvirt.units import shown

# of the files in all: the variables of ARM's firmware have 64 MiB
MOST_BYTES = 96 * 1024**2
MOST_FILES = 64
# of an archive: with its headers
MOST_ARCHIVE_BYTES = MOST_BYTES + 1024**2
VARIABLES, TPM = "variables.", "tpm/"
_DIGESTS = "digests.json"
# a qcow2 is compressed by whole clusters
_CLUSTER_BYTES = 64 * 1024
_NAME = re.compile(r"variables\.(fd|qcow2)|tpm(/[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}){1,3}", re.ASCII)


def packed(files: Mapping[str, bytes]) -> bytes:
    """The archive. files: name to content. Raises BadAnswer for what could not be read again."""
    _check({name: len(data) for name, data in files.items()}, "the state of the guest")
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    told = {_DIGESTS: json.dumps(digests, indent=1, sort_keys=True).encode("ascii"), **files}
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, data in told.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(data), 0o600
            tar.addfile(member, io.BytesIO(data))
    return stream.getvalue() + bytes(-stream.tell() % _CLUSTER_BYTES)


def unpacked(data: bytes, whose: str) -> dict[str, bytes]:
    """The files in an archive, each as its digest says. Raises BadAnswer."""
    found: dict[str, bytes] = {}
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as tar:
            for member in tar:
                # the holes of a sparse one would fill the memory
                plain = member.isreg() and not member.issparse() and member.size <= MOST_BYTES
                if not plain or member.name in found or len(found) > MOST_FILES:
                    raise BadAnswer(f"{whose}: {shown(member.name)} is no file of the state")
                file = tar.extractfile(member)
                found[member.name] = file.read() if file else b""
        digests = json.loads(found.pop(_DIGESTS))
    except (tarfile.TarError, ValueError, KeyError, RecursionError, EOFError) as exc:
        raise BadAnswer(f"{whose}: it is no archive of a guest's state") from exc
    _check({name: len(content) for name, content in found.items()}, whose)
    if digests != {name: hashlib.sha256(content).hexdigest() for name, content in found.items()}:
        raise BadAnswer(f"{whose}: a file in it is not what its digest says")
    return found


def _check(lengths: Mapping[str, int], whose: str) -> None:
    for name in lengths:
        if not _NAME.fullmatch(name):
            raise BadAnswer(f"{whose}: {shown(name)} is no name of a file in it")
    if len(lengths) > MOST_FILES or sum(lengths.values()) > MOST_BYTES:
        raise BadAnswer(f"{whose}: it is larger than any guest's state")
