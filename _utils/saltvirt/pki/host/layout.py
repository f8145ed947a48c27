"""The paths of a hypervisor's certificates, and their permissions."""

from __future__ import annotations

import grp
import pwd
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from saltvirt import units
from saltvirt.errors import PkiError
from saltvirt.pki.authority.store import USES
from saltvirt.pki.common import files

if TYPE_CHECKING:
    from collections.abc import Iterable

    from saltvirt.system.atomic_file import Owner

_ROOT = (0, 0)
_ABSOLUTE = re.compile("/[^\\x00-\\x1f\\x7f-\\x9f]{0,200}")
# Debian and Ubuntu; Fedora, EL and SUSE
_QEMU_USERS = (("libvirt-qemu", "kvm"), ("qemu", "qemu"))


@dataclass(frozen=True)
class TlsFile:
    """One file. name: in a state's changes. source: in the pillar, without ``libvirt.``."""

    name: str
    source: str
    path: Path
    mode: int = 0o644
    owner: Owner = _ROOT
    optional: bool = False

    @property
    def secret(self) -> bool:
        """Whether it is a private key."""
        return self.source.endswith("key.pem")


# use to the files of its key and its certificate
Pairs = dict[str, tuple[TlsFile, TlsFile]]


def tls_files(basepath: object, owner: Owner = _ROOT, qemu: Owner = _ROOT) -> tuple[TlsFile, ...]:
    """All files below ``basepath``. owner, qemu: (uid, gid) of root and of QEMU's user.

    Raises PkiError unless it is an absolute path.
    """
    if not isinstance(basepath, (str, Path)) or not _ABSOLUTE.fullmatch(str(basepath)):
        raise PkiError(
            f"basepath {units.short_repr(basepath)} is not the absolute path of a folder"
        )
    base = Path(basepath)
    libvirt, quick = base / "libvirt", base / "qemu"
    return (
        TlsFile("cacert", "cacert.pem", base / "CA" / "cacert.pem", owner=owner),
        TlsFile("cacrl", "cacrl.pem", base / "CA" / "cacrl.pem", owner=owner, optional=True),
        TlsFile("qemu-cacert", "qemu-cacert.pem", quick / "ca-cert.pem", owner=owner),
        TlsFile("qemu-cacrl", "qemu-cacrl.pem", quick / "ca-crl.pem", owner=owner, optional=True),
        *_pair("server", libvirt / "private" / "serverkey.pem", libvirt / "servercert.pem", owner),
        *_pair("client", libvirt / "private" / "clientkey.pem", libvirt / "clientcert.pem", owner),
        *_pair("qemu-server", quick / "server-key.pem", quick / "server-cert.pem", qemu),
        *_pair("qemu-client", quick / "client-key.pem", quick / "client-cert.pem", qemu),
    )


def _pair(name: str, key: Path, cert: Path, owner: Owner) -> tuple[TlsFile, TlsFile]:
    return (
        TlsFile(f"{name}key", f"{name}key.pem", key, 0o600, owner),
        TlsFile(f"{name}cert", f"{name}cert.pem", cert, 0o644, owner),
    )


def by_use(tls_files: Iterable[TlsFile]) -> Pairs:
    """{use: (file of the key, file of the certificate)}."""
    by_name = {tls_file.name: tls_file for tls_file in tls_files}
    return {use.name: (by_name[f"{use.name}key"], by_name[f"{use.name}cert"]) for use in USES}


def folder_mode(path: Path) -> int:
    """The mode of a folder of private keys: root only, but QEMU must be able to enter its own
    folder."""
    return 0o700 if path.name == "private" else 0o755


def qemu_owner(conf: str = "/etc/libvirt/qemu.conf") -> Owner:
    """(uid, gid) of QEMU's processes: from qemu.conf, or else the distribution's."""
    user, group = configured(conf, "user", "group")
    user, group = user and user.lstrip("+"), group and group.lstrip("+")
    for default_user, default_group in _QEMU_USERS:
        uid = _uid(user or default_user)
        if uid is not None:
            return uid, _gid(group or default_group, uid)
    return _ROOT


def configured(conf: str, *keys: str) -> list[str | None]:
    """The texts that a file like qemu.conf sets for the keys, None for keys that are not set."""
    text = (files.read(conf) or b"").decode("utf-8", "replace")
    values = dict(re.findall(r'^\s*(\w+)\s*=\s*"([^"]+)"', text, re.MULTILINE))
    return [values.get(key) for key in keys]


def _uid(name: str) -> int | None:
    if name.isdigit():
        return int(name)
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        return None


def _gid(name: str, uid: int) -> int:
    if name.isdigit():
        return int(name)
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        try:
            return pwd.getpwuid(uid).pw_gid
        except KeyError:
            return 0
