"""The hypervisor that is down in docs/how-to/troubleshooting.md, typed on the master of a lab. hv1
dies, comes back, and dies for good. web1's disk is on shared storage, db1's on hv1; app1 is
migrating to hv1 when it dies for the second time."""

import json

import pytest

from tests.integration import hv
from tests.integration.manual import Page
from tests.integration.migration import counter, shared

pytestmark = [pytest.mark.lab, pytest.mark.slow]
IMAGE = "/var/lib/libvirt/images/tiny.qcow2"
DISK = f"{shared.FOLDER}/web1_vda.qcow2"
INSTEAD = {
    "hyper": "hv",
    "mem: 2048, image: salt://debian.qcow2": f"mem: 64, image: {IMAGE}, seed: false",
    "2048 salt://debian.qcow2": f"64 {IMAGE} seed=False",
}
DEPLOYED = (
    f"salt-run virt.deployed '{{db1: {{mem: 64, image: {IMAGE}, seed: false}}}}' deployment=shop "
    "test=True"
)
SECTIONS = (
    "A hypervisor is down",
    "The hypervisor comes back",
    "The hypervisor does not come back",
    "The hypervisor comes back after its guests were replaced",
    "Remove the hypervisor for good",
)
# as docs/how-to/master.md has it
COPY = (
    "salt hv1 virt.get_xml web1 --out=json | "
    "python3 -c 'import json, sys; print(*json.load(sys.stdin).values())'"
)


class Story:
    """What happens between the sections of the page."""

    def __init__(self, cloud, folder):
        self.cloud, self.folder = cloud, folder
        self.app = counter.Counter(cloud, "app1")

    def guests(self):
        """What hv1 has before it dies, and a copy of web1's definition on hv2."""
        for host in self.cloud.hosts:
            self.cloud.exec(host, f"qemu-img create -q -f qcow2 {IMAGE} 16M")
        given = {"mem": 64, "image": IMAGE, "seed": False, "host": "hv1"}
        done = self.cloud.run("virt.deployed", {"db1": given}, deployment="shop")
        assert done.rc == 0, done.stdout
        self.cloud.exec("hv1", f"qemu-img create -q -f qcow2 {DISK} 16M")
        xml = hv.guest("web1", hv.file_disk(DISK))
        self.cloud.exec("hv1", ["virsh", "-q", "define", "/dev/stdin"], input=xml)
        self.cloud.exec("hv1", "virsh start web1; virsh autostart db1")
        copy = self.cloud.exec("master", COPY).stdout
        self.cloud.exec("hv2", "mkdir -p /srv/xml; cat > /srv/xml/web1.xml", input=copy)
        self.cloud.power_off("hv1")

    def back(self):
        self.cloud.power_on("hv1")
        shared.mount(self.cloud, self.folder, "hv1")

    def dead_again(self):
        """In the middle of a migration to it, and the job on the other host dies, too."""
        self.app.define("hv2", "256M").fill("hv2", 100).start("hv2")
        self.cloud.exec("master", "salt --async hv2 virt.migrate app1 hv1 max_bandwidth=8")
        self.cloud.wait(self.copies, "app1's disk is being copied")
        self.cloud.power_off("hv1")
        self.cloud.restart_minion("hv2")

    def copies(self):
        stats = self.cloud.exec("hv2", "virsh domjobinfo app1 --rawstats", check=False).stdout
        return "disk_processed" in stats and "disk_processed: 0\n" not in stats

    def states(self, host):
        found = {}
        for name in self.cloud.exec(host, "virsh list --all --name").stdout.split():
            found[name] = self.cloud.exec(host, ["virsh", "domstate", name]).stdout.strip()
        return found


@pytest.fixture(scope="module")
def story(fresh_lab, tmp_path_factory):
    fresh_lab.sync()
    counter.install(fresh_lab)
    folder = tmp_path_factory.mktemp("shared")
    shared.mount(fresh_lab, folder)
    told = Story(fresh_lab, folder)
    told.guests()
    return told


def says(*words):
    def check(text):
        for word in words:
            assert word in text, text

    return check


def test_each_command_of_the_page(story):
    cloud = story.cloud
    said = {
        (DEPLOYED, 1): says("db1", "may be on a host that does not answer: hv1"),
        ("salt-run virt.list", 1): says("hv1", "down: "),
        ("salt-run virt.list", 2): says("db1", "web1"),
        ("salt-run virt.start web1 host=hv2", 1): says("hv2"),
        ("salt-run virt.migrate_unfinished", 1): says("app1"),
        ("salt-run virt.repair", 1): says("no leftovers"),
        ("salt-run virt.repair", 2): says("web1", "db1", "app1"),
        ("salt-run virt.repair", 3): says("no leftovers"),
    }
    page = Page(
        cloud, "troubleshooting.md", INSTEAD, said,
        ends={("salt-run virt.list", 1): 1, (DEPLOYED, 1): 1},
        before={
            "The hypervisor comes back": story.back,
            "The hypervisor does not come back": story.dead_again,
            "The hypervisor comes back after its guests were replaced": story.back,
            "Remove the hypervisor for good": lambda: cloud.power_off("hv1"),
        },
        only=SECTIONS,
    )  # fmt: skip
    page.follow()
    assert story.states("hv2") == {"app1": "running", "db1": "running", "web1": "running"}
    story.app.counts_on("hv2")
    keys = json.loads(cloud.exec("master", "salt-key -L --out=json").stdout)
    assert "hv1" not in keys["minions"]
