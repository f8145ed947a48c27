"""Install certificates in a hypervisor's files: only what differs."""

from __future__ import annotations

import os
import stat
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from saltvirt.errors import PkiError
from saltvirt.pki.common import certs, files
from saltvirt.pki.host import layout

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping


@dataclass(frozen=True)
class TlsFileChange:
    """The change of one file, described without showing a key."""

    tls_file: layout.TlsFile
    data: bytes | None
    change: str


def differences(
    tls_files: Iterable[layout.TlsFile], pem_by_source: Mapping[str, str]
) -> list[TlsFileChange]:
    """The differences between the files and the required content. Writes nothing.

    pem_by_source: {source: PEM text}. An optional file that is missing there is removed.
    """
    result = []
    for tls_file in tls_files:
        if tls_file.source not in pem_by_source and not tls_file.optional:
            continue
        data = pem_by_source[tls_file.source].encode() if tls_file.source in pem_by_source else None
        change = _difference(tls_file, data)
        if change:
            result.append(TlsFileChange(tls_file, data, change))
    return result


def _difference(tls_file: layout.TlsFile, data: bytes | None) -> str | None:
    present = files.read(tls_file.path)
    if data is None:
        return None if present is None else "removed"
    if present is None:
        return "new"
    if present != data:
        return _update(tls_file, present, data)
    status = tls_file.path.stat()
    mode = stat.S_IMODE(status.st_mode)
    if mode != tls_file.mode:
        return f"mode {mode:04o} to {tls_file.mode:04o}"
    if (status.st_uid, status.st_gid) != tls_file.owner:
        return "owner {}:{} to {}:{}".format(status.st_uid, status.st_gid, *tls_file.owner)
    return None


def _update(tls_file: layout.TlsFile, present: bytes, data: bytes) -> str:
    if tls_file.secret or not tls_file.source.endswith("cert.pem"):
        return "update"
    new = certs.load_certs(data)[0]
    try:
        old = f"valid until {certs.not_after(certs.load_certs(present)[0]):%Y-%m-%d}"
    except PkiError:
        old = "unreadable"
    return f"update: was {old}, now valid until {certs.not_after(new):%Y-%m-%d}"


def put(changes: Collection[TlsFileChange]) -> None:
    """Write all changes or none, and save foreign files that are replaced."""
    for item in changes:
        folder = item.tls_file.path.parent
        files.folder(folder.parent, 0o755)
        files.folder(folder, layout.folder_mode(folder))
        files.sweep(folder)
    _keep_foreign(changes)
    files.write_all(
        files.NewFile(item.tls_file.path, item.data, item.tls_file.mode, item.tls_file.owner)
        for item in changes
        if item.data is not None
    )
    for item in changes:
        if item.data is None:
            item.tls_file.path.unlink(missing_ok=True)


def _keep_foreign(changes: Iterable[TlsFileChange]) -> None:
    """Copy keys and certificates that Salt Virt did not issue to a file beside them."""
    stamp = time.strftime("%Y%m%dT%H%M%S")
    replaced = {item.tls_file.name: item for item in changes if item.data is not None}
    for item in replaced.values():
        present = files.read(item.tls_file.path)
        if present and present != item.data and _foreign(item.tls_file, present, replaced):
            saved_path = item.tls_file.path.with_name(f"{item.tls_file.path.name}.{stamp}")
            files.write(saved_path, present, 0o600 if item.tls_file.secret else item.tls_file.mode)


def _foreign(
    tls_file: layout.TlsFile, present: bytes, replaced: Mapping[str, TlsFileChange]
) -> bool:
    """Whether a pair on this host was issued by another CA or cannot be read."""
    try:
        if tls_file.secret:
            certs.load_key(present)
            certificate = replaced.get(tls_file.name.removesuffix("key") + "cert")
            return certificate is not None and _other_issuer(certificate)
        if tls_file.name.endswith("cacert"):
            return False
        certs.load_certs(present)
        return tls_file.name in replaced and _other_issuer(replaced[tls_file.name])
    except PkiError:
        return True


def _other_issuer(item: TlsFileChange) -> bool:
    """Whether the issuer differs, or is unknown because there is no certificate."""
    try:
        old = certs.load_certs(files.read(item.tls_file.path))[0]
    except PkiError:
        return True
    return old.issuer != certs.load_certs(item.data)[0].issuer


def tidy_folders(tls_files: Iterable[layout.TlsFile]) -> dict[str, str]:
    """Remove permissions of others from folders of private keys. Returns the changes."""
    changed = {}
    for folder in {
        tls_file.path.parent for tls_file in tls_files if tls_file.path.parent.name == "private"
    }:
        if folder.is_dir() and os.geteuid() == 0:
            mode = stat.S_IMODE(folder.stat().st_mode)
            if mode & 0o077:
                folder.chmod(0o700)
                changed[str(folder)] = f"mode {mode:04o} to 0700"
    return changed
