"""Queries and lifecycle with libvirt's test driver; the results are read through libvirt itself."""

import contextlib
import json
import os
import re
import subprocess
import threading

import pytest

from saltvirt import errors
from saltvirt.answers.migration import RecoveryResult
from saltvirt.ha.agent import managed_guests as ha_kept
from saltvirt.ha.agent import store
from saltvirt.ha.model.registry import HaGuestRecord, Registry
from saltvirt.host.domain import addresses, overview, resize
from saltvirt.host.inspect import guest_details
from saltvirt.host.migration import api
from saltvirt.host.node import running_guests
from saltvirt.rights import confidential
from tests.functional import asking
from tests.functional.conftest import load
from tests.functional.daemon import libvirtd  # noqa: F401 - a fixture

libvirt = pytest.importorskip("libvirt")
pytest.importorskip("salt")

NETWORK = """<network><name>lan</name><bridge name='virbr7'/><dns enable='no'/>
<ip address='192.168.77.1' netmask='255.255.255.0'/></network>"""
GUEST = """<domain type='qemu'><name>{name}</name><memory unit='MiB'>64</memory>
<os><type arch='x86_64'>hvm</type></os><devices>
<interface type='network'><mac address='{mac}'/><source network='lan'/></interface>
</devices></domain>"""
ARP = """IP address       HW type     Flags       HW address            Mask     Device
10.0.0.7         0x1         0x2         52:54:00:00:00:07     *        br0
10.0.0.8         0x1         0x0         52:54:00:00:00:08     *        br0
10.0.0.9         0x1         0x2         52:54:00:00:00:09     *        br0
"""


@pytest.fixture
def dom(conn):
    return conn.lookupByName("test")


def state(dom):
    return dom.state()[0]


def test_lists_and_states(virt, conn):
    xml = conn.lookupByName("test").XMLDesc()
    off = xml.replace("<name>test<", "<name>off<").replace("6695eb01", "6695eb02")
    conn.defineXML(off)
    assert virt["virt.list_domains"]() == ["off", "test"]
    assert virt["virt.list_active_vms"]() == ["test"]
    assert virt["virt.list_inactive_vms"]() == ["off"]
    assert virt["virt.vm_state"]() == {"off": "shutdown", "test": "running"}
    assert virt["virt.vm_state"]("off") == {"off": "shutdown"}


@pytest.mark.parametrize(
    "function",
    ["vm_info", "vm_state", "vm_cputime", "vm_netstats", "vm_diskstats", "guest_addresses"],
)
def test_a_guest_whose_name_salt_reads_as_a_number(virt, conn, function):
    xml = conn.lookupByName("test").XMLDesc()
    off = xml.replace("<name>test<", "<name>7001<").replace("6695eb01", "6695eb02")
    conn.defineXML(off)
    assert list(virt[f"virt.{function}"](7001)) == ["7001"]
    assert list(virt["virt.get_disks"](7001)) == ["vda"]


def test_a_guest_that_goes_while_its_disks_are_read(conn):
    xml = conn.lookupByName("test").XMLDesc()
    off = xml.replace("<name>test<", "<name>off<").replace("6695eb01", "6695eb02")
    dom = conn.defineXML(off)

    class Going:
        def __getattr__(self, name):
            return getattr(conn, name)

        def domainListGetStats(self, *arguments):
            found = conn.domainListGetStats(*arguments)
            dom.undefine()
            return found

    with pytest.raises(errors.OperationFailed, match="cannot read the disks of off"):
        overview.disks(Going(), "off")


def test_a_host_without_guests_is_no_error(empty):
    assert empty["virt.list_domains"]() == []
    assert empty["virt.vm_info"]() == {}
    info = empty["virt.full_info"]()
    assert (info["vm_info"], info["freecpu"], info["node_info"]["phymemory"]) == ({}, 4, 8192)


