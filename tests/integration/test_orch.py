"""A deployment of guests from pillar, as an operator runs it, and with a reactor."""

import json

import pytest

from tests.integration.hv import guest

pytestmark = pytest.mark.lab

IMAGE = "/var/lib/libvirt/images/tiny.qcow2"
WEB = {"size": "64MiB", "groups": ["web"], "group_policy": "separate"}
SHOP = {
    "defaults": {"image": IMAGE, "mem": 64, "seed": False},
    "guests": {"web1": WEB, "web2": WEB, "db1": {"mem": "96MiB", "host": "hv2"}},
}


@pytest.fixture(scope="module")
def cloud(lab):
    for host in lab.hosts:
        lab.exec(host, f"qemu-img create -q -f qcow2 {IMAGE} 16M")
    yield lab
    for host, names in where(lab).items():
        for name in names:
            lab.exec(host, f"virsh destroy {name}; virsh undefine {name}", check=False)
        lab.exec(host, f"rm -f {IMAGE} /srv/salt-images/*_system.qcow2")


def where(cloud):
    return {
        host: sorted(cloud.exec(host, "virsh list --all --name").stdout.split())
        for host in cloud.hosts
    }


def orchestrate(cloud, deployment, **more):
    """What the state says."""
    pillar = {"virt_deploy": {"shop": deployment}}
    told = cloud.run_json("state.orchestrate", "virt.orch.deploy", pillar=pillar, **more)
    ((answer,),) = (states.values() for states in told["data"].values())
    return answer


@pytest.mark.slow
def test_a_deployment_is_made_left_and_removed_only_on_request(cloud):
    told = orchestrate(cloud, SHOP, test=True)
    assert told["result"] is None
    assert where(cloud) == {"hv1": [], "hv2": []}
    done = orchestrate(cloud, SHOP)
    assert (done["result"], done["changes"]) == (True, told["changes"])
    assert done["changes"]["db1"] == {"old": None, "new": "hv2"}
    assert len({done["changes"][name]["new"] for name in ("web1", "web2")}) == 2
    assert sum(map(len, where(cloud).values())) == 3
    again = orchestrate(cloud, SHOP)
    assert (again["result"], again["changes"], again["comment"]) == (True, {}, "existing: 3")
    other = cloud.hosts[0]
    cloud.exec(other, "cat > /tmp/o.xml && virsh define /tmp/o.xml", input=guest("other"))
    before = where(cloud)
    fewer = {**SHOP, "guests": {"web1": {**WEB, "mem": 128}, "db1": SHOP["guests"]["db1"]}}
    said = orchestrate(cloud, fewer)
    assert (said["result"], said["changes"]) == (True, {})
    assert "not listed: web2 on" in said["comment"]
    assert "web1 stays as it is: memory 64 MiB, not 128 MiB" in said["comment"]
    told = orchestrate(cloud, {**fewer, "remove": True}, test=True)
    assert list(told["changes"]) == ["web2"]
    assert where(cloud) == before
    done = orchestrate(cloud, {**fewer, "remove": True})
    assert (done["result"], done["changes"]) == (True, told["changes"])
    assert sorted(name for names in where(cloud).values() for name in names) == [
        "db1",
        "other",
        "web1",
    ]
    files = "".join(cloud.exec(host, "ls /srv/salt-images").stdout for host in cloud.hosts)
    assert "web1_system" in files
    assert "web2_system" not in files


REACTOR = "reactor: [{'salt/minion/*/start': ['salt://virt/reactor/hypervisor.sls']}]"
TOP = {"salt": "base: {'hv*': [libvirt]}", "pillar": "base: {'*_master': [guests]}"}


@pytest.fixture
def reacting(cloud):
    """A master whose reactor knows the formula, and pillar with a guest for hv2."""
    guests = {"placed": {**WEB, "host": "hv2"}}
    pillar = {"virt_deploy": {"edge": {**SHOP, "guests": guests}}}
    files = {f"/srv/{folder}/top.sls": text for folder, text in TOP.items()}
    files |= {"/srv/pillar/guests.sls": json.dumps(pillar)}
    files |= {"/etc/salt/master.d/reactor.conf": REACTOR}
    for path, text in files.items():
        cloud.exec("master", f"cat > {path}", input=text)
    cloud.restart_master()
    yield
    cloud.exec("master", f"rm -f {' '.join(files)}")
    cloud.restart_master()


@pytest.mark.slow
def test_a_hypervisor_that_starts_gets_its_states_and_its_guests(cloud, reacting):
    assert "placed" not in where(cloud)["hv2"]
    cloud.exec("hv2", "systemctl restart salt-minion")
    # libvirtd itself may be started again meanwhile
    state = ["virsh", "domstate", "placed"]
    cloud.wait(
        lambda: "running" in cloud.exec("hv2", state, check=False).stdout, "the guest on hv2", 240
    )
    # a minion which is no hypervisor may start as often as it likes
    refused = cloud.run(
        "state.orchestrate", "virt.orch.hypervisor", pillar={"hypervisor": "nobody"}
    )
    assert refused.rc == 1
    assert "No minions matched" in refused.stdout
