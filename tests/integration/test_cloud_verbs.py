"""The runner's verbs that change something: their plans, other names, typing errors."""

import json

import pytest

from tests.integration.test_cloud import IMAGE, cloud, guests, init, where  # noqa: F401

pytestmark = pytest.mark.lab

# verb, arguments, named arguments; what its comment must say
PLANS = [
    (
        "init",
        ["new", 1, 64, IMAGE],
        {"disk": "small", "seed": False},
        "new would be created on hv2",
    ),
    ("start", ["rests"], {}, "rests on hv1 would be started"),
    ("shutdown", ["runs"], {}, "runs on hv1 would be shut down"),
    ("force_off", ["runs"], {}, "runs on hv1 would be powered off"),
    ("pause", ["runs"], {}, "runs on hv1 would be paused"),
    ("resume", ["held"], {}, "held on hv2 would be resumed"),
    ("reset", ["runs"], {}, "runs on hv1 would be reset"),
    ("snapshot", ["runs"], {}, "a snapshot of runs on hv1 would be taken"),
    ("revert", ["rests", "before"], {}, "rests on hv1 would be reverted to before"),
    ("delete_snapshots", ["rests", "before"], {}, "before of rests on hv1 would be deleted"),
    (
        "purge",
        ["runs"],
        {"force": True},
        "runs would be removed from hv1, with /srv/salt-images/runs_system.qcow2",
    ),
    ("rename", ["bare", "other"], {}, "bare on hv1 would be renamed to other"),
    ("clone", ["bare", "other"], {}, "bare would be copied to other on hv1"),
    ("migrate", ["runs"], {}, "runs would be moved from hv1 to hv2"),
    ("evacuate", ["hv1"], {}, "hv1: 3 would move, 0 would stay"),
    ("restore", ["hv2"], {}, "hv2 would accept guests again, and 0 would return"),
    ("rebalance", [], {"apply": True}, "0 moves; the imbalance is"),
    ("repair", [], {"apply": True}, "no leftovers"),
    ("authorize", ["new", "hv1"], {}, "hv1 would be permitted to submit the key of new"),
]
LOOK = """virsh list --all; virsh snapshot-list rests --name 2>/dev/null;
find /srv/salt-images -type f -printf '%p %s %T@ %u\\n' | sort;
cat /var/lib/salt-virt/maintenance.json"""


def everything(cloud):  # noqa: F811
    """All that a verb could have changed."""
    hosts = {host: cloud.exec(host, LOOK, check=False).stdout for host in cloud.hosts}
    pki = cloud.exec("master", "find /etc/salt/pki/master -not -path '*/libvirt/*' | sort").stdout
    return {**hosts, "master": pki}


@pytest.mark.slow
def test_every_verb_shows_its_plan_and_changes_nothing(cloud, guests):  # noqa: F811
    for name, host in (("runs", "hv1"), ("rests", "hv1"), ("bare", "hv1"), ("held", "hv2")):
        done = init(cloud, name, host=host, start=name in ("runs", "held"))
        assert done.rc == 0, done.stdout
    cloud.exec("hv1", "virsh snapshot-create-as rests before")
    cloud.exec("hv2", "virsh suspend held")
    before = everything(cloud)
    for verb, arguments, named, comment in PLANS:
        if verb == "restore":
            cloud.call("hv2", "virt.maintenance", "a test")
        answer = cloud.run_json(f"virt.{verb}", *arguments, test=True, **named)
        if verb == "restore":
            cloud.call("hv2", "virt.maintenance", off=True)
        (found,) = (value for key, value in answer.items() if key != "retcode")
        assert found["result"] is None, (verb, found)
        assert found["comment"].startswith(comment), (verb, found["comment"])
        assert "changes" in found, verb
    for machine, found in everything(cloud).items():
        assert found.splitlines() == before[machine].splitlines(), machine


@pytest.mark.slow
def test_a_guest_gets_another_name_and_a_copy(cloud, guests):  # noqa: F811
    """The image of the lab, seeded by libguestfs three times, and never booted."""
    image = "/var/lib/libvirt/images/debian.qcow2"
    cloud.exec("master", "salt-key -yqd 'w?' || true")
    made = cloud.run_json("virt.init", "w1", 1, 256, image, start=False)["w1"]
    done = cloud.run("virt.rename", "w1", "w2")
    assert done.rc == 0, done.stdout
    host = made["host"]
    assert where(cloud)[host] == ["w2"]
    assert "/srv/salt-images/w2_system.qcow2" in cloud.exec(host, "virsh dumpxml w2").stdout
    assert keys(cloud) == {"w2"}
    assert inside(cloud, host, "w2") == ("w2", "")
    copied = cloud.run_json("virt.clone", "w2", "w3")["w3"]
    assert copied["result"] is True, copied
    assert keys(cloud) == {"w2", "w3"}
    assert inside(cloud, host, "w3") == ("w3", "")
    own = [
        cloud.exec(host, f"virsh dumpxml {name} | grep -e '<uuid' -e '<mac'")
        for name in ["w2", "w3"]
    ]
    assert not set(own[0].stdout.split()) & (set(own[1].stdout.split()) - {"<mac"})
    taken = cloud.run("virt.rename", "w2", "w3")
    assert (taken.rc, taken.stdout.strip()) == (1, f"w3 already exists, on {host}")
    for name in ("w2", "w3"):
        assert cloud.run("virt.purge", name, "force=True").rc == 0
    assert keys(cloud) == set()


def keys(cloud):  # noqa: F811
    accepted = json.loads(cloud.exec("master", "salt-key --out=json -l accepted").stdout)
    return set(accepted["minions"]) - set(cloud.hosts)


def inside(cloud, host, name):  # noqa: F811
    """(minion id, machine-id) on a stopped guest's disk."""
    read = f"guestfish --ro -a /srv/salt-images/{name}_system.qcow2 -i"
    found, _, machine = cloud.exec(
        host, f"{read} cat /etc/hostname : echo - : cat /etc/machine-id"
    ).stdout.partition("-")
    return found.strip(), machine.strip()


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (
            "init x 1",
            "virt.init: missing a required argument: 'mem'; help: salt-run -d virt.init",
        ),
        ("init x -1 64 /a", "no such option: -1"),
        (f"init x 0 64 {IMAGE}", "cpu 0 must be at least 1"),
    ],
)
def test_a_slip_is_one_line(cloud, words, line):  # noqa: F811
    done = cloud.exec("master", f"salt-run virt.{words} 2>&1", check=False)
    told = [text for text in done.stdout.strip().splitlines() if "unclosed" not in text]
    assert done.returncode != 0
    assert line in told[-1], told
    assert "Traceback" not in done.stdout
