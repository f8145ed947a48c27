"""The volume from which cloud-init reads: a small ISO 9660 file system named cidata."""

import contextlib
import os
import secrets
import shutil

from saltvirt import errors
from saltvirt.images import locks, tools

_RUN = "/run/salt-virt"
_MAKERS = (
    ("xorriso", ["xorriso", "-as", "genisoimage"]),
    ("genisoimage", ["genisoimage"]),
    ("mkisofs", ["mkisofs"]),
    ("xorrisofs", ["xorrisofs"]),
)


def _maker():
    for name, argv in _MAKERS:
        if shutil.which(name):
            return argv
    raise errors.Unsupported(
        "this host can make no volume for cloud-init: install xorriso, genisoimage or mkisofs"
    )


def available():
    """Can this host make such a volume?"""
    return any(shutil.which(name) for name, _ in _MAKERS)


def write(path, files):
    """Makes the volume ``path``, readable by root alone.

    files: {name: text}. What is written holds a private key: it passes through memory only
    (/run) and the file itself. Raises SeedFailed, Unsupported.
    """
    maker = _maker()
    part = f"{path}.{secrets.token_hex(4)}.part"
    folder, mark = locks.private_folder(_RUN, "cidata-")
    try:
        for name, text in files.items():
            with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                file.write(text)
        os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        options = ["-quiet", "-output", part, "-volid", "cidata", "-joliet", "-rock"]
        tools.run([*maker, *options, folder], f"make {path}", errors.SeedFailed)
        os.replace(part, path)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(mark)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(part)
