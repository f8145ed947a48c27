"""A guest runs from an exported backup while its blocks are copied, with real QEMU, TLS and keys,
in a private libvirtd."""

import contextlib
import os
import socket
import subprocess
import threading
import time
from pathlib import Path
from xml.etree import ElementTree

import pytest

pytest.importorskip("libvirt")
pytest.importorskip("salt")
pytest.importorskip("cryptography")

import libvirt
from salt.exceptions import CommandExecutionError

from saltvirt import errors
from saltvirt.backup.export import (
    handlers,
    in_place_restore,
    live_restore_build,
    live_restore_server,
    live_restores,
    replaced_guest,
)
from saltvirt.backup.model.answers import ShownBackup, ShownDisk
from saltvirt.backup.model.pins import COMPLETE, DISCONNECTED, MISSING, OFF, PULLING
from saltvirt.backup.target import daemon, keyfile, layers, relay
from saltvirt.backup.target import handlers as target_handlers
from saltvirt.host.domain import guest_lock
from saltvirt.host.migration import api as migration
from saltvirt.host.migration import job as job_module
from saltvirt.host.provision import admission, guest_builder
from saltvirt.migration import options, transport
from saltvirt.pki.common import certs
from saltvirt.pki.host import own_pair
from saltvirt.system import tls_listener
from tests.functional import asking
from tests.functional.backup.test_backup_sealed import keys_in
from tests.functional.daemon import libvirtd  # noqa: F401
from tests.functional.operations.test_killed import DISK, GUEST, MIB, Host
from tests.functional.pulled import FIRST_PORT, PORTS

pytestmark = pytest.mark.skipif(
    not os.path.exists("/usr/bin/qemu-storage-daemon"), reason="no qemu-storage-daemon"
)
SIZE, HERE = 64 * MIB, "127.0.0.1"
# reads a sector of each 64 KiB, over and over; at an error it would stop for good
READS = bytes.fromhex(
    "31c08ed8b442b280be257ccd1372146681062d7c800000006681262d7cffff0100ebe1faf4"
    "100001000080000000000000000000000000"
)
IDENT = "000001-20261125T160000Z-0123abcd"


def until(wanted, seconds=180):
    """What is true at last."""
    end = time.monotonic() + seconds
    while not (found := wanted()) and time.monotonic() < end:
        time.sleep(0.1)
    assert found
    return found


