"""Files of the certificate authorities in ``pki_dir/libvirt``, with the names of Salt's former
pillar.

::

    cakey.pem cacert.pem            libvirt's authority (the certificate, then its chain)
    qemu-cakey.pem qemu-cacert.pem  QEMU's authority
    next-*, old-*                   the same while an authority is created or replaced
    crl.pem qemu-crl.pem            revoked certificates
    HOST/serverkey.pem …            keys and certificates of HOST
    HOST/issued/SERIAL.pem          every certificate that a trusted CA has issued to HOST
    HOST/aside/                     damaged files that were replaced

Files are 0600, folders 0700. ``.lock`` is held shared to issue certificates, and exclusively to
change an authority; ``HOST/.lock`` protects one host. A process that waits for ``.lock`` holds
``.turn``, so that a continuous sequence of requests cannot delay a change forever.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from saltvirt.errors import InvalidInput, PkiError
from saltvirt.pki.common import certs, files
from saltvirt.system import atomic_file

if TYPE_CHECKING:
    import datetime
    from collections.abc import Callable, Iterator

AUTHORITIES = {"libvirt": "", "qemu": "qemu-"}
_MAX_NAME_BYTES = 255  # bytes, of the name of a file


@dataclass(frozen=True)
class Use:
    """One key and certificate of a host, and their names."""

    name: str
    authority: str
    purpose: str

    @property
    def key(self) -> str:
        """The key's file name on the master and in the pillar."""
        return f"{self.name}key.pem"

    @property
    def cert(self) -> str:
        """The certificate's file name on the master and in the pillar."""
        return f"{self.name}cert.pem"


USES = (
    Use("server", "libvirt", certs.SERVER),
    Use("client", "libvirt", certs.CLIENT),
    Use("qemu-server", "qemu", certs.SERVER),
    Use("qemu-client", "qemu", certs.CLIENT),
)


class CertificateStore:
    """The folder, its locks and its records."""

    def __init__(
        self, pki_dir: str | Path, clock: Callable[[], datetime.datetime] = certs.utcnow
    ) -> None:
        self.base = Path(pki_dir) / "libvirt"
        self.now = clock

    def path(self, name: str) -> Path:
        """The path of a file in the store."""
        return self.base / name

    def host(self, host: object) -> Path:
        """The folder of a host, which may not exist.

        Raises InvalidInput for a minion id that would be a path outside the store or the name of
        one of its files.
        """
        text = str(host)
        bad = not text or "/" in text or text[0] == "." or text.endswith(".pem")
        bad = bad or not text.isprintable() or len(text.encode()) > _MAX_NAME_BYTES
        if bad or text in ("ca.info", "rotation.json", "revoked.json"):
            raise InvalidInput(f"{text[:100]!r} cannot be the minion id of a hypervisor")
        return self.base / text

    def hosts(self) -> list[str]:
        """The ids of all hosts that have a folder, sorted."""
        if not self.base.is_dir():
            return []
        folders = [item.name for item in self.base.iterdir() if item.is_dir()]
        return sorted(name for name in folders if not name.startswith("."))

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[None]:
        """Lock the whole store for the block, which may change authorities."""
        files.folder(self.base)
        self.base.chmod(0o700)
        with self._locked():
            files.sweep(self.base)
            yield

    @contextlib.contextmanager
    def _locked(self, shared: bool = False) -> Iterator[None]:
        """Hold the store's lock for the block. Waiting processes acquire it in their order."""
        with contextlib.ExitStack() as stack:
            with files.locked(self.path(".turn")):
                stack.enter_context(files.locked(self.path(".lock"), shared=shared))
            yield

    @contextlib.contextmanager
    def issuing(self, host: str) -> Iterator[Path]:
        """Lock one host's folder for the block. The authorities do not change meanwhile."""
        folder = self.host(host)
        with self._locked(shared=True):
            files.folder(folder)
            folder.chmod(0o700)
            with files.locked(folder / ".lock"):
                files.sweep(folder)
                files.sweep(files.folder(folder / "issued"))
                yield folder

    def record(self, name: str, default: Any) -> Any:
        """The content of a JSON record. Raises PkiError if it is damaged."""
        data = files.read(self.path(name))
        if data is None:
            return default
        try:
            return json.loads(data)
        except ValueError as exc:
            raise PkiError(
                f"{self.path(name)} is damaged: restore it from a backup ({exc})"
            ) from exc

    def write_record(self, name: str, value: Any) -> None:
        """Write a JSON record; None removes it."""
        if value is None:
            self.path(name).unlink(missing_ok=True)
            atomic_file.sync(self.base)
        else:
            files.write(self.path(name), json.dumps(value, indent=1, sort_keys=True).encode())

    def preserve(self, path: Path) -> Path:
        """Save a damaged file that is about to be replaced, and return its new path."""
        folder = files.folder(path.parent / "aside")
        stamp = self.now().strftime("%Y%m%dT%H%M%S")
        saved_path = folder / f"{path.name}.{stamp}"
        count = 0
        while saved_path.exists():
            count += 1
            saved_path = folder / f"{path.name}.{stamp}.{count}"
        data = files.read(path)
        if data:
            files.write(saved_path, data)
        return saved_path
