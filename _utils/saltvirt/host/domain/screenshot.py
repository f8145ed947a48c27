"""A screenshot of a guest, as a PNG file."""

from __future__ import annotations

import base64
import os
import re
import struct
import time
import zlib
from typing import TYPE_CHECKING

from saltvirt import errors, units
from saltvirt.answers.reach import Screenshot
from saltvirt.host import connection
from saltvirt.system import atomic_file

if TYPE_CHECKING:
    import libvirt

_PPM = re.compile(rb"P6\s+(?:#[^\n]*\n\s*)*(\d+)\s+(\d+)\s+(\d+)\s")
PNG = b"\x89PNG\r\n\x1a\n"
# the maximum for an event of Salt, which has 1 MiB, in base64
_MAX_EVENT_BYTES = 700 * 1024
# enough for an 8K screen; the guest determines the size
_MAX_BYTES = 128 * 1024**2


def _chunk(kind: bytes, data: bytes) -> bytes:
    checked = kind + data
    return struct.pack(">I", len(data)) + checked + struct.pack(">I", zlib.crc32(checked))


def png_of_ppm(data: bytes, widest: int | None = None) -> bytes:
    """Convert a binary PPM picture with 8 bits a colour to PNG.

    widest: maximum width in pixels; a wider picture is reduced to every second pixel, or every
    third, and so on. Raises OperationFailed.
    """
    match = _PPM.match(data)
    if not match or match.group(3) != b"255":
        raise errors.OperationFailed("the hypervisor returned an image in an unknown format")
    width, height = int(match.group(1)), int(match.group(2))
    pixels, row = data[match.end() :], width * 3
    if len(pixels) < row * height:
        raise errors.OperationFailed("the image from the hypervisor is truncated")
    step = -(-width // (widest or width))
    offsets = range(0, row * height, row * step)
    lines = [_subsample(pixels[offset : offset + row], step) for offset in offsets]
    rows = b"".join(b"\0" + line for line in lines)
    header = struct.pack(">IIBBBBB", len(lines[0]) // 3, len(lines), 8, 2, 0, 0, 0)
    return (
        PNG + _chunk(b"IHDR", header) + _chunk(b"IDAT", zlib.compress(rows)) + _chunk(b"IEND", b"")
    )


def _subsample(row: bytes, step: int) -> bytes:
    """Return every nth pixel of a row."""
    if step == 1:
        return row
    pixels = bytearray(3 * len(row[:: 3 * step]))
    for colour in range(3):
        pixels[colour::3] = row[colour :: 3 * step]
    return bytes(pixels)


def take(
    conn: libvirt.virConnect, dom: libvirt.virDomain, screen: int = 0, widest: int | None = None
) -> bytes:
    """Return a PNG of the guest's screen. widest: see png_of_ppm."""
    data = _read(conn, dom, screen)
    return data if data.startswith(PNG) else png_of_ppm(data, widest)


def _read(conn: libvirt.virConnect, dom: libvirt.virDomain, screen: int) -> bytes:
    """Return the picture from the hypervisor. Raises OperationFailed if it is larger than the
    maximum."""
    image = bytearray()

    def receive(_stream: libvirt.virStream, data: bytes, _opaque: object) -> int:
        image.extend(data)
        if len(image) > _MAX_BYTES:
            limit = units.human_bytes(_MAX_BYTES)
            raise errors.OperationFailed(f"the screen of {dom.name()} is larger than {limit}")
        return len(data)

    with connection.translated(f"take a screenshot of {dom.name()}"):
        stream = conn.newStream(0)
        dom.screenshot(stream, screen, 0)
        stream.recvAll(receive, None)
        stream.finish()
    return bytes(image)


def small(conn: libvirt.virConnect, dom: libvirt.virDomain, screen: int, widest: int) -> Screenshot:
    """Return a picture that fits into an event. Raises OperationFailed if it is too large."""
    data = take(conn, dom, screen, widest)
    if len(data) > _MAX_EVENT_BYTES:
        raise errors.OperationFailed(
            f"the screenshot of {dom.name()} has {len(data)} bytes: run virt.screenshot "
            "on its host, which writes it to a file"
        )
    return Screenshot(dom.UUIDString(), base64.b64encode(data).decode())


def save(data: bytes, name: str, folder: str, path: str | None = None) -> str:
    """Write the PNG to ``path``, or to a new file of the guest in ``folder``; return the path.

    An existing file or link of that name is replaced, because another user may have created it.
    """
    if path is None:
        stamp = time.strftime("%Y%m%d-%H%M%S")
        path = os.path.join(folder, f"{name}-{stamp}.png")
    elif not isinstance(path, str) or not os.path.isabs(path) or "\0" in path:
        raise errors.InvalidInput(f"path {path!r} is not absolute")
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        atomic_file.write(path, data, part=atomic_file.unique_part(path))
    except OSError as exc:
        raise errors.OperationFailed(f"cannot write {path}: {exc.strerror}") from exc
    return path