class Target:
    """A machine that shows a backup."""

    def __init__(self, folder, reader):
        self.folder, self.reader = folder, reader
        self.server = self.door = self.key = None

    def make(self, targets):
        for target in targets:
            raw = self.folder / f"{target}.raw"
            boot = READS.ljust(510, b"\0") + b"\x55\xaa"
            raw.write_bytes(boot + os.urandom(SIZE // 2 - 512))
            os.truncate(raw, SIZE)
            argv = ["qemu-img", "convert", "-O", "qcow2"]
            if self.key:
                crypt = f"encrypt.format=luks,encrypt.key-secret={keyfile.ID},encrypt.iter-time=10"
                argv += ["--object", self.key.qemu_object, "-o", crypt]
            argv += [raw, self.folder / f"{target}.b"]
            # where others have the CPU, QEMU cannot tell how long LUKS takes
            until(lambda argv=argv: subprocess.run(argv, check=False).returncode == 0)

    def show(self, definition, targets):
        inner = str(self.folder / "show")
        paths = {t: (str(self.folder / f"{t}.b"),) for t in targets}
        disks = [layers.Layers(path, self.key).exported(t) for t, path in paths.items()]
        self.server = daemon.begin(disks, inner)
        pair = own_pair.generate(HERE, certs.SERVER)
        told = tls_listener.TlsCredentials(
            pair.authority, pair.certificate, pair.key, self.reader.authority
        )
        self.door = relay.begin(tls_listener.TlsEndpoint(HERE, FIRST_PORT, PORTS, told), inner)
        shown = tuple(ShownDisk(target, SIZE) for target in targets)
        return ShownBackup(IDENT, "web1", HERE, self.door.port, definition, shown, pair.authority)

    def die(self):
        if self.door:
            self.door.end()
            self.server.end()
            self.door = self.server = None


class Here(Host):
    """The hypervisor."""

    def __init__(self, uri, folder, pair, keepers):
        super().__init__(uri, folder)
        self.pair, self.keepers = pair, keepers
        self.config = admission.AdmissionConfig.configured(self.modules["config.get"])

    def how(self, name, bandwidth=None):
        locks = guest_lock.folder(self.modules["config.get"])
        asked = live_restore_server.LiveRestoreServerRequest(
            name, self.uri, None, None, locks, self.pair.certificate, self.pair.key
        )
        return live_restore_build.LiveRestoreOptions("", asked, bandwidth)

    def restore(
        self,
        shown,
        name="web1",
        kind=live_restore_build.LiveRestoreBuilder,
        last=True,
        bandwidth=None,
    ):
        with self.conn() as conn:
            tools = guest_builder.Tools(self.config)
            wanted = guest_builder.GuestRequest(name, start=True)
            one = kind(conn, wanted, tools, shown, "", last)
            one.options = self.how(name, bandwidth)
            return one.run().to_answer()

    def look(self, name="web1"):
        with self.conn() as conn:
            return live_restore_build.read_status(conn, name)

    def migratable(self, name="web1"):
        with self.conn() as conn:
            job = job_module.MigrationJob(name, transport.parse("hv2"), options.parse({}))
            return migration.migratable(conn, job, False)

    def recreate(self, shown, name="web1"):
        with self.conn() as conn:
            return live_restore_build.resume(conn, self.how(name), name, shown)

    def dom(self, conn, name="web1"):
        return conn.lookupByName(name)

    def disks(self, flags=0):
        with self.conn() as conn:
            tree = ElementTree.fromstring(self.dom(conn).XMLDesc(flags))
        return {one.find("target").get("dev"): one for one in tree.iterfind("devices/disk")}


class Keepers:
    """The processes of hypervisors, as threads of this one."""

    def __init__(self):
        self.there = {}

    def begin(self, how):
        keeper = live_restore_server.LiveRestoreServer(how.request)
        keeper.begin()
        self.end(how.request.guest)
        thread = threading.Thread(target=keeper.run, daemon=True)
        self.there[how.request.guest] = keeper, thread
        thread.start()

    def end(self, name):
        found = self.there.pop(name, None)
        if found:
            found[0].signalled = True
            found[1].join()

    def lives(self, name):
        return os.getpid() if name in self.there and self.there[name][1].is_alive() else None


@pytest.fixture
def keepers(tmp_path, monkeypatch):
    found = Keepers()
    sockets = Path("/tmp") / f"sv-{os.getpid()}"
    monkeypatch.setattr(live_restore_server, "SOCKETS", str(sockets))
    monkeypatch.setattr(daemon, "RECONNECTS_S", 1)
    monkeypatch.setattr(live_restore_server, "_RETRY_S", 0.5)
    monkeypatch.setattr(live_restore_server, "_POLL_S", 0.1)
    monkeypatch.setattr(live_restores, "FOLDER", str(tmp_path / "stands"))
    monkeypatch.setattr(replaced_guest, "FOLDER", str(tmp_path / "aside"))
    monkeypatch.setattr(live_restore_build, "begin", found.begin)
    monkeypatch.setattr(live_restore_build, "stop_server", found.end)
    monkeypatch.setattr(live_restores, "server_pid", found.lives)
    yield found
    for name in [*found.there]:
        found.end(name)
    subprocess.run(["rm", "-rf", sockets], check=True)


@pytest.fixture
def host(libvirtd, tmp_path, keepers):  # noqa: F811
    pair = own_pair.permanent(str(tmp_path / "reader"), "reader")
    found = Here(libvirtd.uri, tmp_path, pair, keepers)
    yield found
    with found.conn() as conn:
        for dom in conn.listAllDomains():
            if dom.isActive():
                dom.destroy()
    found.clear()


@pytest.fixture
def target(tmp_path, host):
    found = Target(tmp_path, host.pair)
    yield found
    found.die()


def definition(host, targets):
    disks = "".join(
        DISK.format(format="qcow2", path=f"/srv/old/{t}.qcow2", target=t) for t in targets
    )
    with host.conn() as conn:
        dom = conn.defineXML(GUEST.format(name="web1", disks=disks))
        found = dom.XMLDesc(0)
        dom.undefine()
    return found


def is_the_same(host, target, name):
    """A disk on which nothing was written, with what was backed up. The guest is off then: what
    QEMU has not flushed is in no file."""
    with host.conn() as conn:
        if host.dom(conn).isActive():
            host.dom(conn).destroy()
    path = host.images / f"web1_{name}.qcow2"
    argv = ["qemu-img", "info", "-U", path]
    info = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    assert "backing file" not in info
    argv = ["qemu-img", "compare", "-U", "-f", "qcow2", "-F", "raw", path]
    return subprocess.run([*argv, target.folder / f"{name}.raw"], check=False).returncode == 0


def test_it_runs_at_once_and_stands_on_nothing_at_last(host, target):
    targets = ("vda", "vdb")
    target.make(targets)
    shown = target.show(definition(host, targets), targets)
    made = host.restore(shown, bandwidth=8)
    assert made["state"] == "running"
    found = host.look()
    assert found.state == PULLING and found.percent < 50 and found.backup_id == IDENT
    for disk in host.disks().values():
        driver = disk.find("driver")
        assert (driver.get("error_policy"), driver.get("rerror_policy")) == ("stop", "stop")
        assert (
            disk.find("backingStore/source/host")
            .get("socket")
            .startswith(live_restore_server.SOCKETS)
        )
    locks = guest_lock.folder(host.modules["config.get"])
    for verb in ("virt.migrate to hv2", "virt.snapshot", "virt.backup", "virt.rename"):
        refused = pytest.raises(errors.Refused, match="still runs from the backup")
        with refused, guest_lock.acquire(locks, verb, "web1"):
            pass
    # the run is refused by the lock: a dry run says the same
    [why] = host.migratable().reasons
    assert f"runs from the backup {IDENT}: salt-run virt.backup_instant web1" in why
    until(lambda: host.look().state == COMPLETE)
    until(lambda: not host.keepers.lives("web1"))
    assert host.migratable().migratable
    for flags in (0, libvirt.VIR_DOMAIN_XML_INACTIVE):
        for disk in host.disks(flags).values():
            assert disk.find("backingStore/source") is None
    for disk in host.disks(libvirt.VIR_DOMAIN_XML_INACTIVE).values():
        assert disk.find("driver").get("error_policy") is None
    assert all(is_the_same(host, target, one) for one in targets)
    assert live_restores.load("web1") is None and not os.listdir(live_restore_server.SOCKETS)
    assert not target.door.has_readers
    with guest_lock.acquire(locks, "virt.migrate to hv2", "web1"):
        pass


def test_from_a_backup_that_is_encrypted(host, target, tmp_path, monkeypatch):
    keys_in(tmp_path, monkeypatch)
    target.key = keyfile.load("vault")
    target.make(["vda"])
    assert (target.folder / "vda.raw").read_bytes()[:512] not in (
        target.folder / "vda.b"
    ).read_bytes()
    host.restore(target.show(definition(host, ["vda"]), ["vda"]), bandwidth=8)
    until(lambda: host.look().state == COMPLETE)
    assert is_the_same(host, target, "vda")


def test_each_time_by_a_key_of_that_time_alone(host, target, tmp_path, monkeypatch):
    """By the modules: no file of it stays, and none is used twice."""
    readers = str(tmp_path / "readers")
    for module in (handlers, target_handlers):
        monkeypatch.setattr(module, "ONE_TIME_KEYS", readers)
    monkeypatch.setattr(
        own_pair, "permanent", lambda *_: pytest.fail("the key that the machine keeps is used")
    )
    target.make(["vda"])
    target.reader = first = own_pair.ephemeral(readers, "reader")
    shown = target.show(definition(host, ["vda"]), ["vda"])
    asked = {"instant": True, "bandwidth": 1, "itself": True, "reader": first.authority}
    restored = asking.answer(
        host.modules, "virt.backup_restore", "web1", shown.to_answer(), **asked
    )
    assert restored["state"] == "running"
    until(lambda: host.look().percent)
    assert not [one for one in os.listdir(readers) if not one.startswith(".")]
    target.die()
    until(lambda: host.look().paused)
    target.reader = own_pair.ephemeral(readers, "reader")
    shown = target.show(shown.definition, ["vda"]).to_answer()
    with pytest.raises(CommandExecutionError, match="was already used: start again"):
        asking.answer(host.modules, "virt.backup_again", "web1", shown, first.authority)
    resumed = asking.answer(
        host.modules, "virt.backup_again", "web1", shown, target.reader.authority
    )
    assert resumed["backup_id"] == IDENT
    until(lambda: host.look().state == COMPLETE)
    assert not [one for one in os.listdir(readers) if not one.startswith(".")]
    assert is_the_same(host, target, "vda")


def test_cut_off_it_is_paused_and_goes_on_where_it_was(host, target):
    """The machine of the target dies; it comes back with another key, on another port."""
    target.make(["vda"])
    shown = target.show(definition(host, ["vda"]), ["vda"])
    host.restore(shown, bandwidth=1)
    until(lambda: host.look().percent)
    target.die()
    found = until(lambda: (said := host.look()).paused and said)
    # or something else does, of another test
    assert found.state == DISCONNECTED and f"port {shown.port}" in found.reason
    assert host.disks()["vda"].find("backingStore/source") is not None
    assert host.recreate(target.show(shown.definition, ["vda"])).state in (PULLING, DISCONNECTED)
    until(lambda: host.look().state == COMPLETE)
    with host.conn() as conn:
        until(lambda: host.dom(conn).state()[0] == libvirt.VIR_DOMAIN_RUNNING)
    assert is_the_same(host, target, "vda")


@pytest.mark.parametrize("says", [b"", b"SSH-2.0-OpenSSH_9.2p1\r\n", None])
def test_what_answers_on_its_port_by_now_is_not_taken_for_it(host, target, says):
    """The ports are few: another backup may have this one's. says: of no such door."""
    target.make(["vda"])
    shown = target.show(definition(host, ["vda"]), ["vda"])
    host.restore(shown, bandwidth=1)
    until(lambda: host.look().percent)
    target.die()
    with another(target, shown.port, says):
        found = until(lambda: (said := host.look()).paused and said)
        assert (
            found.state == DISCONNECTED
            and f"another server answers on port {shown.port} of {HERE}" in found.reason
        )
    host.recreate(target.show(shown.definition, ["vda"]))
    until(lambda: host.look().state == COMPLETE)
    assert is_the_same(host, target, "vda")


@contextlib.contextmanager
def another(target, port, says):
    """Has the port. says: to who calls; None: it is a door as the one before, of another key."""
    if says is None:
        pair = own_pair.generate(HERE, certs.SERVER)
        mine = target.reader.authority
        told = tls_listener.TlsCredentials(pair.authority, pair.certificate, pair.key, mine)
        found = relay.begin(
            tls_listener.TlsEndpoint(HERE, port, 1, told), str(target.folder / "show")
        )
        yield
        found.end()
        return
    with socket.create_server((HERE, port)) as line:
        threading.Thread(target=speaks, args=(line, says), daemon=True).start()
        yield
        line.shutdown(socket.SHUT_RDWR)


def speaks(line, says):
    with contextlib.suppress(OSError):
        while True:
            with line.accept()[0] as caller:
                caller.sendall(says)


def test_the_door_that_is_back_is_enough(host, target):
    """What shows the backup here is connected again by itself."""
    target.make(["vda"])
    shown = target.show(definition(host, ["vda"]), ["vda"])
    host.restore(shown, bandwidth=4)
    until(lambda: host.look().percent)
    with target.door._lock:
        for one in target.door._open:
            with contextlib.suppress(OSError):
                one.shutdown(2)
    until(lambda: host.look().state == COMPLETE)
    assert is_the_same(host, target, "vda")


def test_the_process_that_shows_it_here_dies(host, target):
    target.make(["vda"])
    shown = target.show(definition(host, ["vda"]), ["vda"])
    host.restore(shown, bandwidth=1)
    host.keepers.end("web1")
    found = until(lambda: (said := host.look()).paused and said)
    assert found.state == DISCONNECTED and "died" in found.reason
    host.recreate(target.show(shown.definition, ["vda"]))
    until(lambda: host.look().state == COMPLETE)
    assert is_the_same(host, target, "vda")


def test_off_in_the_middle_it_starts_only_while_its_backup_is_shown(host, target):
    target.make(["vda"])
    shown = target.show(definition(host, ["vda"]), ["vda"])
    host.restore(shown, bandwidth=1)
    with host.conn() as conn:
        host.dom(conn).destroy()
        assert host.look().state == OFF
        host.keepers.end("web1")
        with pytest.raises(errors.OperationFailed, match="backup_instant web1 to export it again"):
            live_restores.may_start("web1")
        with pytest.raises(libvirt.libvirtError):
            host.dom(conn).create()
        host.recreate(shown)
        live_restores.may_start("web1")
        host.dom(conn).create()
    until(lambda: host.look().state == COMPLETE)
    assert is_the_same(host, target, "vda")


def test_what_is_purged_is_gone_with_its_disks(host, target):
    target.make(["vda"])
    shown = target.show(definition(host, ["vda"]), ["vda"])
    host.restore(shown, bandwidth=1)
    assert host.call("purge", "web1")
    assert host.look().state == MISSING
    until(lambda: not host.keepers.lives("web1"))
    assert live_restores.load("web1") is None and host.files() == []


def test_in_the_place_of_a_guest_and_back(host, target, monkeypatch):
    switch, known = in_place_restore.InPlaceRestore._switch, []

    def switched(one, state):
        known.append(live_restores.load("web1").backup_id)
        switch(one, state)

    # else nobody could show it again after a kill in between
    monkeypatch.setattr(in_place_restore.InPlaceRestore, "_switch", switched)
    target.make(["vda"])
    old = str(host.folder / "old.qcow2")
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", old, str(SIZE)], check=True)
    with host.conn() as conn:
        disk = DISK.format(format="qcow2", path=old, target="vda")
        conn.defineXML(GUEST.format(name="web1", disks=disk))
        text = host.dom(conn).XMLDesc(0)
    shown = target.show(text, ["vda"])
    made = host.restore(shown, kind=live_restore_build.LiveInPlaceRestore, last=False, bandwidth=1)
    assert made["state"] == "running" and host.look().state == PULLING
    assert known == [shown.backup_id]
    with host.conn() as conn, pytest.raises(errors.Refused, match="still runs from"):
        in_place_restore.confirm(conn, host.config, "web1")
    with host.conn() as conn:
        assert in_place_restore.undo(conn, host.config, "web1", True).leftovers == ()
        assert old in host.dom(conn).XMLDesc(0)
    until(lambda: not host.keepers.lives("web1"))
    assert host.files() == [] and live_restores.load("web1") is None


def test_what_fails_leaves_nothing(host):
    authority = own_pair.generate(HERE, certs.SERVER).authority
    disks = (ShownDisk("vda", SIZE),)
    with socket.socket() as nobody:  # the port is taken, and nobody listens on it
        nobody.bind((HERE, 0))
        port = nobody.getsockname()[1]
        shown = ShownBackup(IDENT, "web1", HERE, port, definition(host, ["vda"]), disks, authority)
        with pytest.raises(errors.OperationFailed, match="cannot be exported"):
            host.restore(shown)
    with host.conn() as conn:
        assert conn.listAllDomains() == []
    assert host.files() == [] and live_restores.load("web1") is None
    long = "w" * 80
    with pytest.raises(errors.InvalidInput, match="too long for a live restore"):
        host.restore(shown, name=long)


def test_apparmor_lets_the_guest_use_the_socket(tmp_path):
    """By the profile that libvirt's own helper makes of the definition."""
    helper = "/usr/lib/libvirt/virt-aa-helper"
    if not os.path.exists(helper):
        pytest.skip("no virt-aa-helper")
    uuid = "11111111-2222-3333-4444-555555555555"
    xml = GUEST.format(name="web1", disks="").replace("<memory>", f"<uuid>{uuid}</uuid><memory>")
    argv = [helper, "-r", "-d", "-u", f"libvirt-{uuid}"]
    done = subprocess.run(argv, input=xml, capture_output=True, text=True, check=True)
    rule = '"/run/libvirt/**/*.tunnelmigrate.dest.web1" rw,'
    assert rule in done.stdout + done.stderr
    assert Path(live_restore_server.socket_path("web1")).match(
        "/run/libvirt/*/*.tunnelmigrate.dest.web1"
    )
