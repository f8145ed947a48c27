"""The runner as typed: ``salt-run virt.…``, its outputter and its exit codes."""

import json
from pathlib import Path

import pytest

# in an order in which they can be called
VERBS = {
    "start": "web1 on hv2 was started",
    "pause": "web1 on hv2 was paused",
    "resume": "web1 on hv2 was resumed",
    "locate": "web1 is running on hv2",
    "force_off": "web1 on hv2 was powered off",
    "purge": "web1 was removed from hv2",
}


def guest(name):
    return (
        f"<domain type='test'><name>{name}</name><memory unit='MiB'>64</memory><vcpu>1</vcpu>"
        "<os><type>hvm</type></os></domain>"
    )


@pytest.fixture(scope="module")
def web1(cloud):
    """A guest of hv2 that is off."""
    conn = cloud.libvirtds["hv2"].connection
    conn.defineXML(guest("web1"))
    yield "web1"
    for dom in conn.listAllDomains():
        if dom.name() == "web1":
            if dom.isActive():
                dom.destroy()
            dom.undefine()


def test_the_table_is_the_outputters(cloud, web1):
    assert cloud.typed("virt.list") == (0, [
        "host  state     guests",
        "hv1   running   test",
        "hv2   running   test",
        "      shutdown  web1",
    ])  # fmt: skip


def test_functions_of_a_host_are_shown_by_the_outputter(cloud, web1):
    """Their minion names it; ``--out`` gives the data, which are Salt 3007's."""
    code, lines = cloud.shown("hv2", "virt.vm_info", web1)
    assert (code, lines[:5]) == (
        0, ["hv2", "  web1", "    CPU: 1", "    Memory: 64 MiB", "    State: shutdown"],
    )  # fmt: skip
    assert cloud.shown("hv2", "virt.list_domains") == (0, ["hv2: test, web1"])
    assert cloud.shown("hv2", "virt.is_hyper")[1] in (["hv2: True"], ["hv2: False"])
    _, lines = cloud.shown("hv2", "virt.vm_info", web1, "--out=json")
    found = json.loads("\n".join(lines))["hv2"][web1]
    assert (found["mem"], found["state"]) == (65536, "shutdown")
    assert cloud.called("hv2", "virt.node_info").stdout.splitlines()[0] == "local"
    code, lines = cloud.shown("hv2", "virt.start", "nobody")
    assert code == 1
    assert "no guest 'nobody' on " in "\n".join(lines)


def test_hosts_and_guests(cloud, web1):
    found = cloud.run("virt.host_info")
    assert [found[host]["guests"] for host in cloud.hosts] == [1, 2]
    found = cloud.run("virt.query")
    assert found["hv2"]["vm_info"]["web1"]["state"] == "shutdown"
    assert cloud.run("virt.vm_info", "web1")["hv2"]["web1"]["cpu"] == 1


# the questions that a verb asks of all hosts, or of the host where the guest was seen to run
ASKED = {
    "list": ["vm_state"],
    "query": ["full_info"],
    "host_info": ["inventory"],
    "top": ["usage"],
    "networks": ["networks"],
    "pools": ["pool_info"],
    "volumes": ["volumes"],
    "images": ["images"],
    "owners": ["inventory"],
    "locate web1": ["vm_state"],
    "addresses web1": ["addresses"],
    "snapshots web1": ["vm_state", "list_snapshots"],
    "vm_info web1": ["guest_details", "backup_list"],
    "backups": ["backup_list"],
    "backups web1": ["inventory", "backup_list"],
}


def test_a_query_asks_no_more_than_it_needs(cloud, web1):
    (cloud.root / "vault").mkdir(mode=0o700, exist_ok=True)
    cloud.run("virt.start", web1)
    found = {}
    with cloud.fleet() as fleet:
        for verb in ASKED:
            before = cloud.asked_by_now(fleet)
            fun, *names = verb.split()
            cloud.run(f"virt.{fun}", *names)
            cloud.asked_by_now(fleet)
            found[verb] = [fun.removeprefix("virt.") for fun in cloud.asked()[before:]]
    cloud.run("virt.force_off", web1)
    assert found == ASKED


def test_a_guest_by_its_name(cloud, web1):
    said = {verb: cloud.run(f"virt.{verb}", web1)[web1] for verb in VERBS}
    assert {verb: one["comment"] for verb, one in said.items()} == VERBS
    assert {one["result"] for one in said.values()} == {True}


def test_what_is_wrong_is_one_line_and_exit_code_1(cloud):
    assert cloud.typed("virt.start", "nobody") == (1, ["no guest 'nobody' on any hypervisor"])


def test_a_libvirt_that_hangs_holds_up_nobody_else(cloud):
    cloud.libvirtds["hv1"].hang()
    try:
        found = cloud.run("virt.list")
    finally:
        cloud.libvirtds["hv1"].go_on()
    assert "does not answer within 10 s" in found["hv1"]["error"]
    assert found["hv2"]["running"] == ["test"]
    assert found["retcode"] == 1


def test_versions_say_what_is_used_where(cloud):
    code, lines = cloud.typed("virt.versions")
    assert code == 0, lines
    assert lines[0].split() == ["host", "Salt", "Virt", "by", "digest", "Salt", "Python", "libvirt"]
    assert [line.split()[0] for line in lines[1:]] == ["master", "hv1", "hv2"]
    assert len({tuple(line.split()[1:4]) for line in lines[1:]}) == 1
    _, plain = cloud.typed("virt.versions", "--out=json")
    found = json.loads("\n".join(plain))["versions"]
    assert {one["install_method"] for one in (found["master"], *found["hosts"].values())} == {
        cloud.way
    }


def test_versions_name_the_host_that_lags(cloud):
    if cloud.way == "pip":
        pytest.skip("one folder is the library of all of them here")
    found = cloud.run("virt.versions")["versions"]
    added = Path(found["hosts"]["hv2"]["path"]) / "added.py"
    added.write_text("")
    try:
        code, lines = cloud.typed("virt.versions")
    finally:
        added.unlink()
    assert code == 1
    assert lines[4:] == ["hv2: another version than the master's: salt hv2 saltutil.sync_all"], (
        lines
    )


def test_many_guests_are_deployed_and_found_there_the_second_time(cloud):
    """By threads with a Fleet each, and one look at all hosts for several of them."""
    plain = {
        "mem": 16, "hypervisor": "test", "seed": False, "size": "1MiB",
        "interfaces": [{"name": "eth0", "type": "network", "source": "default"}],
    }  # fmt: skip
    guests = {f"many{number}": plain for number in range(4)}
    try:
        made = cloud.run("virt.deployed", guests, "crowd")["crowd"]
        assert made["result"] is True, made["comment"]
        again = cloud.run("virt.deployed", guests, "crowd")["crowd"]
        assert (again["comment"], again["changes"]) == ("existing: 4", {})
        crowd = cloud.run("virt.deployments", "crowd")["deployments"]["deployments"]["crowd"]
        assert (crowd["result"], crowd["counts"]["present"]) == (True, 4)
        assert {guest["created_by_deployment"] for guest in crowd["guests"].values()} == {True}
    finally:
        for daemon in cloud.libvirtds.values():
            for dom in daemon.connection.listAllDomains():
                if dom.name() in guests:
                    if dom.isActive():
                        dom.destroy()
                    dom.undefine()