@pytest.mark.parametrize(
    "function",
    [
        "vm_info",
        "vm_state",
        "get_nics",
        "get_macs",
        "get_graphics",
        "get_loader",
        "get_disks",
        "get_xml",
        "shutdown",
        "pause",
        "resume",
        "start",
        "stop",
        "reboot",
        "reset",
        "ctrl_alt_del",
        "vm_cputime",
        "vm_netstats",
        "vm_diskstats",
        "set_autostart",
    ],
)
def test_an_unknown_guest_is_named_with_its_host(virt, conn, function):
    with pytest.raises(errors.VirtError, match=rf"^no guest 'nobody' on {conn.getHostname()}$"):
        virt[f"virt.{function}"]("nobody")


def test_an_unknown_argument_is_refused(virt):
    with pytest.raises(errors.VirtError, match=r"unknown argument: conection"):
        virt["virt.list_domains"](conection="test:///default")


def test_vm_info_has_what_salt_had(virt, conn):
    info = virt["virt.vm_info"]("test")["test"]
    assert set(info) >= {
        "cpu", "cputime", "disks", "graphics", "nics", "uuid", "loader", "on_crash",
        "on_reboot", "on_poweroff", "maxMem", "mem", "state",
    }  # fmt: skip
    assert (info["cpu"], info["maxMem"], info["mem"]) == (2, 8388608, 2097152)
    assert info["disks"]["vda"]["file"] == "/guest/diskimage1"
    assert info["nics"]["aa:bb:cc:dd:ee:ff"]["source"] == {"network": "default"}
    assert info["uuid"] == conn.lookupByName("test").UUIDString()


def test_vm_info_says_whether_a_guest_starts_with_its_host(virt, conn):
    assert virt["virt.vm_info"]("test")["test"]["autostart"] is False
    conn.lookupByName("test").setAutostart(1)
    assert virt["virt.vm_info"]("test")["test"]["autostart"] is True
    assert virt["virt.full_info"]()["vm_info"]["test"]["autostart"] is True


def test_addresses_of_all_guests_are_read_without_guests(libvirtd, tmp_path, monkeypatch):  # noqa: F811
    """From the file in which dnsmasq of a network stores its leases, and the ARP table."""
    conn = libvirt.open(libvirtd.uri)
    network = conn.networkDefineXML(NETWORK)
    network.create()
    leases = [{"ip-address": address, "mac-address": "52:54:00:00:00:07", "expiry-time": 2**33}
              for address in ("fe80::7", "192.168.77.7")]  # fmt: skip
    write = "mkdir -p /var/lib/libvirt/dnsmasq; cat > /var/lib/libvirt/dnsmasq/virbr7.status"
    subprocess.run([*libvirtd.inside, "bash", "-c", write],
                   input=json.dumps(leases), text=True, check=True)  # fmt: skip
    table = tmp_path / "arp"
    table.write_text(ARP, encoding="ascii")
    monkeypatch.setattr(addresses, "ARP_TABLE", str(table))
    for name, mac in (("lease7", "52:54:00:00:00:07"), ("lease8", "52:54:00:00:00:08")):
        conn.createXML(GUEST.format(name=name, mac=mac), 0)
    conn.defineXML(GUEST.format(name="lease9", mac="52:54:00:00:00:09"))
    try:
        found = overview.full_info(conn)["vm_info"]
        assert found["lease7"]["addresses"] == ["10.0.0.7", "192.168.77.7", "fe80::7"]
        assert found["lease8"]["addresses"] == []
        assert found["lease9"]["addresses"] == [], "a guest that is off has none"
    finally:
        for name in ("lease7", "lease8"):
            conn.lookupByName(name).destroy()
        conn.lookupByName("lease9").undefine()
        network.destroy()
        network.undefine()
        conn.close()


def test_a_daemon_of_networks_that_hangs_delays_no_list_for_long(conn, monkeypatch):
    monkeypatch.setattr(addresses, "LEASES_S", 0.05)
    ended = threading.Event()

    class Hanging:
        def __getattr__(self, name):
            return getattr(conn, name)

        def listAllNetworks(self, _flags):
            ended.wait()

    try:
        assert overview.full_info(Hanging())["vm_info"]["test"]["addresses"] == []
    finally:
        ended.set()


