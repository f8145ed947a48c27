"""A master of masters: hv1 is its own minion, hv2 belongs to a master behind a syndic."""

import pytest

from tests.unit.fleet.test_syndic import verbs_of_the_manual

IMAGE = "/var/lib/libvirt/images/small.qcow2"
pytestmark = [pytest.mark.lab, pytest.mark.slow]

BELOW = """
set -e
mkdir -p /etc/syndic /run/syndic /run/syndic-minion
cat > /etc/syndic/master <<X
{interface: 0.0.0.0, user: root, auto_accept: True, syndic_master: master, log_level: warning,
 pki_dir: /var/lib/syndic/master, cachedir: /var/cache/syndic-master, sock_dir: /run/syndic}
X
cat > /etc/syndic/minion <<X
{id: below, master: master, pki_dir: /var/lib/syndic/minion, cachedir: /var/cache/syndic-minion,
 sock_dir: /run/syndic-minion}
X
systemd-run -q --unit below-master salt-master -c /etc/syndic
systemd-run -q --unit below-syndic salt-syndic -c /etc/syndic
systemctl stop salt-minion
rm -f /etc/salt/pki/minion/minion_master.pub
echo 'master: hv2' > /etc/salt/minion.d/below.conf
systemctl start salt-minion
"""


@pytest.fixture(scope="module")
def masters(fresh_lab):
    lab = fresh_lab
    lab.sync()
    lab.exec("master", "echo 'order_masters: True' > /etc/salt/master.d/mom.conf")
    lab.exec("master", "systemctl restart salt-master; salt-key -yqd hv2")
    lab.exec("hv2", BELOW)
    seen = "salt-key -yqa below >/dev/null; salt-key -l accepted --no-color | grep -q below"
    lab.wait(lambda: lab.exec("master", seen, check=False).returncode == 0, "the syndic's key")
    lab.wait_for_minion("hv1")
    # its answer comes through two masters
    ping = "salt -t 20 --out=json --static hv2 test.ping | grep -q true"
    lab.wait(lambda: lab.exec("master", ping, check=False).returncode == 0, "hv2", timeout_s=400)
    return lab


def test_hosts_below_a_syndic_are_found_asked_and_told(masters):
    listed = masters.run_json("virt.list")
    assert listed == {"hv1": {}, "hv2": {}}
    masters.exec("hv2", f"qemu-img create -q -f qcow2 {IMAGE} 16M")
    given = {"host": "hv2", "seed": False, "disk": None, "disks": [{"name": "a", "size": 32}]}
    made = masters.run("virt.init", "s1", 1, 64, IMAGE, **given)
    assert made.rc == 0, made.stdout
    assert "s1 is running on hv2" in masters.run("virt.locate", "s1").stdout
    assert masters.run("virt.purge", "s1", "force=True").rc == 0


