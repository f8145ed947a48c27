"""A guest runs from a backup that another machine shows. This process shows it to the guest's QEMU,
on a socket of this host, and has libvirt pull its blocks in, until the guest stands on nothing.

It outlives the job that began it, the minion and libvirt's daemon. When it dies, or what it reads
from is cut off, QEMU pauses the guest at the first block that it has to read: nothing is lost.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from saltvirt import errors, places, settings
from saltvirt.backuphost import apart, daemon, relay
from saltvirt.backuphost.daemon import Far
from saltvirt.host import connection
from saltvirt.host.connection import libvirt
from saltvirt.host.domain import guest_lock, lookup, stands
from saltvirt.host.domain.stands import Stood
from saltvirt.images import locks
from saltvirt.wire import Fact
from saltvirt.xml.disk import Disk
from saltvirt.xml.domain import Domain

MODULE = "backupserve.standing"
SOCKETS = "/run/libvirt/salt-virt"
_LONGEST_SOCKET = 107
_LOOK_S, _AGAIN_S = 1, 5
_POLICIES = ("error_policy", "rerror_policy")
STOP = "stop"


@dataclass(frozen=True)
class KeepRequest(Fact):
    """uri, username, password: of libvirt. locks: the folder of the guests' locks. certificate,
    key: by which the machine of the target knows this one."""

    guest: str
    uri: str | None
    username: str | None
    password: str | None = field(repr=False)
    locks: str
    certificate: str
    key: str = field(repr=False)


def request(
    get: Callable[..., Any], given: Mapping[str, Any], guest: str, certificate: str, key: str
) -> KeepRequest:
    """get: this minion's configuration. given: what overrides it of the connection to libvirt."""
    local = settings.connection(get, dict(given))
    where = local.uri, local.username, local.password, guest_lock.folder(get)
    return KeepRequest(guest, *where, certificate, key)


def socket_of(guest: str) -> str:
    """Where the guest's QEMU finds its backup. AppArmor lets each guest use a path that ends so
    below there, by the profile that libvirt makes; of what its disks name it has files only.

    Raises InvalidInput for a name that is too long for the path of a socket.
    """
    path = _socket(guest)
    over = len(os.fsencode(path)) - _LONGEST_SOCKET
    if over > 0:
        raise errors.InvalidInput(
            f"{guest} is {over} letters too long to run from a backup: restore it without instant"
        )
    return path


def _socket(guest: str) -> str:
    return f"{SOCKETS}/nbd.tunnelmigrate.dest.{guest}"


def standing(guest: str, tree: ElementTree.Element) -> list[str]:
    """The disks of a definition that stand on the backup."""
    path = _socket(guest)
    return [
        str(disk.target)
        for disk in map(Disk, tree.iterfind("devices/disk"))
        if disk.backing_store
        and disk.backing_store.source
        and any(host.socket == path for host in disk.backing_store.source.hosts)
    ]


def hidden(stood: Stood) -> str | None:
    """Why the backup is not shown to this host; None where it is. A port that is free again may be
    another backup's by now."""
    try:
        if relay.shows(stood.host, stood.port, stood.authority):
            return None
    except OSError:
        return f"{stood.host} does not answer on port {stood.port}"
    return f"on port {stood.port} of {stood.host} something else answers by now"


def at_error(dom: libvirt.virDomain) -> bool:
    """Whether the guest was paused at a block that could not be read."""
    paused = [libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PAUSED_IOERROR]
    return bool(dom.state() == paused)


