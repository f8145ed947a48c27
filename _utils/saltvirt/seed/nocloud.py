"""The volume from which cloud-init reads: a small ISO 9660 file system named cidata."""

import os
import secrets
import shutil
import tempfile

from saltvirt import errors
from saltvirt.images import tools

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
    os.makedirs(_RUN, mode=0o700, exist_ok=True)
    part = f"{path}.{secrets.token_hex(4)}.part"
    with tempfile.TemporaryDirectory(dir=_RUN, prefix="cidata-") as folder:
        for name, text in files.items():
            with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                file.write(text)
        os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        try:
            options = ["-quiet", "-output", part, "-volid", "cidata", "-joliet", "-rock"]
            tools.run([*maker, *options, folder], f"make {path}", errors.SeedFailed)
            os.replace(part, path)
        finally:
            if os.path.exists(part):
                os.unlink(part)
