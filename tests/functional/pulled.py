"""A disk of a guest that is off, backed up as in a cloud: exported over TLS to one reader, and read
by the program that the distribution's Python runs."""

import contextlib
import importlib
import os
import sys
import tempfile
from pathlib import Path

from saltvirt.backup.model import chains
from saltvirt.backup.model.answers import GuestInspection, InspectedDisk, ServedDisk, Serving
from saltvirt.backup.model.calls import PullRequest
from saltvirt.backup.target import daemon, receive, relay
from saltvirt.backup.target import target as targets
from saltvirt.pki.common import certs
from saltvirt.pki.host import own_pair
from saltvirt.system import tls_listener
from tests.functional.backed_up import MIB, UUID, XML, qemu_img, qemu_io

HOST = "127.0.0.1"
PORTS = 200
# each of the processes that run tests has its own: a port that one gave back is not another's
FIRST_PORT = 20809 + PORTS * int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:])
SIZE = 8 * MIB
LIBRARY = str(Path(daemon.__file__).parents[2])
HAS_LIBNBD = bool(list(Path("/usr/lib/python3/dist-packages").glob("nbd.py"))) and os.path.exists(
    "/usr/bin/qemu-storage-daemon"
)


def libnbd():
    """The distribution's binding, in this process; None where its Python is another."""
    folder = "/usr/lib/python3/dist-packages"
    sys.path.append(folder)
    try:
        return importlib.import_module("nbd")
    except ImportError:
        return None
    finally:
        sys.path.remove(folder)


@contextlib.contextmanager
def trusting(pair, told, whose):
    """The folder of a client that trusts one server alone."""
    with tempfile.TemporaryDirectory() as folder:
        own_pair.trust(folder, pair, told, whose)
        yield folder


class Pulled:
    """The disk, in a folder; its backups are in another. kind: its format."""

    def __init__(self, folder, target, size=SIZE, kind="qcow2"):
        self.size, self.kind = size, kind
        target.mkdir(mode=0o700, exist_ok=True)
        self.target = targets.BackupTarget(str(target))
        self.disk, self._inner = folder / "disk.qcow2", str(folder / "nbd")
        self.reader = own_pair.permanent(str(folder / "reader"), "reader")
        self.now, self.images, self.bitmaps = bytearray(size), {}, {}
        qemu_img("create", "-q", "-f", kind, str(self.disk), str(size))

    def write(self, offset, data, byte=None):
        """Writes data, or so many bytes of one."""
        if byte is None:
            source = self.disk.with_suffix(".in")
            source.write_bytes(data)
            qemu_io(self.disk, f"write -q -s {source} {offset} {len(data)}")
        else:
            data = bytes([byte]) * data
            qemu_io(self.disk, f"write -q -P {byte} {offset} {len(data)}")
        self.now[offset : offset + len(data)] = data

    def look(self):
        """What virt.backup_look would say."""
        disk = InspectedDisk(
            "vda", self.size, "file /srv/web1.qcow2", self.kind, dict(self.bitmaps)
        )
        return GuestInspection(UUID, False, (disk,), tuple(self.bitmaps), {}, "web1")

    def plan(self, key=None):
        """What virt.backup_plan would say."""
        return receive.plan_backup(self.target, "hv1", self.look(), key=key)

    @contextlib.contextmanager
    def shown(self, bitmap=None):
        """The port of what is shown, and its authority."""
        server = daemon.begin(
            [daemon.ExportedDisk(str(self.disk), self.kind, "vda", bitmap)], self._inner
        )
        pair = own_pair.generate(HOST, certs.SERVER)
        who = tls_listener.TlsCredentials(
            pair.authority, pair.certificate, pair.key, self.reader.authority
        )  # fmt: skip
        door = relay.begin(tls_listener.TlsEndpoint(HOST, FIRST_PORT, PORTS, who), self._inner)
        try:
            yield door.port, pair.authority
        finally:
            door.end()
            server.end()

    def back_up(self, key=None, compress=None):
        """Makes one: its name, and the disk's plan."""
        planned = self.plan(key)
        [plan] = planned.disks
        with self.shown(plan.since) as (port, authority):
            disk = ServedDisk(
                "vda", self.size, "file /srv/web1.qcow2", "vda",
                (f"qemu:dirty-bitmap:{plan.since}",) if plan.since else (),
                plan.parent, plan.reason, chains.checkpoint(planned.backup_id),
            )  # fmt: skip
            serving = Serving(UUID, HOST, port, "stopped", XML, (disk,), authority)
            made = self.receive(planned.backup_id, serving, key, compress=compress)
        for name in self.bitmaps:
            qemu_img("bitmap", "--remove", str(self.disk), name)
        if self.kind == "qcow2":
            self.bitmaps = {chains.checkpoint(made.backup_id): chains.GOOD}
            qemu_img("bitmap", "--add", str(self.disk), *self.bitmaps)
        self.images[made.backup_id] = bytes(self.now)
        return made.backup_id, plan

    def receive(self, ident, serving, key=None, tell=lambda said: None, compress=None):
        """What virt.backup_pull does."""
        told = PullRequest("", "web1", ident, "hv1", serving, key=key, compress=compress)
        with trusting(self.reader, serving.authority, "serving") as folder:
            return receive.receive(LIBRARY, self.target, told, folder, tell)
