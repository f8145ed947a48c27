"""The lab's BMCs and watchdogs power a machine off as real ones do, controlled by Debian's fence
agent and Linux' own calls."""

import os
import signal
import subprocess
import time

import pytest

from tests.chaos.faults import of_namespace
from tests.lab import power
from tests.lab.sh import run

pytestmark = [pytest.mark.lab, pytest.mark.slow]

# that of a watchdog: nothing of a busy machine stands still for so long
TIMEOUT_S = 10
# opens the watchdog, with that time-out, does what it is told, and stays or ends
FED = """
import fcntl, os, struct, sys, time
device = os.open("/dev/watchdog", os.O_WRONLY)
fcntl.ioctl(device, 0xC0045706, struct.pack("i", int(sys.argv[3])))
found = struct.unpack("i", fcntl.ioctl(device, 0x80045707, bytes(4)))[0]
assert found == int(sys.argv[3]), found
print("armed", flush=True)
end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    os.write(device, b".")
    time.sleep(0.3)
os.write(device, sys.argv[2].encode())
os.close(device)
"""


def feed(lab, host, for_s, last):
    """Feed the host's watchdog for so long, and write last before it is closed."""
    return lab.exec(host, ["python3", "-c", FED, for_s, last, TIMEOUT_S], check=False)


def is_off(lab, host):
    return lab.machine(host).leader() is None


def fence(lab, action, password=power.PASSWORD, index=1):
    """fence_redfish, on the lab's switch; its CompletedProcess."""
    argv = [
        "ip", "netns", "exec", lab.network.switch, "timeout", "200", "fence_redfish", "--ip",
        power.address(index), "--username", "admin", "--password", password, "--ssl-insecure",
        "--action", action,
    ]  # fmt: skip
    return run(argv, check=False, timeout=300)


@pytest.fixture
def host(power_lab):
    """hv1, which is on, before and after."""
    yield "hv1"
    if is_off(power_lab, "hv1"):
        power_lab.power_on("hv1")


def test_who_is_fed_keeps_its_power_and_who_says_goodbye_too(power_lab, host):
    done = feed(power_lab, host, TIMEOUT_S + 3, "V")
    assert done.returncode == 0, done.stderr
    time.sleep(TIMEOUT_S + 2)
    assert not is_off(power_lab, host)


def test_who_is_no_longer_fed_loses_its_power(power_lab, host):
    feed(power_lab, host, 1, ".")
    began = time.monotonic()
    power_lab.wait(lambda: is_off(power_lab, host), "no power", 10, 0.05)
    assert time.monotonic() - began < 4 * TIMEOUT_S, "not the time that a watchdog begins with"
    assert not is_off(power_lab, "hv2")


def test_a_host_that_stands_still_loses_its_power(power_lab, host):
    """SIGSTOP of all of it: nobody in it can feed."""
    machine = power_lab.machine(host)
    leader = machine.leader()
    argv = machine.argv(["python3", "-c", FED, "600", "V", str(TIMEOUT_S)])
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as feeds:
        assert feeds.stdout.readline() == "armed\n"
        for pid in of_namespace(os.readlink(f"/proc/{leader}/ns/pid")):
            os.kill(pid, signal.SIGSTOP)
        # nsenter, outside, stands still with the one that it waits for; no machine ends before that
        feeds.kill()
    power_lab.wait(lambda: is_off(power_lab, host), "no power", 10, 0.05)


def test_a_machine_that_is_on_again_has_a_watchdog_at_rest(power_lab, host):
    feed(power_lab, host, 1, ".")
    power_lab.power_off(host)
    power_lab.power_on(host)
    time.sleep(TIMEOUT_S + 2)
    assert not is_off(power_lab, host)


def test_the_fence_agent_sees_and_takes_and_gives_the_power(power_lab, host):
    assert "Status: ON" in fence(power_lab, "status").stdout
    power_lab.cut(host)
    done = fence(power_lab, "off")
    power_lab.heal(host)
    assert done.returncode == 0, done.stderr
    assert is_off(power_lab, host)
    assert "Status: OFF" in fence(power_lab, "status").stdout
    assert fence(power_lab, "on").returncode == 0
    assert not is_off(power_lab, host)
    power_lab.wait_for_minion(host)


def test_the_fence_agent_says_when_it_cannot(power_lab, host):
    assert fence(power_lab, "status", password="wrong").returncode not in (0, 2)
    machine = power_lab.machine(host)
    power.end_bmc(machine)
    try:
        assert fence(power_lab, "off").returncode != 0
        assert not is_off(power_lab, host)
    finally:
        power.begin_bmc(power_lab, machine, 1)
    assert "Status: ON" in fence(power_lab, "status").stdout
