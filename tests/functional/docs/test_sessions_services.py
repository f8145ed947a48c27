"""The sessions of the manuals about what runs beside guests (backups, certificates, consoles,
monitoring …): each command ends as the manual says, and prints what the manual shows."""

# ruff: noqa: F811
import functools
import json
import os
import re
import socket

import pytest

pytest.importorskip("libvirt")
pytest.importorskip("salt")

import salt.config

from saltvirt.fleet.answer import Answer
from saltvirt.fleet.progress import ProgressDisplay
from saltvirt.operations.access import revocation
from saltvirt.pki.authority import request_rules, responder
from saltvirt.pki.authority.policy import CertificatePolicy
from saltvirt.pki.authority.store import CertificateStore
from saltvirt.pki.host import converge, info
from tests.functional.daemon import Daemon, libvirtd  # noqa: F401
from tests.functional.docs.inside import Inside
from tests.functional.docs.terminal import Terminal, module_of
from tests.functional.docs.test_sessions import created, follow, terminal  # noqa: F401
from tests.functional.pulled import HAS_LIBNBD
from tests.lab import paths
from tests.swarm.typed import Typed
from tests.tools import api

root = pytest.mark.skipif(os.geteuid() != 0, reason="a libvirtd of our own needs root")
GUEST = "salt-run virt.init web1 cpu=1 mem=64MiB size=20MiB image=salt://debian.qcow2 seed=False"


@pytest.fixture
def beside(tmp_path):
    """A function that makes an Inside with these settings, beside a libvirtd of its own."""
    daemon, found = Daemon(alone=True), []
    daemon.wait()

    def make(**settings):
        found.append(Inside(daemon, tmp_path, **settings))
        return found[0]

    try:
        yield make
    finally:
        for terminal in found:
            terminal.close()
        daemon.stop()


@root
@pytest.mark.skipif(not HAS_LIBNBD, reason="no libnbd")
def test_backups(beside, tmp_path):
    """The hypervisor is the machine of the target, too."""
    for name in ("vault", "alone"):
        (tmp_path / name).mkdir(mode=0o700)
    vault = {"host": "hv1", "folder": str(tmp_path / "vault")}
    terminal = beside(
        master={"backup": {"targets": {"vault": vault}, "retention": {"last": 1}}},
        minion={"backup": {"address": "127.0.0.1"}},
    )
    terminal.image()
    terminal.type(GUEST)
    gone = f"# salt-run virt.purge web1 force=True\n…\n# sh rm -f {tmp_path}/srv/web1_vda*\n"
    restore, undo = "# salt-run virt.backup_restore web1", "# salt-run virt.backup_undo"
    here = {
        "/srv/backups": str(tmp_path / "alone"),
        "host=hyper2": "host=hv1",
        f"{restore}  ": f"{gone}{restore}  ",
        f"{restore} host": f"{gone}{restore} host",
        f"{restore} disk": f"# sh rm -f {tmp_path}/srv/web1_vda.2.qcow2\n{restore} disk",
        undo: f"{restore} in_place=True stop=True\n…\n{undo}",
    }
    assert follow(terminal, "backups.md", here) > 30


@pytest.fixture(scope="module")
def cloud():
    """A master with three hosts whose guests migrate, but have no disks and no systems."""
    found = Typed(hv1=["web1"], hv2=["db1"], hv3=["mail1", "shop1"])
    yield found
    found.close()


@pytest.mark.parametrize(("page", "typed"), [("hypervisors.md", 7), ("migration.md", 8)])
def test_of_several_hosts(cloud, page, typed):
    assert follow(cloud, page, {"hyper3": "hv3"}) == typed