def test_a_guest_that_disappears_while_it_is_read_is_not_found(conn):
    class Omitting:
        def __getattr__(self, name):
            return getattr(conn, name)

        def domainListGetStats(self, *_arguments):
            return []

    with pytest.raises(errors.NotFound, match="test has disappeared"):
        overview.vm_info(Omitting(), "test")


def test_only_the_agent_of_a_running_guest_is_asked(conn, tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(addresses, "of_agent", lambda dom: asked.append(dom.name()) or ["10.9.0.1"])
    domain = conn.lookupByName("test")
    running = guest_details.read(conn, "test", str(tmp_path))
    assert (running.addresses, asked) == (("10.9.0.1",), ["test"])
    domain.suspend()
    paused = guest_details.read(conn, "test", str(tmp_path))
    assert (paused.state, paused.addresses, len(asked)) == ("paused", (), 1)
    assert paused.usage.memory_bytes == 2 << 30
    assert paused.unknown == {}


def test_a_guest_that_claims_many_addresses_has_few(conn, tmp_path, monkeypatch):
    table = tmp_path / "arp"
    rows = (f"10.1.{n // 256}.{n % 256} 0x1 0x2 aa:bb:cc:dd:ee:ff * br0" for n in range(5000))
    table.write_text("\n".join(["IP address", *rows]), encoding="ascii")
    monkeypatch.setattr(addresses, "ARP_TABLE", str(table))
    found = overview.full_info(conn)["vm_info"]["test"]["addresses"]
    assert len(found) == addresses.MAX_ADDRESSES


def test_full_info_counts_what_running_guests_take(virt, conn):
    info = virt["virt.full_info"]()
    total = conn.getInfo()
    assert info["freecpu"] == total[2] - 2
    assert info["freemem"] == total[1] - 256 - 2048
    assert list(info["vm_info"]) == ["test"]


def test_a_domain_that_vanishes_while_it_is_read_costs_only_itself(conn):
    from saltvirt.host.domain import describe, stats

    text = "<domain type='test'><name>gone</name><memory>1024</memory><os><type>hvm</type></os>"
    conn.defineXML(text + "</domain>")
    pairs = conn.getAllDomainStats()
    conn.lookupByName("gone").undefine()
    found = [describe.vm(stats._read(*pair, True)) for pair in pairs]
    assert sorted("error" in one for one in found) == [False, True]
    assert "Domain not found" in next(one["error"] for one in found if "error" in one)


def test_getters(virt, conn):
    assert virt["virt.get_macs"]("test") == ["aa:bb:cc:dd:ee:ff"]
    assert virt["virt.get_nics"]("test")["aa:bb:cc:dd:ee:ff"]["type"] == "network"
    assert virt["virt.get_graphics"]("test")["type"] == "None"
    assert virt["virt.get_loader"]("test") == {"path": "None"}
    assert virt["virt.get_disks"]("test")["vda"]["type"] == "disk"
    assert virt["virt.get_xml"]("test") == conn.lookupByName("test").XMLDesc(0)


def test_lifecycle_is_true_only_when_libvirt_shows_it(virt, dom):
    assert virt["virt.pause"]("test") is True
    assert state(dom) == libvirt.VIR_DOMAIN_PAUSED
    assert virt["virt.resume"]("test") is True
    assert state(dom) == libvirt.VIR_DOMAIN_RUNNING
    assert virt["virt.stop"]("test") is True
    assert state(dom) == libvirt.VIR_DOMAIN_SHUTOFF
    assert virt["virt.start"]("test") is True
    assert state(dom) == libvirt.VIR_DOMAIN_RUNNING
    assert virt["virt.shutdown"]("test") is True
    assert state(dom) == libvirt.VIR_DOMAIN_SHUTOFF


def test_a_refusal_has_libvirts_words(virt, dom):
    with pytest.raises(errors.VirtError, match=r"cannot start test: .*already running"):
        virt["virt.start"]("test")
    with pytest.raises(errors.VirtError, match=r"cannot resume test: .*not paused"):
        virt["virt.resume"]("test")


@pytest.mark.parametrize(("word", "flag"), [("on", 1), ("off", 0), (True, 1), (False, 0)])
def test_autostart(virt, dom, word, flag):
    dom.setAutostart(1 - flag)
    assert virt["virt.set_autostart"]("test", word) is True
    assert dom.autostart() == flag


def test_autostart_refuses_other_words(virt, dom):
    with pytest.raises(errors.VirtError, match=r"'maybe' must be on or off"):
        virt["virt.set_autostart"]("test", "maybe")


def test_setmem_of_a_stopped_guest_shows_in_its_xml(virt, dom):
    dom.destroy()
    assert virt["virt.setmem"]("test", 768) is True
    assert dom.info()[1:3] == [768 * 1024, 768 * 1024]


def test_setmem_of_a_running_guest_stays_below_its_maximum(virt, dom):
    with pytest.raises(
        errors.VirtError, match=r"maximum of 8388608, less than 10485760: stop it first"
    ):
        virt["virt.setmem"]("test", "10GiB")


def test_setvcpus_of_a_stopped_guest_shows_in_its_xml(virt, dom):
    dom.destroy()
    assert virt["virt.setvcpus"]("test", 4) is True
    assert "<vcpu placement='static'>4</vcpu>" in dom.XMLDesc()


@pytest.mark.parametrize("bad", [0, -1, "two", True])
def test_bad_sizes_are_refused(virt, conn, bad):
    with pytest.raises(errors.VirtError, match=r"positive|at least|more than zero|not a size"):
        virt["virt.setmem"]("test", bad)
    with pytest.raises(errors.VirtError, match=r"positive|at least"):
        virt["virt.setvcpus"]("test", bad)


def test_define_and_create_from_text_and_file(virt, conn, tmp_path):
    text = (
        "<domain type='test'><name>{}</name><memory>1024</memory><os><type>hvm</type></os></domain>"
    )
    for name in ("d2", "c2"):
        (tmp_path / name).write_text(text.format(name))
    assert virt["virt.define_xml_str"](text.format("d1")) is True
    assert virt["virt.define_xml_path"](str(tmp_path / "d2")) is True
    assert virt["virt.create_xml_str"](text.format("c1")) is True
    assert virt["virt.create_xml_path"](str(tmp_path / "c2")) is True
    for name, persistent in (("d1", 1), ("d2", 1), ("c1", 0), ("c2", 0)):
        made = conn.lookupByName(name)
        assert (made.isPersistent(), made.isActive()) == (persistent, 1 - persistent)


def test_bad_xml_and_missing_files_are_one_line(virt, conn):
    with pytest.raises(errors.VirtError, match=r"cannot define the domain: .*") as caught:
        virt["virt.define_xml_str"]("<domain>")
    assert type(caught.value).__name__ == "InvalidInput"
    with pytest.raises(errors.VirtError, match=r"cannot read /nowhere: "):
        virt["virt.define_xml_path"]("/nowhere")


def test_no_daemon_is_one_clear_line(virt):
    with pytest.raises(errors.VirtError, match=r"^cannot connect to qemu:///nowhere: ") as caught:
        virt["virt.list_domains"](connection="qemu:///nowhere")
    assert type(caught.value).__name__ == "ConnectionFailed"


def test_an_empty_name_is_no_guest(virt):
    """Neither a traceback nor all guests."""
    for function in ("get_disks", "get_nics", "get_macs", "get_graphics", "get_xml"):
        with pytest.raises(errors.VirtError, match=r"no guest ''|cannot be a guest's name"):
            virt[f"virt.{function}"]("")


@pytest.mark.parametrize("path", [7, None, ["/a"]])
def test_a_path_that_is_no_text_is_none_of_a_file(virt, path):
    with pytest.raises(errors.VirtError, match="is not the path of a file"):
        virt["virt.define_xml_path"](path)


DISKS = """<domain type='test'><name>disks</name><memory>1024</memory><os><type>hvm</type></os>
<devices><disk type='file' device='cdrom'><source file='/cd.iso'/><target dev='sda' bus='sata'/>
<readonly/></disk><disk type='file'><source file='/ro.raw'/><target dev='vda'/><readonly/></disk>
<disk type='file'><source file='/both.raw'/><target dev='vdb'/><shareable/></disk>
</devices>
</domain>"""


@pytest.mark.parametrize("target", ["sda", "vda"])
def test_a_disk_that_is_read_only_does_not_grow(virt, conn, target):
    conn.defineXML(DISKS)
    with pytest.raises(errors.VirtError, match=f"^disk {target} of disks cannot be written to$"):
        virt["virt.resize_disk"]("disks", target, 8)


ON_SERVERS = """<domain type='test'><name>servers</name><memory>1024</memory>
<os><type>hvm</type></os><devices>
<disk type='network'><source protocol='rbd' name='vms/servers_data'><host name='mon1'/></source>
<target dev='vda'/></disk>
<disk type='network'><source protocol='nbd' name='export'><host name='nbd1' port='10809'/></source>
<target dev='vdb'/></disk></devices></domain>"""
CEPH = """<pool type='rbd'><name>ceph</name><source><host name='mon1'/><name>vms</name></source>
</pool>"""
VOLUME = "<volume><name>servers_data</name><capacity>1048576</capacity></volume>"


@pytest.fixture
def on_servers(conn):
    """A guest that is off, with a disk in a pool of Ceph and one on an NBD server."""
    dom = conn.defineXML(ON_SERVERS)
    pool = conn.storagePoolDefineXML(CEPH)
    pool.create()
    pool.createXML(VOLUME)
    return dom


def test_a_disk_on_a_server_is_the_volume_of_its_pool(virt, conn, on_servers):
    assert resize.size_of(conn, on_servers, "vda") == 1 << 20
    # libvirt's test driver resizes nothing: it is libvirt that is asked
    with pytest.raises(errors.Unsupported, match="virStorageVolResize"):
        virt["virt.resize_disk"]("servers", "vda", 8)
    with pytest.raises(
        errors.NotFound, match=r"no storage pool with nbd:.*export that is started exists"
    ):
        virt["virt.resize_disk"]("servers", "vdb", 8)


def test_the_size_of_a_disk_on_a_server_is_not_passed_over(virt, on_servers):
    host = {"name": "mon1"}
    ceph = {"name": "data", "source": {"protocol": "rbd", "name": "vms/servers_data",
                                       "hosts": [host]}, "size": 8}  # fmt: skip
    nbd = {"name": "more", "target": "vdb", "size": 8}
    done = virt["virt.update"]("servers", disks=[ceph, nbd], test=True)
    assert [(change["path"], change["new"]) for change in done["changes"]] == [
        ("disks:vda:size_bytes", 8 << 20)
    ]
    [unknown] = done["warnings"]
    assert unknown.startswith("cannot determine whether it has 8 MiB: disk vdb of servers: no ")


def test_a_disk_that_two_guests_share_on_purpose_may_grow_and_another_not(conn):
    dom = conn.defineXML(DISKS)
    other = DISKS.replace("<name>disks", "<name>other").replace("<shareable/>", "")
    conn.defineXML(other)
    assert resize.refuse_shared(conn, dom, "vdb") is None
    with (
        confidential.collect() as redactions,
        pytest.raises(errors.Refused, match=r"^refused: cannot grow /both\.raw: disks uses it too"),
    ):
        resize.refuse_shared(conn, conn.lookupByName("other"), "vdb")
    assert confidential.redact("disks uses it", redactions) == "somebody uses it"


# -- what the runner asks of a host, and what it tells -------------------------------------------


@pytest.mark.parametrize("options", ["-1G", 7, [None], ["ip"]])
def test_what_a_fence_agent_is_told_is_a_mapping(virt, options):
    with pytest.raises(errors.InvalidInput, match="options is not a mapping"):
        asking.answer(virt, "virt.ha_fence", "fence_ipmilan", options, "/etc/salt/bmc1")


def test_who_uses_what_lies_on_shared_storage(virt, conn):
    places = {"/guest/diskimage1": {"path": "/guest/diskimage1"}, "/free": {"path": "/free"}}
    found = asking.answer(virt, "virt.storage_users", places)
    assert found["/free"] is None
    assert "test" in found["/guest/diskimage1"]
    assert asking.answer(virt, "virt.shared_disks", "test") == {}
    with pytest.raises(errors.VirtError, match="path is missing"):
        asking.answer(virt, "virt.storage_users", {"/a": {"inode": 7}})
    of_glusterfs = {"/a": {"path": "/a", "inode": 2**64 - 3}}
    assert asking.answer(virt, "virt.storage_users", of_glusterfs) == {"/a": None}


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"reason": " "}, "reason must be a text that is not empty"),
        ({"reason": ["x"]}, "reason must be a text that is not empty"),
        ({"reason": "x" * 201}, "reason has more than 200 characters"),
        ({"reason": "disks", "guests": "web1"}, "guests must be a list of names"),
        ({"reason": "disks", "guests": ["web1", 7]}, "guests must be a list of names"),
        ({"off": True, "guests": {"web1": 1}}, "guests must be a list of names"),
    ],
)
def test_a_mark_that_says_nothing_is_not_set(virt, given, why):
    with pytest.raises(errors.VirtError, match=why):
        virt["virt.maintenance"](**given)
    assert virt["virt.maintenance"]() is None