# what each verb does for a guest on hv2, in an order in which they can be called: (verb,
# arguments, options, exit code, what it says)
VERBS = [
    ("query", [], {}, 0, "s1"),
    ("list", [], {}, 0, "s1"),
    ("host_info", [], {}, 0, "hv2"),
    ("next_host", [], {}, 0, "hv"),
    ("capacity", [1, 64], {}, 0, "hv2"),
    ("explain", ["s2", 1, 64], {"host": "hv2", "disk": None}, 0, "would be placed on hv2"),
    ("vm_info", ["s1"], {}, 0, "hv2"),
    ("locate", ["s1"], {}, 0, "is running on hv2"),
    ("pause", ["s1"], {}, 0, "was paused"),
    ("resume", ["s1"], {}, 0, "was resumed"),
    ("reset", ["s1"], {}, 0, "was reset"),
    ("shutdown", ["s1"], {"test": True}, 0, "would be shut down"),
    ("migratable", ["s1"], {}, 0, "can be moved"),
    ("migrate", ["s1", "hv1"], {"test": True}, 1, "cannot be moved to hv1"),
    ("force_off", ["s1"], {}, 0, "was powered off"),
    ("snapshot", ["s1", "one"], {}, 0, "was taken"),
    ("revert", ["s1", "one"], {}, 0, "was reverted"),
    ("delete_snapshots", ["s1", "one"], {}, 0, "deleted"),
    ("start", ["s1"], {}, 0, "was started"),
    ("force_off", ["s1"], {}, 0, "was powered off"),
    ("rename", ["s1", "s2"], {}, 1, "hv2 is below a syndic and submits the key of s2"),
    ("rename", ["s1", "s2"], {"seed": False}, 0, "was renamed to s2"),
    ("clone", ["s2", "s1"], {}, 1, "hv2 is below a syndic and submits the key of s1"),
    ("clone", ["s2", "s1"], {"seed": False}, 0, "is shutdown on hv2"),
    ("purge", ["s2"], {}, 0, "the syndic's master has the key"),
    ("authorize", ["s3", "hv2"], {}, 1, "hv2 is below a syndic"),
    ("init", ["s3", 1, 64, IMAGE], {"host": "hv2"}, 1, "hv2 is below a syndic"),
    ("deployed", [{"s1": {"mem": 64, "cpu": 1, "seed": False}}], {}, 0, "existing: 1"),
    ("seed_eject", ["s1"], {}, 0, "is not a guest that this master created"),
    ("started", ["hv2"], {}, 0, "is not a hypervisor of this master"),
    ("repair", [], {}, 0, "no leftovers"),
    ("migrate_unfinished", [], {}, 0, "no migration is unfinished"),
    ("migrate_abort", ["s1"], {}, 1, "no host has a migration of s1"),
    ("migrate_recover", ["s1"], {}, 1, "no host that answers has an unfinished migration"),
    ("rebalance", [], {}, 0, "0 moves"),
    ("evacuate", ["hv2"], {"test": True}, 0, "hv2"),
    ("restore", ["hv2"], {"test": True}, 1, "hv2 is not in maintenance"),
    ("certs", ["hv2"], {}, 1, "is not a hypervisor of this master"),
    ("revoke", ["hv2"], {}, 1, "hv2 never had a certificate"),
    ("rotate_ca", [], {}, 0, "every hypervisor trusts the new CA and no other"),
]  # fmt: skip


def test_every_verb_works_or_says_why_not(masters):
    """As docs/how-to/runner.md tells, whose table tests/unit/fleet/test_syndic.py reads."""
    assert {verb for verb, *_ in VERBS} == set(verbs_of_the_manual())
    masters.exec("hv2", f"qemu-img create -q -f qcow2 {IMAGE} 16M")
    masters.exec("hv1", "salt-call state.single virt.keys name=x")
    given = {"host": "hv2", "seed": False, "disk": None, "disks": [{"name": "a", "size": 32}]}
    made = masters.run("virt.init", "s1", 1, 64, IMAGE, **given)
    assert made.rc == 0, made.stdout
    wrong = []
    for verb, arguments, options, code, words in VERBS:
        done = masters.run(f"virt.{verb}", *arguments, **options)
        if done.rc != code or words not in done.stdout:
            wrong.append((verb, done.rc, done.stdout[-700:]))
    masters.run("virt.purge", "s1", "force=True")
    assert not wrong, "\n".join(map(str, wrong))


def test_who_does_not_answer_is_silent_and_not_down(masters):
    """Nobody here knows of its connection; what it may have is in doubt."""
    masters.exec("hv2", "systemctl stop salt-minion")
    try:
        listed = masters.run_json("virt.list")
        assert listed["hv1"] == {}
        assert "no answer in" in listed["hv2"]["error"]
        taken = masters.run("virt.init", "s9", 1, 64, IMAGE, host="hv1", seed=False)
        assert (taken.rc, "it may be on a host that does not answer" in taken.stdout) == (1, True)
    finally:
        masters.exec("hv2", "systemctl start salt-minion")
