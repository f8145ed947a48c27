"""The files in a backup of a guest, as they are told. Their names are the guest's: anything may be
in them."""

from __future__ import annotations

import re
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from saltvirt import sanitize
from saltvirt.errors import InvalidInput
from saltvirt.schema import Message
from saltvirt.units import short_repr

# of one folder so many are told
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
    """A file in a folder. name: fit to be shown. kind: ``file``, ``folder``, ``link``, ``fifo``,
    ``socket``, ``device``. mode: as ``0644``. changed_s: since 1970, as the guest's clock had it.
    link: what a link names."""

    name: str
    kind: str
    size_bytes: int
    mode: str
    changed_s: int = 0
    link: str | None = None


@dataclass(frozen=True)
class FileListing(Message):
    """What ``virt.backup_ls`` answers. more: so many are there that are not told. filesystems: of
    the backup, device to kind. missing: where the guest mounts one that could not be read, and
    why."""

    ident: str
    guest: str
    files: tuple[FileEntry, ...] = ()
    more: int = 0
    filesystems: dict[str, str] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ExtractedFile(Message):
    """What ``virt.backup_get`` answers. path: on the machine that has the target; None: it was only
    looked for. size_bytes: 0 for a folder that was only looked for."""

    ident: str
    guest: str
    kind: str
    size_bytes: int
    path: str | None = None


def parse_path(path: object) -> str:
    """A path in a guest, as a person gave it. Raises InvalidInput."""
    if not isinstance(path, str) or not path.startswith("/") or "\0" in path:
        raise InvalidInput(f"path must be an absolute path in the guest, not {short_repr(path)}")
    if len(path.encode("utf-8", "surrogateescape")) > _LONGEST_PATH:
        raise InvalidInput(f"path has more than {_LONGEST_PATH} bytes")
    return path.rstrip("/") or "/"


def display_name(raw: bytes) -> str:
    """The name of a file, fit to be shown: what is no letter is spelled out."""
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
    """What a link names."""
    text = display_name(raw)
    return text if len(text) <= _LONGEST_LINK else f"{text[:_LONGEST_LINK]} …"


def parse_attributes(output: str) -> dict[str, int]:
    """The numbers of one file in libguestfs' words."""
    matches = (_NUMBER.fullmatch(line) for line in output.splitlines())
    return {match[1]: int(match[2]) for match in matches if match}


def describe(raw: bytes, attributes: Mapping[str, int], target: bytes | None = None) -> FileEntry:
    """A file of that name, by its numbers. target: what the link names."""
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
    """What it is, by its numbers."""
    return _KINDS.get(stat.S_IFMT(attributes.get("st_mode", 0)), "unknown")


def rows(files: Iterable[FileEntry]) -> list[list[str]]:
    """As a table for people."""
    table = [["kind", "mode", "bytes", "name"]]
    for entry in files:
        leads = f" -> {entry.link}" if entry.link is not None else ""
        table.append([entry.kind, entry.mode, str(entry.size_bytes), f"{entry.name}{leads}"])
    return table