def test_a_guest_that_is_no_arguments_is_said_by_each_host(virt):
    found = asking.answer(virt, "virt.inventory", guest={"cpu": 1})
    assert found["guest"]["problem"] == "guest must contain a name"
    found = asking.answer(virt, "virt.inventory", guest={"name": "web1", "known_profiles": {}})
    assert found["guest"]["problem"].startswith("argument: unknown 'known_profiles'")
    with pytest.raises(errors.InvalidInput, match="guest is not a mapping"):
        asking.answer(virt, "virt.inventory", guest={"name": "web1", 7: 1})


def test_who_runs_is_told_by_files_where_no_daemon_is_asked(virt):
    assert virt["virt.running_names"]() == running_guests.names()


def test_a_wrong_address_for_migrations_is_no_reason_to_say_nothing_of_guests(caplog, conn):
    virt = load("test:///default", migration={"address": {"network": 7}})
    found = asking.answer(virt, "virt.migrate_locations")
    assert (found.get("address"), found["guests"]) == (None, {"test": "running"})
    assert "virt:migration:address" in caplog.text


def test_a_fixed_port_for_disks_is_said_to_have_no_effect(caplog, conn):
    virt = load("test:///default", migration={"disks_port": 49300})
    with contextlib.suppress(errors.OperationFailed):  # it has no disk that could be read
        virt["virt.migratable"]("test")
    assert "virt:migration:disks_port has no effect" in caplog.text


