"""The verbs that inspect hosts and guests, on libvirt's test driver."""

import importlib.util
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("salt")

from saltvirt import errors
from saltvirt.answers.inspection import GuestUsage, HostUsage
from saltvirt.host.domain import addresses as host_addresses
from saltvirt.host.inspect import guest_addresses, usage
from saltvirt.operations.inspect import top
from tests.functional.cloud import Fleet
from tests.functional.conftest import REPOSITORY, load_with_folders

POOL = """<pool type="dir"><name>images</name><target><path>{}</path></target></pool>"""


@pytest.fixture
def runner(tmp_path, monkeypatch, conn):
    """The runner over one host, which has the running guest ``test`` with a lease."""
    path = REPOSITORY / "_runners/virt_inspect.py"
    spec = importlib.util.spec_from_file_location("runner", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    fleet = Fleet(load_with_folders(tmp_path), tmp_path)
    fleet.__class__ = type("Cloud", (Fleet,), {
        "__enter__": lambda self: self, "__exit__": lambda self, *_: None,
    })  # fmt: skip
    monkeypatch.setattr(module, "Fleet", lambda _opts: fleet)
    module.__opts__ = fleet.opts
    module.fleet = fleet
    return module


def answer(returned, subject):
    """The data of an answer without a failure."""
    assert "retcode" not in returned["data"], returned
    return returned["data"][subject]


def test_addresses_of_a_guest_name_their_sources(runner, conn):
    found = answer(runner.addresses("test"), "test")
    [leased] = found["addresses"]
    assert leased["sources"] == ["lease", "arp"]
    assert leased["address"] in found["table"][1][0]
    assert found["comment"] == "test on hv1 has 1 address"
    assert [fun for fun, _ in runner.fleet.asked].count("virt.addresses") == 1
    conn.lookupByName("test").destroy()
    off = answer(runner.addresses("test"), "test")
    assert (off["addresses"], off["comment"]) == ([], "test on hv1 is shutdown and has no address")
    missing = runner.addresses("web9")["data"]
    assert missing["retcode"] == 1
    assert "no guest 'web9'" in missing["web9"]["comment"]


def interface(source, name, *addresses):
    entries = [{"address": a, "prefix": p, "type": "ipv6" if ":" in a else "ipv4"}
               for a, p in addresses]  # fmt: skip
    return {"interface": name, "source": source, "addresses": entries}


def test_an_address_is_listed_once_with_all_its_sources():
    combined = guest_addresses.combine([
        {"52:54:00:00:00:01": interface("lease", "vnet3", ("10.0.0.7", 24))},
        {"52:54:00:00:00:01": interface("agent", "eth0", ("fe80::1", 64), ("2001:db8::7", 64),
                                        ("10.0.0.7", 24))},
        {"52:54:00:00:00:02": interface("arp", "N/A", ("10.1.0.7", 0))},
    ])  # fmt: skip
    assert [(i.address, i.prefix, i.interface, i.sources) for i in combined] == [
        ("10.1.0.7", None, "N/A", ("arp",)),
        ("10.0.0.7", 24, "eth0", ("lease", "agent")),
        ("2001:db8::7", 64, "eth0", ("agent",)),
        ("fe80::1", 64, "eth0", ("agent",)),
    ]


def test_networks_have_their_guests(runner, conn):
    conn.networkDefineXML("<network><name>inner</name></network>")
    found = answer(runner.networks(), "networks")
    default = found["hosts"]["hv1"]["networks"]["default"]
    assert (default["active"], default["guests"]) == (True, ["test"])
    assert default["addresses"] == ["192.168.122.1/24"]
    rows = {row[1]: row[2:] for row in found["table"] if row[1]}
    assert rows["inner"][:3] == ["inactive", "no", "isolated"]
    assert rows["default"][-1] == 1
    assert found["title"].startswith(f"{len(found['table']) - 1} networks on hv1")


def test_pools_have_sizes_as_numbers(runner, conn, tmp_path):
    conn.storagePoolDefineXML(POOL.format(tmp_path / "images"))
    found = answer(runner.pools(), "pools")
    assert found["hosts"]["hv1"]["pools"]["images"]["state"] == "inactive"
    rows = {row[1]: row[2:] for row in found["table"]}
    sizes = [{"bytes": 100 << 30}, {"bytes": 0}, {"bytes": 100 << 30}]
    assert rows["images"] == ["dir", "inactive", "no", *sizes]
    assert rows["default-pool"][1] == "running"


def test_volumes_have_the_guests_that_use_them(runner, conn):
    pool = conn.storagePoolLookupByName("default-pool")
    for name in ("web1", "free"):
        pool.createXML(f"<volume><name>{name}</name><capacity unit='GiB'>8</capacity></volume>", 0)
    path = pool.storageVolLookupByName("web1").path()
    disk = f"<disk type='file'><source file='{path}'/><target dev='vda'/></disk>"
    conn.defineXML(f"""<domain type='test'><name>web1</name><memory>8192</memory>
        <os><type>hvm</type></os><devices>{disk}</devices></domain>""")
    found = answer(runner.volumes(), "volumes")
    volumes = found["hosts"]["hv1"]["pools"]["default-pool"]["volumes"]
    assert volumes["web1"]["capacity"] == 8 << 30
    assert [volumes[name]["used_by"] for name in ("web1", "free")] == [["web1"], []]
    rows = {row[2]: row[4:] for row in found["table"]}
    assert rows["web1"] == [{"bytes": 8 << 30}, {"bytes": 8 << 30}, "web1"]
    of_pool = answer(runner.volumes(pool="default-pool"), "volumes")
    assert of_pool["table"] == found["table"]
    mistyped = runner.volumes(pool="defalt-pool")["data"]
    assert mistyped.pop("retcode") == 1
    [failed] = mistyped.values()
    assert failed["comment"] == (
        "no storage pool 'defalt-pool' is running on any hypervisor, did you mean 'default-pool'?"
    )


def test_images_of_the_master_say_which_host_has_them(runner, tmp_path):
    (tmp_path / "files/os").mkdir(parents=True)
    (tmp_path / "files/os/debian.qcow2").write_bytes(b"x" * 2048)
    (tmp_path / "files/top.sls").touch()
    # a name that no answer can have
    Path(os.fsdecode(os.fsencode(tmp_path / "files") + b"/\xff.qcow2")).touch()
    runner.fleet.opts["file_roots"] = {"base": [str(tmp_path / "files"), "/nonexistent"]}
    found = answer(runner.images(), "images")
    assert found["master"] == [
        {"source": "salt://os/debian.qcow2", "size_bytes": 2048, "cached_on": []}
    ]
    assert found["title"] == "no images on hv1, 1 on this master"
    assert found["table"][1:] == [
        ["master", None, None, None, {"bytes": 2048}, None, "salt://os/debian.qcow2"]
    ]


def test_a_host_that_does_not_answer_is_a_row_with_its_error(runner, monkeypatch):
    def refuse(*_args, **_options):
        raise errors.ConnectionFailed("cannot connect to libvirt")

    monkeypatch.setattr("tests.functional.asking.answer", refuse)
    data = runner.pools()["data"]
    assert data["retcode"] == 1
    assert data["pools"]["hosts"] == {"hv1": {"error": "cannot connect to libvirt"}}
    assert data["pools"]["table"][1][-1] == "cannot connect to libvirt"


def test_agent_is_looked_up_before_it_is_asked():
    """An agent whose channel is not connected would make libvirt wait."""
    xml = "<domain><devices><channel><target name='org.qemu.guest_agent.0' state='{}'/></channel>"
    xml += "</devices></domain>"
    for state, connected in (("connected", True), ("disconnected", False)):
        dom = SimpleNamespace(XMLDesc=lambda _flags, state=state: xml.format(state))
        assert host_addresses.has_agent(dom) is connected


def test_top_measures_first_and_then_answers_at_once(runner, conn, tmp_path, monkeypatch):
    slept = []
    monkeypatch.setattr(usage.time, "sleep", slept.append)
    monkeypatch.setattr(usage, "MIN_AGE_S", 0)
    for _ in range(2):
        data = runner.top()["data"]
    assert slept == [usage.SAMPLE_S]
    assert (tmp_path / "lock" / usage.FILE).stat().st_mode & 0o777 == 0o600
    host = data["top"]["hosts"]["hv1"]
    guest = host["guests"]["test"]
    assert (guest["state"], guest["vcpus"]) == ("running", 2)
    assert host["vcpus_allocated"] == 2
    assert 0 < host["memory_used_bytes"] < host["memory_bytes"]
    assert host["seconds"] >= 0
    assert [row[:2] for row in data["guests"]["table"][1:]] == [["test", "hv1"]]
    conn.lookupByName("test").destroy()
    data = runner.top(sort="name")["data"]
    assert data["guests"]["title"] == "no guest is running"
    assert data["top"]["hosts"]["hv1"]["guests"]["test"]["state"] == "shutdown"
    wrong = runner.top(sort="cpus")["data"]
    assert wrong["virt"]["comment"] == "sort must be cpu, memory, disk, network, name, not 'cpus'"


@pytest.mark.parametrize("content", [b"", b"{", b"[7]", b'[{"at_s": -1}]', b"[" * 100_000])
def test_damaged_readings_are_measured_again(runner, tmp_path, monkeypatch, content):
    monkeypatch.setattr(usage, "SAMPLE_S", 0)
    (tmp_path / "lock").mkdir(mode=0o700)
    (tmp_path / "lock" / usage.FILE).write_bytes(content)
    assert "test" in answer(runner.top(), "top")["hosts"]["hv1"]["guests"]


def test_the_guest_that_uses_the_disk_most_comes_first():
    quiet = GuestUsage(state="running", vcpus=1, cpu_percent=90.0, disk_read_bytes_s=1)
    busy = GuestUsage(state="paused", vcpus=1, disk_read_bytes_s=9, disk_written_bytes_s=5000)
    off = GuestUsage(state="shutdown", vcpus=1)
    answers = {"hv1": HostUsage(cpus=1, guests={"a": quiet, "c": off}),
               "hv2": HostUsage(cpus=1, guests={"b": busy})}  # fmt: skip
    for sort, order in (("cpu", "ab"), ("disk", "ba"), ("name", "ab")):
        assert "".join(row[0] for row in top._guest_rows(answers, sort)) == order
    [first, _] = top._guest_rows(answers, "disk")
    assert first == ["b", "hv2", None, {"bytes": 0}, None, {"rate": 9}, {"rate": 5000}, None, None]
