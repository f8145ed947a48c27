"""A master of masters: hv1 is its own minion, hv2 belongs to a master below it, by a syndic."""

import pytest

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
    lab.wait_for_minion("hv2")
    return lab


def test_hosts_below_a_syndic_are_found_asked_and_told(masters):
    listed = masters.run_json("virt.list")
    assert listed == {"hv1": {}, "hv2": {}}
    image = "/var/lib/libvirt/images/small.qcow2"
    masters.exec("hv2", f"qemu-img create -q -f qcow2 {image} 16M")
    given = {"host": "hv2", "seed": False, "disk": None, "disks": [{"name": "a", "size": 32}]}
    made = masters.run("virt.init", "s1", 1, 64, image, **given)
    assert made.rc == 0, made.stdout
    assert "s1 is running on hv2" in masters.run("virt.where", "s1").stdout
    assert masters.run("virt.purge", "s1").rc == 0


def test_who_does_not_answer_is_silent_and_not_down(masters):
    """Nobody here knows of its connection; once it is seen it is not declared gone at once."""
    masters.exec("hv2", "systemctl stop salt-minion")
    try:
        assert masters.run_json("virt.list") == {"hv1": {}}
    finally:
        masters.exec("hv2", "systemctl start salt-minion")
