"""``ha`` of virt.init and virt.deployed, and the reserve, with real parts: a guest that was
deployed in one line continues to run when its host dies."""

import json
import re

import pytest

from tests.integration.ha import POOL, HaCloud

pytestmark = [pytest.mark.lab, pytest.mark.slow]

NAME = "wish1"
CONF = "/etc/salt/master.d/virt.conf"


def disks(folder):
    return json.dumps([{"name": "system", "size": "1GiB", "pool": folder}])


@pytest.fixture(scope="module")
def cloud(ha_lab):
    found = HaCloud(ha_lab)
    found.set_up()
    return found


def init(cloud, name, mem=64, **more):
    """With a disk that is there: on the lab's GlusterFS qemu-img gets no locks where it is
    confined."""
    path = f"{POOL}/{name}.qcow2"
    make = f"test -e {path} || qemu-img create -q -f qcow2 {path} 1G && chown 64055:64055 {path}"
    cloud.lab.exec("hv1", make)
    disk = json.dumps([{"name": "system", "source_file": path, "format": "qcow2"}])
    given = {"seed": False, "disk": "null", "nic": "null", "disks": disk, **more}
    return cloud.lab.run("virt.init", name, 1, mem, "null", **given)


def deployed(cloud, ha, test=False):
    """(exit code, the answer) of a deployment of one guest with that wish."""
    listed = json.dumps({NAME: {"mem": 64, "seed": False, "ha": ha}})
    done = cloud.lab.exec(
        "master", ["salt-run", "--out=json", "virt.deployed", listed, f"test={test}"], check=False
    )
    return done.returncode, json.loads(done.stdout[done.stdout.index("{") :])["default"]


def test_one_that_would_be_tied_to_its_host_is_refused_with_every_reason(cloud):
    for test in (True, False):
        found = init(cloud, NAME, disks=disks("/srv/salt-images"), ha=True, test=test)
        assert found.rc == 1, found
        assert re.search(r"disk vda is /srv/salt-images/\S+ on hv\d alone", found.stdout), found
    assert cloud.where(NAME) == []
    look = "virsh list --all --name; ls /srv/salt-images 2>/dev/null || true"
    left = [cloud.lab.exec(one, look).stdout for one in cloud.lab.hosts]
    assert NAME not in "".join(left)


def test_a_guest_is_made_and_given_in_one_line(cloud):
    found = init(cloud, NAME, ha="{priority: 5}", test=True)
    assert found.rc == 0 and "would be added to high availability" in found.stdout, found
    found = init(cloud, NAME, ha="{priority: 5}")
    assert found.rc == 0 and "added to high availability" in found.stdout, found
    assert len(cloud.where(NAME)) == 1
    status = cloud.well()
    assert (status["guests"][NAME]["state"], status["guests"][NAME]["priority"]) == ("placed", 5)


def test_a_deployment_takes_it_back_and_gives_it_again(cloud):
    assert deployed(cloud, {"priority": 5})[1]["changes"] == {}
    code, found = deployed(cloud, False, test=True)
    assert (code, found["result"], found["changes"][NAME]["ha"]["new"]) == (0, None, None)
    code, found = deployed(cloud, False)
    assert (code, found["result"]) == (0, True), found
    cloud.lab.wait(lambda: cloud.status()[1]["guests"] == {}, "it is taken back", 30)
    assert deployed(cloud, False)[1]["changes"] == {}
    code, found = deployed(cloud, {"priority": 5})
    assert (code, found["changes"][NAME]["ha"]["old"]) == (0, None), found
    assert deployed(cloud, {"priority": 5})[1]["changes"] == {}
    cloud.well()


