"""Answers of an accepted minion in the name of another one: none is believed."""

import threading
from pathlib import Path

import pytest

from saltvirt.fleet import proof

pytestmark = pytest.mark.lab

MODULES = "/var/cache/salt/minion/extmods/modules"
FORGED = {"said": {"return": {"stolen": "running"}, "retcode": 0}, "proof": "AAAA"}


@pytest.fixture
def forger(lab):
    """hv2 answers for hv1, whose minion is stopped."""
    lab.push("hv2", Path(__file__).with_name("forge.py"), MODULES)
    lab.exec("hv1", "systemctl kill -s STOP salt-minion")
    given = ["salt-call", "forge.returns", "hv1", f"data={FORGED}", "seconds=3000"]
    how = {"check": False, "timeout": 3600}
    thread = threading.Thread(target=lab.exec, args=("hv2", given), kwargs=how)
    thread.start()
    started = "pgrep -f 'salt-call forge[.]returns'"
    lab.wait(lambda: lab.exec("hv2", started, check=False).returncode == 0, "the forger")
    yield lab
    lab.exec("hv1", "systemctl kill -s CONT salt-minion")
    lab.kill("hv2", "salt-call forge[.]returns")
    thread.join()
    lab.wait_for_minion("hv1")  # libzmq gives up who stands still: what is asked next may be lost
    lab.exec("hv2", f"rm -f {MODULES}/forge.py")


def test_nobody_answers_for_a_hypervisor(forger):
    """For some jobs, for the forger has to get ready first."""
    kept = []
    for _ in range(20):
        listed = forger.run_json("virt.list")
        assert "stolen" not in str(listed["hv1"])
        assert {"error"} <= set(listed["hv1"]) <= {"error", "last_seen"}
        found = "grep -rl stolen /var/cache/salt/master/jobs"
        kept = forger.exec("master", found, check=False).stdout.split()
        if kept:
            break
    assert kept, "the forger was never heard, so nothing was tried"


def test_what_hypervisors_say_is_signed(lab):
    said = lab.call("hv1", proof.FUNCTION, "virt.vm_state")
    assert set(said) == {"said", "proof"}
    assert set(lab.run_json("virt.list")) == set(lab.hosts)
    assert all("error" not in found for found in lab.run_json("virt.list").values())
