"""Where things are on the master: ``pki_dir/libvirt``, with the names Salt gave them.

::

    cakey.pem cacert.pem            libvirt's authority (the certificate, then its chain)
    qemu-cakey.pem qemu-cacert.pem  QEMU's
    next-*, old-*                   the same while an authority is made or changed
    crl.pem qemu-crl.pem            revoked certificates
    HOST/serverkey.pem …            what HOST has
    HOST/issued/SERIAL.pem          every certificate it was ever given, by a CA that is trusted
    HOST/aside/                     what was damaged and had to be replaced

Everything is 0600 in folders of 0700. ``.lock`` is shared while certificates are
issued, and exclusive while an authority changes; ``HOST/.lock`` is one host's. Who waits for
``.lock`` holds ``.turn``, so that requests without pause never keep a change waiting.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from saltvirt.errors import InvalidInput, PkiError
from saltvirt.pki.common import certs, files

if TYPE_CHECKING:
    import datetime
    from collections.abc import Callable, Iterator

AUTHORITIES = {"libvirt": "", "qemu": "qemu-"}
_MAX_NAME_BYTES = 255  # bytes, of the name of a file


@dataclass(frozen=True)
class Use:
    """One pair of key and certificate that a host has, and how it is called."""

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
    """The folder, its locks and its small records. Thinks nothing."""

    def __init__(
        self, pki_dir: str | Path, clock: Callable[[], datetime.datetime] = certs.utcnow
    ) -> None:
        self.base = Path(pki_dir) / "libvirt"
        self.now = clock

    def path(self, name: str) -> Path:
        """A file of the store itself."""
        return self.base / name

    def host(self, host: object) -> Path:
        """The folder of a host, which need not exist.

        Raises InvalidInput for a minion id that could leave the store or be taken for
        one of its own files.
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
        """The whole store for the block: authorities may change in it."""
        files.folder(self.base)
        self.base.chmod(0o700)
        with self._locked():
            files.sweep(self.base)
            yield

    @contextlib.contextmanager
    def _locked(self, shared: bool = False) -> Iterator[None]:
        """The store's lock for the block, by turns: one who came first is not overtaken."""
        with contextlib.ExitStack() as stack:
            with files.locked(self.path(".turn")):
                stack.enter_context(files.locked(self.path(".lock"), shared=shared))
            yield

    @contextlib.contextmanager
    def issuing(self, host: str) -> Iterator[Path]:
        """One host's folder for the block; the authorities stay as they are in it."""
        folder = self.host(host)
        with self._locked(shared=True):
            files.folder(folder)
            folder.chmod(0o700)
            with files.locked(folder / ".lock"):
                files.sweep(folder)
                files.sweep(files.folder(folder / "issued"))
                yield folder

    def record(self, name: str, default: Any) -> Any:
        """The content of one of our JSON records. Raises PkiError when it is damaged."""
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
        """Writes a JSON record; None removes it."""
        if value is None:
            self.path(name).unlink(missing_ok=True)
            files.sync_folder(self.base)
        else:
            files.write(self.path(name), json.dumps(value, indent=1, sort_keys=True).encode())

    def preserve(self, path: Path) -> Path:
        """Keeps a file that is to be replaced although it looks wrong. Its new place."""
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