def test_a_host_is_told_to_be_given_up_for_lost_once_it_is(tmp_path, monkeypatch):
    """Nothing is to be ended here, nor taken away."""
    context = {}
    virt = load("test:///default", context, lock=str(tmp_path))

    def told():
        events = [tuple(event)[:2] for event in context.get("events", ())]
        return [about for tag, about in events if tag == "salt/virt/web9/migrate/lost"]

    with pytest.raises(errors.VirtError, match="no migration of web9 from here is unfinished"):
        virt["virt.migrate_recover"]("web9", lost="hv7")
    assert told() == []

    def recover(_conn, job, lost, *_):
        job.on_target_lost(lost)
        return RecoveryResult(name="web9", outcome="undone")

    monkeypatch.setattr(api, "recover", recover)
    assert virt["virt.migrate_recover"]("web9", lost="hv7")["outcome"] == "undone"
    assert told() == [{"name": "web9", "lost": "hv7", "host": virt.opts["id"]}]
    assert virt["virt.migrate_clean"]("web9", test=True) == {}


def test_only_a_migration_that_runs_can_be_switched_to_post_copy(virt, conn):
    why = f"^test is not being migrated from {conn.getHostname()}$"
    with pytest.raises(errors.VirtError, match=why):
        virt["virt.migrate_start_postcopy"]("test")


