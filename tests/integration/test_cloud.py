"""The runner with two hosts and small guests that boot nothing."""

import json
import threading

import pytest

pytestmark = pytest.mark.lab

IMAGE = "/var/lib/libvirt/images/small.qcow2"
OTHER = {"hv1": "hv2", "hv2": "hv1"}


@pytest.fixture(scope="module")
def cloud(lab):
    for host in lab.hosts:
        lab.exec(host, f"qemu-img create -q -f qcow2 {IMAGE} 16M")
    lab.call("hv1", "state.apply", "libvirt", timeout=120)
    lab.call("hv2", "state.apply", "libvirt", timeout=120)
    profile = "virt: {disk: {small: [{system: {size: 32}}]}}"
    for host in lab.hosts:
        lab.exec(host, f"echo '{profile}' > /etc/salt/minion.d/small.conf")
    lab.restart_minion(*lab.hosts)
    yield lab
    for host in lab.hosts:
        lab.exec(host, "rm -f /etc/salt/minion.d/small.conf")
    lab.restart_minion(*lab.hosts)


@pytest.fixture
def guests(cloud):
    """Removes what a test has made."""
    yield
    for host in cloud.hosts:
        cloud.call(host, "virt.maintenance", off=True)
    for host, names in where(cloud).items():
        for name in names:
            cloud.exec(host, ["virsh", "destroy", name], check=False)
            cloud.wait(
                lambda h=host, n=name: cloud.call(h, "virt.purge", n) is True, f"{name} is removed"
            )


def init(cloud, name, mem=64, **more):
    given = {"disk": "small", "seed": False, **more}
    return cloud.run("virt.init", name, 1, mem, IMAGE, **given)


def where(cloud):
    return {
        host: sorted(cloud.exec(host, "virsh list --all --name").stdout.split())
        for host in cloud.hosts
    }


def everyone(cloud):
    return sorted(name for names in where(cloud).values() for name in names)


def together(calls):
    """Runs the callables at the same time; their results in order."""
    results = [None] * len(calls)

    def run(index):
        results[index] = calls[index]()

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def test_placement_spreads_and_explains_itself(cloud, guests):
    explained = cloud.run_json("virt.explain", "a", 1, 64)["a"]
    assert explained["host"] == "hv1"
    assert [row[0] for row in explained["table"]] == ["host", "hv1", "hv2"]
    assert where(cloud) == {"hv1": [], "hv2": []}
    for name in ("a", "b"):
        done = init(cloud, name)
        assert done.rc == 0, done.stdout
    assert where(cloud) == {"hv1": ["a"], "hv2": ["b"]}
    assert "running" in cloud.run("virt.locate", "b").stdout


def test_groups_are_remembered_and_kept_apart(cloud, guests):
    assert init(cloud, "w1", groups="[web]", host="hv2", start=False).rc == 0
    table = cloud.run_json("virt.explain", "w2", 1, 64, groups="[web]", group_policy="separate")
    assert table["w2"]["host"] == "hv1"
    assert "already has w1 of group web" in json.dumps(table)


def test_one_name_five_times_at_once_is_one_guest(cloud, guests):
    done = together([lambda: init(cloud, "same", start=False)] * 5)
    assert sorted(d.rc for d in done) == [0, 1, 1, 1, 1], [d.stdout for d in done]
    assert everyone(cloud) == ["same"]
    for one in done:
        assert one.rc == 0 or len(one.stdout.strip().splitlines()) <= 2, one.stdout