class Hypervisors:
    """The Fleet of hosts that install what the master's authority issues to them, in a folder each.
    No daemon of theirs listens."""

    def __init__(self, opts, folder, *names):
        self.opts, self.folder, self.names = opts, folder, names
        self.store, self.rules = CertificateStore(folder / "pki"), CertificatePolicy(hosts="*")

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        return None

    def hosts(self, only=None):
        return [*self.names]

    direct_hosts = hosts

    def issue(self, host, asked):
        """The answer of the master's pillar."""
        request = request_rules.parse("_", asked["libvirt"], {})
        return responder._respond(self.store, self.rules, host, request, {})

    def ask(self, hosts, fun, _kwarg=None, **_options):
        for host in hosts:
            base, changes = str(self.folder / host), {}
            if fun == "virt.tls_update":
                given = functools.partial(self.issue, host)
                changes = converge.converge(converge.TlsHost(host, given, base)).changes
            found = {"changes": changes, "info": info.info(host, base)}
            answers = {"virt.tls_update": found, "virt.tls_info": found["info"]}
            yield Answer(host, data=answers.get(fun, []))

    def gather(self, hosts, fun, kwarg=None, **options):
        return {answer.host: answer for answer in self.ask(hosts, fun, kwarg, **options)}


class Authority(Terminal):
    """A Terminal of a master whose hosts are hv1, hv2 and hv3."""

    def __init__(self, root, patch):
        self.root = root
        opts = {**salt.config.master_config(None), "pki_dir": str(root / "pki"), "output": "json",
                "cachedir": str(root / "cache"), "virt": {"hosts": "hv*"}}  # fmt: skip
        self.fleet = Hypervisors(opts, root, "hv1", "hv2", "hv3")
        self._user, self._verbs, self.shown = None, self._load(), []
        self._output = module_of(api.REPOSITORY / "_output/virt_query.py").output
        patch.setattr(ProgressDisplay, "_fire", lambda _, text, **_how: self.shown.append(text))
        patch.setattr(revocation.target, "accepted", lambda _opts: self.fleet.names)

    def type(self, command):
        """(Exit code, what it prints)"""
        self.shown.clear()
        code, printed = super().type(command)
        return code, "\n".join([*self.shown, printed])


def test_certificates(tmp_path, monkeypatch):
    terminal = Authority(tmp_path, monkeypatch)
    [*terminal.fleet.ask(terminal.fleet.names, "virt.tls_update")]
    assert follow(terminal, "certificates.md", {}) == 5


@root
def test_consoles(beside):
    """Without what needs a guest with a system: see tests/integration/test_console.py."""
    terminal = beside(master={"reach": {"addresses": {"hv1": "127.0.0.1"}}})
    terminal.image()
    assert terminal.type(f"{GUEST} graphics=vnc")[0] == 0
    here = {"root@hyper1": f"root@{socket.gethostname()}", "qemu:///system": terminal.uri,
            "/root/": f"{terminal.root}/"}  # fmt: skip
    assert follow(terminal, "consoles.md", here, "From the master") == 2


def test_metrics(terminal, tmp_path):
    """The sessions, and the questions of the table: without certificates one has a problem."""
    terminal.image()
    created(terminal)
    here = {"/var/lib/prometheus": str(tmp_path)}
    assert follow(terminal, "metrics.md", here) == 2
    for name in ("salt-virt", "salt-virt-master"):
        assert "# HELP saltvirt_" in (tmp_path / f"{name}.prom").read_text(encoding="utf-8")
    page = paths.page("metrics.md").read_text(encoding="utf-8")
    asked = re.findall(r"^\| .*\? \| `(salt-run [^`]+)` \|", page, re.MULTILINE)
    answers = {command: terminal.type(command) for command in asked}
    assert len(answers) == 6
    assert [command for command, (code, _) in answers.items() if code] == [
        "salt-run virt.certs --out=json"
    ]
    found = {command.split()[1]: json.loads(answer[1]) for command, answer in answers.items()}
    assert found["virt.certs"]["problems"]
    assert found["virt.repair"]["repair"]["findings"] == []
    assert found["virt.migrate_unfinished"]["unfinished"]["hosts"] == {}
    assert found["virt.capacity"]["capacity"]["total"] >= 0
    assert set(found["virt.host_info"]) == {"hv1"}
