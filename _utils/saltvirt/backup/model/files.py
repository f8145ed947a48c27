"""Listing of files in a backup. File names come from the guest and may contain anything."""

from __future__ import annotations

import re
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from saltvirt import sanitize
from saltvirt.errors import InvalidInput
from saltvirt.schema import Message
from saltvirt.units import human_bytes, short_repr

# limit for the entries of a listing
MAX_ENTRIES = 1000
_LONGEST_PATH = 4096
_LONGEST_LINK = 300
_KINDS = {
    stat.S_IFREG: "file", stat.S_IFDIR: "folder", stat.S_IFLNK: "link", stat.S_IFIFO: "fifo",
    stat.S_IFSOCK: "socket", stat.S_IFBLK: "device", stat.S_IFCHR: "device",
}  # fmt: skip
FILE, FOLDER, LINK = "file", "folder", "link"
_NUMBER = re.compile(r"\s*(st_[a-z_]+): (-?[0-9]{1,19})")


@dataclass(frozen=True)
class FileEntry(Message):
    """A file in a folder.

    name: safe to print. kind: ``file``, ``folder``, ``link``, ``fifo``, ``socket``, ``device``.
    mode: as ``0644``. changed_s: since 1970, by the guest's clock. link: target of a symbolic link.
    """

    name: str
    kind: str
    size_bytes: int
    mode: str
    changed_s: int = 0
    link: str | None = None


@dataclass(frozen=True)
class FileListing(Message):
    """Answer of ``virt.backup_ls``.

    omitted: number of entries beyond the limit. filesystems: device to kind. missing: mount point
    or disk that could not be read to the reason.
    """

    backup_id: str
    guest: str
    files: tuple[FileEntry, ...] = ()
    omitted: int = 0
    filesystems: dict[str, str] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ExtractedFile(Message):
    """Answer of ``virt.backup_get``. path: on the target host; None for a test. size_bytes: 0 for a
    folder in a test."""

    backup_id: str
    guest: str
    kind: str
    size_bytes: int
    path: str | None = None


def parse_path(path: object) -> str:
    """Check a path in the guest. Raises InvalidInput."""
    if not isinstance(path, str) or not path.startswith("/") or "\0" in path:
        raise InvalidInput(f"path must be an absolute path in the guest, not {short_repr(path)}")
    if len(path.encode("utf-8", "surrogateescape")) > _LONGEST_PATH:
        raise InvalidInput(f"path is longer than {_LONGEST_PATH} bytes")
    return path.rstrip("/") or "/"


def display_name(raw: bytes) -> str:
    """Escape a file name so that it is safe to print."""
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        text = ""
    if text and text.isprintable() and "\\" not in text and text == sanitize.one_line(text):
        return text
    return "".join(
        chr(byte) if 32 <= byte < 127 and byte != 92 else f"\\x{byte:02x}" for byte in raw
    )


def link_target(raw: bytes) -> str:
    """Escape and shorten the target of a symbolic link."""
    text = display_name(raw)
    return text if len(text) <= _LONGEST_LINK else f"{text[:_LONGEST_LINK]} …"


def parse_attributes(output: str) -> dict[str, int]:
    """Parse the attributes of one file in the output of libguestfs."""
    matches = (_NUMBER.fullmatch(line) for line in output.splitlines())
    return {match[1]: int(match[2]) for match in matches if match}


def describe(raw: bytes, attributes: Mapping[str, int], target: bytes | None = None) -> FileEntry:
    """Return the entry of a file. target: of a symbolic link."""
    mode = attributes.get("st_mode", 0)
    return FileEntry(
        display_name(raw),
        kind(attributes),
        max(0, attributes.get("st_size", 0)),
        f"{stat.S_IMODE(mode):04o}",
        max(0, attributes.get("st_mtime_sec", 0)),
        None if target is None else link_target(target),
    )


def kind(attributes: Mapping[str, int]) -> str:
    """Return the kind of a file from its attributes."""
    return _KINDS.get(stat.S_IFMT(attributes.get("st_mode", 0)), "unknown")


def rows(files: Iterable[FileEntry]) -> list[list[str]]:
    """Return the entries as rows of a table."""
    table = [["kind", "mode", "size", "name"]]
    for entry in files:
        leads = f" -> {entry.link}" if entry.link is not None else ""
        size = human_bytes(entry.size_bytes)
        table.append([entry.kind, entry.mode, size, f"{entry.name}{leads}"])
    return table
