"""A guest that writes its memory faster than the network transfers it."""

import re
from pathlib import Path

import pytest

from tests.integration.migration import counter

pytestmark = [pytest.mark.lab, pytest.mark.slow]

# the guest rewrites 96 MiB as fast as it can; 20 MiB/s may leave the host
BUSY = {"dirty": 96, "memory": 256}


def busy(lab, guests, name, **config):
    guest = guests(name, **BUSY).define("hv1", "64M").start("hv1")
    text = "virt:\n  migration:\n" + "".join(f"    {k}: {v}\n" for k, v in config.items())
    lab.exec("hv1", "cat > /etc/salt/minion.d/migration.conf", input=text)
    lab.restart_minion("hv1")
    return guest


USERFAULT = Path("/proc/sys/vm/unprivileged_userfaultfd")


@pytest.fixture
def userfault():
    """What post-copy needs; libvirt's package sets it where it is not in a container."""
    before = USERFAULT.read_text()
    USERFAULT.write_text("1")
    yield
    USERFAULT.write_text(before)


@pytest.fixture(autouse=True)
def plain_minion(cloud):
    yield
    cloud.exec("hv1", "rm -f /etc/salt/minion.d/migration.conf")
    cloud.restart_minion("hv1")


def migrate(lab, name, **asked):
    return lab.call("hv1", "virt.migrate", name, "hv2", timeout=240, max_bandwidth=20, **asked)


def test_safe_aborts_and_says_why(cloud, guests):
    guest = busy(cloud, guests, "p-safe", stall_timeout=10)
    answer = migrate(cloud, "p-safe", policy="safe")
    # ten seconds, and three passes over what it writes
    assert re.search(r"aborted: no progress for \d+ s", answer), answer
    assert "p-safe runs on hv1" in answer
    guest.clear()
    guest.is_whole_on("hv1")


def test_converge_comes_to_an_end(cloud, guests):
    guest = busy(cloud, guests, "p-converge", downtime_step=3)
    answer = migrate(cloud, "p-converge", policy="converge")
    assert answer["outcome"] == "moved", answer
    guest.is_whole_on("hv2")


def test_postcopy_comes_to_an_end(cloud, guests, userfault):
    guest = busy(cloud, guests, "p-postcopy")
    answer = migrate(cloud, "p-postcopy", policy="postcopy")
    assert answer["outcome"] == "moved", answer
    guest.is_whole_on("hv2")


def test_postcopy_by_hand(cloud, guests, userfault):
    guest = busy(cloud, guests, "p-hand")
    cloud.exec("master", "salt --async hv1 virt.migrate p-hand hv2 max_bandwidth=20 postcopy=True "
               "policy=safe")  # fmt: skip
    cloud.wait(
        lambda: cloud.call("hv1", "virt.migrate_start_postcopy", "p-hand") is True, "it switches"
    )
    cloud.wait(lambda: not counter.unfinished(cloud, "hv1"), "it is over", 120)
    guest.is_whole_on("hv2")


def test_pause_comes_to_an_end(cloud, guests):
    guest = busy(cloud, guests, "p-pause", stall_timeout=5)
    answer = migrate(cloud, "p-pause", policy="pause")
    assert answer["outcome"] == "moved", answer
    guest.is_whole_on("hv2")


def test_out_of_time(cloud, guests):
    guest = busy(cloud, guests, "p-time")
    done = cloud.exec(
        "hv1",
        "salt-call virt.migrate p-time hv2 policy=safe timeout=8 max_bandwidth=20",
        check=False,
    )
    assert "aborted: not done in 8 s" in done.stdout + done.stderr
    guest.clear()
    guest.is_whole_on("hv1")


@pytest.mark.parametrize("signal", ["INT", "KILL"])
def test_who_ends_the_call_in_post_copy_does_not_end_the_guest(cloud, guests, userfault, signal):
    name = f"p-{signal.lower()}"
    guest = busy(cloud, guests, name)
    asked = f"virt.migrate {name} hv2 policy=postcopy max_bandwidth=20 postcopy_bandwidth=2"
    cloud.exec("hv1", f"systemd-run --unit={name} salt-call {asked}")
    cloud.wait(
        lambda: "post-copy" in cloud.exec("hv1", f"virsh domstate --reason {name}").stdout,
        "post-copy has begun",
        every_s=0.2,
    )
    cloud.exec("hv1", f"systemctl kill --signal={signal} {name}")
    recover = lambda: cloud.call("hv1", "virt.migrate_recover", name)  # noqa: E731
    said = str(recover())
    assert "post-copy" in said or "still migrating" in said or "moved" in said, said
    cloud.wait(lambda: "outcome" in str(recover()), "the migration is over", 180)
    guest.is_whole_on("hv2")
