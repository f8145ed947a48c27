"""docs/tutorial/first-cluster.md, typed on the master of a lab whose machines have no libvirt.
INSTEAD replaces what the page names; ``cloud`` prepares what the page requires."""

import json

import pytest

from tests.integration.manual import Page
from tests.integration.seeding import distribution
from tests.lab.fixtures import recipe
from tests.lab.network import MASTER

pytestmark = [pytest.mark.lab, pytest.mark.slow]
# the lab's names and folders, the image that it can make and its way to it; an emulated guest
# takes its time; the script finds Salt in the repository that the guest's apt knows already
INSTEAD = {
    "hyper": "hv",
    "/opt/saltstack/salt/": "/opt/salt/",
    "https://cloud.debian.org/images/cloud/bookworm/latest": f"http://{MASTER}:{distribution.PORT}",
    "stable 3008": "-r stable 3008",
    "[hypervisors]": "[hypervisors, lab]",
    "wait=True": "wait=True timeout=2400",
}
# no cgroup tree is writable in a machine of the lab
PILLAR = "libvirt: {qemu: {cgroup_controllers: []}}\n"
TOP = "base: {'hv*': [lab]}\n"


@pytest.fixture(scope="module")
def cloud(empty_lab):
    """Three machines as the page asks for, and a web server."""
    empty_lab.push("master", distribution.web(recipe(), MASTER), "/srv")
    serve = f"systemd-run -q python3 -m http.server -d /srv/web {distribution.PORT}"
    empty_lab.exec("master", serve)
    for name, text in (("lab", PILLAR), ("top", TOP)):
        empty_lab.exec("master", f"cat > /srv/pillar/{name}.sls", input=text)
    for host in empty_lab.hosts:
        empty_lab.exec(host, f"sed -i 's/^master: .*/master: {MASTER}/' /etc/salt/minion")
        assert empty_lab.exec(host, "command -v virsh || echo none").stdout.strip() == "none"
    empty_lab.restart_minion(*empty_lab.hosts)
    return empty_lab


def nothing_to_do(text):
    assert "changed=" not in text, text


def both(text):
    assert "hv1" in text, text
    assert "hv2" in text, text


def certificates(text):
    both(text)
    assert "problems" not in text, text


def says(word):
    def check(text):
        assert word in text, text

    return check


SAID = {
    ("salt hv1 virt.bridge_plan br0", 1): says("eth0"),
    ("salt hv1 state.apply libvirt", 2): nothing_to_do,
    ("salt-run virt.certs", 1): certificates,
    ("salt-run virt.host_info", 1): both,
    ("salt-run virt.locate web1", 1): says("hv1"),
    ("salt web1 test.ping", 1): says("True"),
    ("salt web1 test.ping", 2): says("True"),
}


def test_from_three_bare_machines_to_a_guest_that_moves(cloud):
    Page(cloud, "first-cluster.md", INSTEAD, SAID).follow()
    assert cloud.exec("hv2", ["virsh", "list", "--name"]).stdout.split() == ["web1"]
    assert cloud.exec("hv1", ["virsh", "list", "--all", "--name"]).stdout.split() == []
    keys = json.loads(cloud.exec("master", "salt-key -L --out=json").stdout)
    assert "web1" in keys["minions"]
    # what the page says of the master's name: this image looks no name up that has no dot
    assert cloud.call("web1", "cmd.retcode", "getent hosts master", timeout=300) != 0