def test_a_volume_that_is_no_file_grows_in_its_pool(conn):
    """The test driver cannot; its words name what was asked of it."""
    pool = conn.storagePoolLookupByName("default-pool")
    volume = pool.createXML("<volume><name>lv</name><capacity>1048576</capacity></volume>")
    try:
        with pytest.raises(libvirt.libvirtError, match="virStorageVolResize"):
            resize._grow_stopped(conn, volume.path(), "raw", 4 << 20)
    finally:
        volume.delete()


@pytest.mark.parametrize(("function", "given", "instead"), [
    ("migrate_non_shared", ("web1", "hv2"), "virt.migrate web1 hv2 copy_storage=all"),
    ("migrate_non_shared_inc", ("web1", "hv2", True),
     "virt.migrate web1 qemu+ssh://hv2/system copy_storage=incremental"),
    ("seed_non_shared_migrate", ({},), "virt.migrate NAME HOST"),
])  # fmt: skip
def test_what_is_gone_says_what_to_call(virt, function, given, instead):
    with pytest.raises(errors.Unsupported, match=re.escape(instead)):
        virt[f"virt.{function}"](*given)


def test_one_that_high_availability_keeps_does_not_start_with_its_host(
    virt, dom, tmp_path, monkeypatch
):
    """It would run twice where its host comes back after it was started on another."""
    kept = Registry(guests={"test": HaGuestRecord("running", host="hv1")})
    found = store.SavedFile({}, {}, 1, "", 0, Registry(), kept)
    (tmp_path / "state.json").write_text(json.dumps(found.to_answer()))
    monkeypatch.setattr(ha_kept, "FILE", str(tmp_path / "state.json"))
    with pytest.raises(errors.Refused, match="test is managed by high availability on hv1 "):
        virt["virt.set_autostart"]("test", "on")
    assert dom.autostart() == 0
    assert virt["virt.set_autostart"]("test", "off") is True
    (tmp_path / "state.json").write_text("{")
    with pytest.raises(errors.VirtError, match="damaged"):
        virt["virt.set_autostart"]("test", "on")
    assert dom.autostart() == 0


def test_what_only_the_grains_and_libvirts_files_know(virt):
    assert virt["virt.virt_type"]() == "physical"
    with pytest.raises(
        errors.Unsupported, match="cannot tell where the libvirt of test:///default"
    ):
        asking.answer(virt, "virt.names_on_disk")


def test_what_an_exporter_would_serve_is_text_or_a_file(virt, tmp_path):
    pytest.importorskip("prometheus_client")
    text = virt["virt.metrics"]()
    assert 'saltvirt_libvirt_up{host="' in text
    # what the engine reads from time to time was read for this one text
    assert re.search(r'saltvirt_part_up\{[^}]*part="capacity"\} 1', text)
    assert "saltvirt_host_cpus{" in text
    path = tmp_path / "salt-virt.prom"
    assert virt["virt.metrics"](path=str(path)) == str(path)
    assert "saltvirt_libvirt_up" in path.read_text() and os.listdir(tmp_path) == [path.name]
    with pytest.raises(errors.InvalidInput, match="prom"):
        virt["virt.metrics"](path=str(tmp_path / "x"))
    assert os.listdir(tmp_path) == [path.name]
