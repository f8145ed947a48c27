"""The sessions of the manuals about what runs beside guests (backups, certificates, consoles,
monitoring …): each command ends as the manual says, and prints what the manual shows."""

import os

import pytest

pytest.importorskip("libvirt")
pytest.importorskip("salt")

from tests.functional.daemon import Daemon
from tests.functional.docs.inside import Inside
from tests.functional.docs.test_sessions import follow
from tests.functional.pulled import HAS_LIBNBD
from tests.swarm.typed import Typed

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