def test_it_runs_on_when_its_host_dies_and_is_made_nowhere_a_second_time(cloud):
    lab = cloud.lab
    [host] = cloud.where(NAME)
    lab.power_off(host)
    _, found = deployed(cloud, True)  # it may be started elsewhere by then
    assert found["changes"] == {}, found
    assert (
        NAME in found["existing"] or "is managed by high availability" in found["failed"][NAME]
    ), found
    cloud.comes_elsewhere(NAME, host, 120)
    cloud.back(host)
    cloud.well(180)
    lab.wait_for_minion(host)
    path = f"{POOL}/{NAME}.qcow2"
    wanted = json.dumps([{"name": "system", "source_file": path, "format": "qcow2"}])
    done = lab.exec(
        "master",
        ["salt", host, "state.single", "virt.running", NAME, "cpu=1", "mem=64", "seed=False",
         f"disks={wanted}"],
        check=False,
    )  # fmt: skip
    assert re.search(
        rf"{NAME} is managed by high availability on hv\d .*second time", done.stdout
    ), done
    assert len(cloud.where(NAME)) == 1


def test_room_for_the_loss_of_a_host_is_kept(cloud):
    lab = cloud.lab
    free = json.loads(lab.exec("master", "salt-run --out=json virt.host_info").stdout)
    mib = min(one["memory_free_mib"] for one in free.values()) * 2 // 3
    settings = json.loads(lab.exec("master", f"cat {CONF}").stdout)
    settings["virt"]["ha"]["reserve"] = 1

    def configure():
        lab.exec("master", f"cat > {CONF}", input=json.dumps(settings))

    configure()
    big = {"mem": mib, "start": False}
    try:
        assert init(cloud, "big1", host="hv1", ha=True, **big).rc == 0
        assert init(cloud, "big2", host="hv2", **big).rc == 0
        found = init(cloud, "big3", **big)
        assert found.rc == 1, found
        assert "hv3: it would violate virt:ha:reserve: if hv1 failed, no host" in (
            found.stdout), found  # fmt: skip
        shown = lab.run("virt.capacity", 1, mib).stdout
        assert re.search("fits?, .*, 0 with capacity reserved for the loss of 1 host", shown)
        settings["virt"]["ha"]["reserve_policy"] = "warn"
        configure()
        found = init(cloud, "big3", **big)
        assert found.rc == 0 and "it would violate virt:ha:reserve" in found.stdout, found
    finally:
        lab.run("virt.ha_disable", "big1")
        for name in ("big1", "big2", "big3"):
            lab.run("virt.purge", name, "force=True")


def test_a_guest_that_grows_on_its_host_into_the_room_that_is_kept_is_told(cloud):
    """Nobody on a hypervisor knows the reserve."""
    lab = cloud.lab
    cloud.configure({"reserve": 1})
    cloud.well()
    [host] = cloud.where(NAME)
    others = [one for one in lab.hosts if one != host]

    def told():
        text = lab.exec("master", "cat /var/lib/salt/master/virt/ha/journal.jsonl").stdout
        found = [json.loads(line) for line in text.splitlines()]
        return [one["new"] for one in found if (one["kind"], one["name"]) == ("reserve", host)]

    free = json.loads(lab.exec("master", "salt-run --out=json virt.host_info").stdout)
    try:
        for one in others:
            assert init(cloud, f"grows-{one}", host=one, start=False).rc == 0
        assert told() == []
        for one in others:
            # beside that QEMU takes 70 MiB, and one in 512; then 40 are left
            mib = (free[one]["memory_free_mib"] - 110) * 512 // 513
            assert lab.call(one, "virt.setmem", f"grows-{one}", mib, config=True) is True
        lab.wait(lambda: told() == ["insufficient"], "room is short", 240, 2)
        code, found = cloud.status()
        assert (code, found["reserve"]["short"]) == (
            1, [f"if {host} failed, no host would have capacity for {NAME}"],
        )  # fmt: skip
    finally:
        for one in others:
            lab.run("virt.purge", f"grows-{one}", "force=True")
    lab.wait(lambda: told() == ["insufficient", "sufficient"], "there is room", 240, 2)
