"""Archive of a guest's firmware variables and TPM state: a tar file with the digest of each
file."""

from __future__ import annotations

import hashlib
import io
import json
import re
import tarfile
from collections.abc import Mapping

from saltvirt.errors import BadAnswer
from saltvirt.units import short_repr

# limit for all files together: the variables of ARM's firmware have 64 MiB
MAX_BYTES = 96 * 1024**2
MAX_FILES = 64
# limit for an archive with its headers
MAX_ARCHIVE_BYTES = MAX_BYTES + 1024**2
VARIABLES, TPM = "variables.", "tpm/"
_DIGESTS = "digests.json"
# QEMU compresses whole clusters of a qcow2
_CLUSTER_BYTES = 64 * 1024
_NAME = re.compile(r"variables\.(fd|qcow2)|tpm(/[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}){1,3}", re.ASCII)


def pack(files: Mapping[str, bytes]) -> bytes:
    """Return the archive with these files (name to content). Raises BadAnswer for files that
    `unpack` would refuse."""
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
    """Return the files in an archive after checking their digests. Raises BadAnswer."""
    files: dict[str, bytes] = {}
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as tar:
            for member in tar:
                # the holes of a sparse member would fill the memory
                plain = member.isreg() and not member.issparse() and member.size <= MAX_BYTES
                if not plain or member.name in files or len(files) > MAX_FILES:
                    raise BadAnswer(f"{label}: unexpected file {short_repr(member.name)}")
                file = tar.extractfile(member)
                files[member.name] = file.read() if file else b""
        digests = json.loads(files.pop(_DIGESTS))
    except (tarfile.TarError, ValueError, KeyError, RecursionError, EOFError) as exc:
        raise BadAnswer(f"{label}: not a valid state archive") from exc
    _check({name: len(content) for name, content in files.items()}, label)
    if digests != {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}:
        raise BadAnswer(f"{label}: a file does not match its digest")
    return files


def _check(lengths: Mapping[str, int], label: str) -> None:
    for name in lengths:
        if not _NAME.fullmatch(name):
            raise BadAnswer(f"{label}: unexpected file name {short_repr(name)}")
    if len(lengths) > MAX_FILES or sum(lengths.values()) > MAX_BYTES:
        raise BadAnswer(f"{label}: too large")