class Keeper:
    """Hold ``stands.kept``."""

    def __init__(self, asked: KeepRequest) -> None:
        self._asked, self._path = asked, socket_of(asked.guest)
        self._server: daemon.Server | None = None
        self._next_s = 0.0
        self._gone = 0
        self.signalled = False

    @contextlib.contextmanager
    def _libvirt(self) -> Iterator[libvirt.virConnect]:
        asked = self._asked
        local = settings.Connection(asked.uri, asked.username, asked.password)
        with connection.connect(local) as conn:
            yield conn

    def begin(self) -> None:
        """Shows the backup here. Raises OperationFailed, and then it does not."""
        stood = self._stood()
        with self._libvirt() as conn:
            owner = _qemu(conn)
        os.makedirs(SOCKETS, 0o711, exist_ok=True)
        with locks.for_now(places.RUN, "stands-") as folder:
            texts = {
                "ca-cert.pem": stood.authority,
                "client-cert.pem": self._asked.certificate, "client-key.pem": self._asked.key,
            }  # fmt: skip
            for name, text in texts.items():
                Path(folder, name).write_text(text, encoding="ascii")
            far = Far(stood.host, stood.port, stood.disks, folder)
            self._server = daemon.hand_on(far, self._path)
        os.chown(self._path, *owner)
        os.chmod(self._path, 0o600)

    def _stood(self) -> Stood:
        found = stands.of(self._asked.guest)
        if found is None:
            raise errors.NotFound(f"{self._asked.guest} stands on no backup")
        return found

    def keep(self) -> None:
        """Until the guest stands on nothing, or is gone, or this is ended by a signal."""
        while not self.signalled:
            # libvirt is being restarted, or /run is full; QEMU goes on
            with contextlib.suppress(libvirt.libvirtError, errors.VirtError, OSError):
                self._lives()
                with self._libvirt() as conn:
                    if self._is_over(conn):
                        break
            time.sleep(_LOOK_S)
        if self._server:
            self._server.end()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path)

    def _lives(self) -> None:
        """What shows the backup here is begun again where it has died."""
        if self._server and not self._server.lives and self._is_time():
            self.begin()

    def _is_over(self, conn: libvirt.virConnect) -> bool:
        stood = stands.of(self._asked.guest)
        dom = lookup.find(conn, self._asked.guest) if stood else None
        if stood is None or dom is None or dom.UUIDString() != stood.uuid:
            self._gone += 1
            if self._gone > 2:
                stands.forget(self._asked.guest)
            return self._gone > 2
        self._gone = 0
        left = standing(stood.guest, ElementTree.fromstring(dom.XMLDesc(0)))
        if not left:
            # asked for it, libvirt waits until it is through with the end of the job: defined
            # meanwhile, the guest's definition is used there after it was freed (libvirt 9.0)
            if dom.isActive() and any(dom.blockJobInfo(one, 0) for one in stood.disks):
                return False
            if at_error(dom):  # since it was last told to run on
                dom.resume()
            stands.forget(stood.guest)
            with contextlib.suppress(errors.VirtError, libvirt.libvirtError):
                restore_policies(conn, self._asked.locks, stood)
            return True
        if dom.isActive():
            self._pull(dom, stood, left[0])
        return False

    def _pull(self, dom: libvirt.virDomain, stood: Stood, target: str) -> None:
        """Goes on after what was cut off, too."""
        stuck = at_error(dom)
        if not stuck and dom.blockJobInfo(target, 0):
            return
        if not self._is_time() or hidden(stood):
            return
        if stuck:
            dom.resume()
        if not dom.blockJobInfo(target, 0):
            dom.blockPull(target, stood.bandwidth_mib_s or 0, 0)

    def _is_time(self) -> bool:
        """Not more often than now and then."""
        now_s = time.monotonic()
        if now_s < self._next_s:
            return False
        self._next_s = now_s + _AGAIN_S
        return True


def restore_policies(conn: libvirt.virConnect, locks: str, stood: Stood) -> None:
    """At an error the disks do what they did before, from the guest's next start on."""
    with guest_lock.held(locks, "virt.backup_instant", stood.guest):
        dom = lookup.lookup(conn, stood.guest)
        flags = libvirt.VIR_DOMAIN_XML_INACTIVE | libvirt.VIR_DOMAIN_XML_SECURE
        model = Domain.fromstring(dom.XMLDesc(flags))
        for disk in model.disks:
            before = (stood.policies or {}).get(disk.target or "")
            if before and (disk.error_policy, disk.rerror_policy) == (STOP, STOP):
                disk.error_policy, disk.rerror_policy = (one or None for one in before)
        lookup.define(conn, model.tostring())


def policies(disk: Disk) -> tuple[str, ...]:
    """What a disk does at an error, as ``restore_policies`` takes it."""
    return tuple(getattr(disk, name) or "" for name in _POLICIES)


def _qemu(conn: libvirt.virConnect) -> tuple[int, int]:
    """As whom QEMU runs."""
    tree = ElementTree.fromstring(conn.getCapabilities())
    for model in tree.iterfind("host/secmodel"):
        label = model.findtext("baselabel") or ""
        if model.findtext("model") == "dac" and label.count(":") == 1:
            uid, gid = label.split(":")
            return int(uid), int(gid)
    return os.geteuid(), os.getegid()


def main(_words: list[str]) -> int:
    """The program: a KeepRequest on its standard input; one line on its standard output."""
    asked = KeepRequest.from_answer(json.load(sys.stdin), "what is to be kept")
    try:
        with stands.kept(asked.guest):
            keeper = Keeper(asked)
            signal.signal(signal.SIGTERM, lambda *_args: setattr(keeper, "signalled", True))
            keeper.begin()
            apart.say({"begun": True})
            keeper.keep()
    except errors.VirtError as exc:
        apart.say({"error": exc.text})
        return 1
    return 0