def test_capacity_is_never_given_away_twice(cloud, guests):
    free = {
        host: info["memory_free_mib"] for host, info in cloud.run_json("virt.host_info").items()
    }
    size = min(free.values()) // 2 - 100
    fit = sum(mib // size for mib in free.values())
    counted = cloud.run_json("virt.capacity", 1, size)["capacity"]
    assert counted["total"] == fit
    names = [f"big{i}" for i in range(fit + 3)]
    done = together([lambda n=n: init(cloud, n, mem=size, start=False) for n in names])
    made = [d for d in done if d.rc == 0]
    assert len(made) == fit, [d.stdout for d in done]
    for one in done:
        assert one.rc == 0 or "of memory requested" in one.stdout
    assert len(everyone(cloud)) == fit
    files = cloud.exec("hv1", "ls /srv/salt-images/*.qcow2 | wc -l").stdout
    assert int(files) == len(where(cloud)["hv1"])


def test_evacuate_and_restore(cloud, guests):
    for name, host in (("e1", "hv1"), ("e2", "hv1"), ("e3", "hv2")):
        assert init(cloud, name, host=host).rc == 0
    assert init(cloud, "e4", host="hv1", start=False).rc == 0
    plan = cloud.run_json("virt.evacuate", "hv1", test=True)["hv1"]
    assert plan["moves"] == {"e1": "hv2", "e2": "hv2", "e4": "hv2"}
    assert where(cloud)["hv1"] == ["e1", "e2", "e4"]
    done = cloud.run("virt.evacuate", "hv1", "new disks")
    assert done.rc == 0, done.stdout
    assert where(cloud) == {"hv1": [], "hv2": ["e1", "e2", "e3", "e4"]}
    for name in ("e1", "e2"):
        assert "running" in cloud.exec("hv2", ["virsh", "domstate", name]).stdout
    refused = init(cloud, "e5", host="hv1")
    assert refused.rc == 1
    assert "in maintenance: new disks" in refused.stdout
    back = cloud.run("virt.restore", "hv1")
    assert back.rc == 0, back.stdout
    assert where(cloud) == {"hv1": ["e1", "e2", "e4"], "hv2": ["e3"]}


@pytest.mark.slow
def test_rebalance_shows_first_and_moves_on_request(cloud, guests):
    for name in ("r1", "r2"):
        assert init(cloud, name, mem=512, host="hv1").rc == 0
    shown = cloud.run_json("virt.rebalance", threshold=0.001)["rebalance"]
    assert [row[1:3] for row in shown["table"][1:]] == [["hv1", "hv2"]]
    assert where(cloud)["hv2"] == []
    done = cloud.run("virt.rebalance", apply=True, threshold=0.001)
    assert done.rc == 0, done.stdout
    assert [len(names) for names in where(cloud).values()] == [1, 1]


HALF_MADE = """<domain type='qemu'><name>half</name><memory>65536</memory><vcpu>1</vcpu>
<metadata><saltvirt:guest xmlns:saltvirt='https://saltproject.io/xmlns/salt-virt/1' version='1'
 creating='1:1:no-such-boot'><saltvirt:disk target='vda' path='/srv/salt-images/half_system.qcow2'/>
</saltvirt:guest></metadata><os><type arch='x86_64'>hvm</type></os><devices>
<disk type='file' device='disk'><driver name='qemu' type='qcow2'/>
<source file='/srv/salt-images/half_system.qcow2'/><target dev='vda' bus='virtio'/></disk>
</devices></domain>"""


def test_repair_shows_what_a_dead_init_left_and_mends_it(cloud, guests):
    assert cloud.run("virt.repair").stdout.startswith("no leftovers")
    disk = "/srv/salt-images/half_system.qcow2"
    cloud.exec("hv2", f"qemu-img create -q -f qcow2 {disk} 16M")
    cloud.exec("hv2", "cat > /tmp/half.xml && virsh define /tmp/half.xml", input=HALF_MADE)
    shown = cloud.run("virt.repair")
    assert "partially created on hv2" in shown.stdout
    assert where(cloud)["hv2"] == ["half"]
    done = cloud.run("virt.repair", apply=True)
    assert done.rc == 0, done.stdout
    assert where(cloud)["hv2"] == []
    cloud.exec("hv2", f"test ! -e {disk}")


def test_programs_get_clean_data(cloud, guests):
    done = cloud.exec(
        "master", f"salt-run --out=json virt.init c1 1 64 {IMAGE} disk=small seed=False"
    )
    answer = json.loads(done.stdout)["c1"]
    assert answer["result"] is True
    assert answer["changes"]["created"]["state"] == "shutdown"
    assert answer["state"] == "running"


@pytest.fixture
def heard(cloud):
    """A function that waits for an event of ev1; they are written down before it begins."""
    listen = "exec salt-run state.event salt/virt/ev1/* count=-1 >/tmp/events 2>/dev/null"
    cloud.exec("master", ["systemd-run", "-q", "--collect", "--unit=listens", "sh", "-fc", listen])

    def wait(tag):
        found = ["grep", "-q", f"salt/virt/ev1/{tag}", "/tmp/events"]
        return not cloud.exec("master", found, check=False).returncode

    def ready():
        cloud.call("hv1", "event.send", "salt/virt/ev1/ready")
        return wait("ready")

    cloud.wait(ready, "somebody listens")
    yield lambda tag: cloud.wait(lambda: wait(tag), f"an event {tag}")
    cloud.exec("master", ["systemctl", "stop", "listens"], check=False)


def test_each_step_is_an_event(cloud, guests, heard):
    assert init(cloud, "ev1", start=False).rc == 0
    heard("init/placed")
