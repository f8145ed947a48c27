"""Kernels and initrds that the user specifies by an address."""

from __future__ import annotations

import filecmp
import hashlib
import os
import shutil
from typing import TYPE_CHECKING

from saltvirt import errors
from saltvirt.host import connection
from saltvirt.images import checksum, clone, sources
from saltvirt.spec.base import value_or_none
from saltvirt.system import atomic_file, bounded_io, file_lock, mount_guard

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    import libvirt

    from saltvirt.host.provision.guest_builder import Tools
    from saltvirt.spec.boot import BootSpec
    from saltvirt.xml.domain.os import Os

FOLDER = "_boot"


def set_local_paths(
    boot: BootSpec | None, images_dir: str, saltenv: str | None = None
) -> dict[str, str]:
    """Replace the addresses in a BootSpec by paths on this host.

    Returns {path: address} of the files to download. saltenv: the environment of ``salt://``
    addresses.
    """
    sources_by_path, env = {}, "" if saltenv in (None, "base") else f"{saltenv} "
    for name in ("kernel", "initrd") if boot else ():
        source = value_or_none(getattr(boot, name))
        if source and "://" in source:
            digest = hashlib.sha256(f"{env}{source}".encode()).hexdigest()[:16]
            path = os.path.join(images_dir, FOLDER, f"{digest}-{sources.stem(source)}")
            setattr(boot, name, path)
            sources_by_path[path] = source
    return sources_by_path


def absent_files(
    conn: libvirt.virConnect,
    boot: BootSpec | None,
    sources_by_path: Collection[str],
    current: Os | None = None,
) -> Iterator[str]:
    """Yield the files of a BootSpec that do not exist on this host, such as ``kernel /boot/k``.

    sources_by_path: the files that will be downloaded. current: of an existing guest, whose files
    are not looked for.
    """
    if boot is None or not connection.is_local(conn):
        return
    for word in ("kernel", "initrd", "loader"):
        path = value_or_none(getattr(boot, word))
        if not path or path in sources_by_path or path == getattr(current, word, None):
            continue
        if not bounded_io.lexists(path):
            yield f"{word} {path}"


def absence_warning(file: str) -> str:
    """Return the warning about one of these files."""
    return f"boot: {file} does not exist on this host: the guest cannot start"


def fetch(sources_by_path: dict[str, str], tools: Tools) -> None:
    """Download the files found by :func:`set_local_paths`. Raises NotFound, OperationFailed."""
    for path, source in sources_by_path.items():
        tools.report_step("kernel", f"fetching {sources.shown(source)}")
        folder = os.path.dirname(path)
        mount_guard.make_folder(folder, 0o755)
        with file_lock.exclusive(os.path.join(folder, ".lock")):
            try:
                _fetch(path, source, tools)
            except OSError as exc:
                raise errors.OperationFailed(
                    f"cannot fetch {sources.shown(source)} to {folder}: {exc.strerror or exc}"
                ) from exc


def _fetch(path: str, source: str, tools: Tools) -> None:
    """Download a file and replace the existing one atomically, since other guests boot from it.

    Salt compares the existing copy with the master's file and transfers it only if it differs.
    """
    with clone.part_of(path) as part:
        if os.path.exists(path):
            shutil.copyfile(path, part)
        if not tools.get_url or not tools.get_url(source, part) or not os.path.getsize(part):
            raise errors.NotFound(f"cannot fetch {sources.shown(source)}")
        _require_complete(part, source, tools)
        if os.path.exists(path) and filecmp.cmp(path, part, shallow=False):
            return
        os.chmod(part, 0o644)
        atomic_file.sync(part)
        atomic_file.rename(part, path)


def _require_complete(part: str, source: str, tools: Tools) -> None:
    """Raise OperationFailed if the file differs from the master's.

    Salt reports an interrupted transfer as a complete file.
    """
    if not tools.download or not source.startswith("salt://"):
        return
    served = tools.download.version(source)
    kind = served["hash_type"]
    is_supported = kind in hashlib.algorithms_available
    if is_supported and checksum.hash_file(part, [kind])[kind] != served["hsum"]:
        raise errors.OperationFailed(
            f"{source} was not fetched completely, or has changed during the download: try again"
        )
