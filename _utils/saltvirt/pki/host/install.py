"""Puts certificates into a hypervisor's files: what differs, and nothing else."""

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
class Difference:
    """What is wrong with one file, in words that show no key."""

    place: layout.TlsFile
    data: bytes | None
    what: str


def differences(places: Iterable[layout.TlsFile], found: Mapping[str, str]) -> list[Difference]:
    """The Differences between the files and what they should be. Writes nothing.

    found: {source: PEM text}. An optional file that is not in it is one to remove.
    """
    result = []
    for place in places:
        if place.source not in found and not place.optional:
            continue
        data = found[place.source].encode() if place.source in found else None
        what = _difference(place, data)
        if what:
            result.append(Difference(place, data, what))
    return result


def _difference(place: layout.TlsFile, data: bytes | None) -> str | None:
    present = files.read(place.path)
    if data is None:
        return None if present is None else "removed"
    if present is None:
        return "new"
    if present != data:
        return _update(place, present, data)
    status = place.path.stat()
    mode = stat.S_IMODE(status.st_mode)
    if mode != place.mode:
        return f"mode {mode:04o} to {place.mode:04o}"
    if (status.st_uid, status.st_gid) != place.owner:
        return "owner {}:{} to {}:{}".format(status.st_uid, status.st_gid, *place.owner)
    return None


def _update(place: layout.TlsFile, present: bytes, data: bytes) -> str:
    if place.secret or not place.source.endswith("cert.pem"):
        return "update"
    new = certs.load_certs(data)[0]
    try:
        old = f"valid until {certs.not_after(certs.load_certs(present)[0]):%Y-%m-%d}"
    except PkiError:
        old = "unreadable"
    return f"update: was {old}, now valid until {certs.not_after(new):%Y-%m-%d}"


def put(found: Collection[Difference]) -> None:
    """Writes the Differences, all or none; keeps aside what no certificate of ours replaces."""
    for item in found:
        folder = item.place.path.parent
        files.folder(folder.parent, 0o755)
        files.folder(folder, layout.folder_mode(folder))
        files.sweep(folder)
    _keep_foreign(found)
    files.write_all(
        files.New(item.place.path, item.data, item.place.mode, item.place.owner)
        for item in found
        if item.data is not None
    )
    for item in found:
        if item.data is None:
            item.place.path.unlink(missing_ok=True)


def _keep_foreign(found: Iterable[Difference]) -> None:
    """Copies keys and certificates that we did not make, beside where they were."""
    stamp = time.strftime("%Y%m%dT%H%M%S")
    replaced = {item.place.name: item for item in found if item.data is not None}
    for item in replaced.values():
        present = files.read(item.place.path)
        if present and present != item.data and _foreign(item.place, present, replaced):
            kept = item.place.path.with_name(f"{item.place.path.name}.{stamp}")
            files.write(kept, present, 0o600 if item.place.secret else item.place.mode)


def _foreign(place: layout.TlsFile, present: bytes, replaced: Mapping[str, Difference]) -> bool:
    """True when a pair on this host was issued by another CA, or cannot be read."""
    try:
        if place.secret:
            certs.load_key(present)
            other = replaced.get(place.name.removesuffix("key") + "cert")
            return other is not None and _other_issuer(other)
        if place.name.endswith("cacert"):
            return False
        certs.load_certs(present)
        return place.name in replaced and _other_issuer(replaced[place.name])
    except PkiError:
        return True


def _other_issuer(item: Difference) -> bool:
    """True, too, where there is no certificate that would say who issued the pair."""
    try:
        old = certs.load_certs(files.read(item.place.path))[0]
    except PkiError:
        return True
    return old.issuer != certs.load_certs(item.data)[0].issuer


def tidy_folders(places: Iterable[layout.TlsFile]) -> dict[str, str]:
    """Takes others' rights from folders of private keys. What was changed."""
    changed = {}
    for folder in {place.path.parent for place in places if place.path.parent.name == "private"}:
        if folder.is_dir() and os.geteuid() == 0:
            mode = stat.S_IMODE(folder.stat().st_mode)
            if mode & 0o077:
                folder.chmod(0o700)
                changed[str(folder)] = f"mode {mode:04o} to 0700"
    return changed
