"""The format of a disk that is there already and is used as it is."""

import os
import stat

from saltvirt import errors
from saltvirt.host import files
from saltvirt.images import header


def is_block(path):
    """True for a block device, also by a link."""
    try:
        return stat.S_ISBLK(os.stat(path).st_mode)
    except OSError:
        return False


def format_of(conn, spec, path):
    """The format by which a DiskSpec uses what lies at ``path``.

    What was asked for, else what a domain of this host declares, else raw. A guest may write
    another format's header to a raw disk, with the name of any file in it: a file that looks
    like more than raw is used by no guess.
    Raises InvalidInput for such a one, and for what is neither a file nor a block device.
    """
    if not os.path.isfile(path) and not is_block(path):
        raise errors.InvalidInput(f"disk {spec.name}: {path} is neither a file nor a block device")
    known = spec.format or files.format_by_domains(conn, path)
    if known or spec.device != "disk" or is_block(path):
        return known or "raw"
    try:
        looks = header.looks_like(path)
    except OSError as exc:
        raise errors.InvalidInput(f"disk {spec.name}: cannot read {path}: {exc.strerror}") from exc
    if looks != "raw":
        raise errors.InvalidInput(
            f"disk {spec.name}: {path} exists already and looks like {looks}: say which format it "
            f"has, format: {looks}, or format: raw for a disk that a guest has used as raw"
        )
    return "raw"
