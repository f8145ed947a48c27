"""The inventory with libvirt's test driver; tests/integration queries the hosts of the lab."""

import os
import subprocess
import sys

import pytest

libvirt = pytest.importorskip("libvirt")

from saltvirt import errors
from saltvirt.host import own_files
from saltvirt.host.domain import lookup, metadata
from saltvirt.host.migration import reservations
from saltvirt.host.node import hugepages, inventory
from saltvirt.host.storage import usage
from saltvirt.migration import reservation
from saltvirt.placement import facts
from saltvirt.system import paths


def test_guests_and_sizes(conn, tmp_path):
    found = inventory.read(conn, lambda key, default=None: default, tmp_path / "no")
    found = found.to_answer()
    info = conn.getInfo()
    assert (found["cpus"], found["memory_kib"]) == (info[2], info[1] * 1024)
    assert found["guests"]["test"] == {
        "uuid": conn.lookupByName("test").UUIDString(),
        "state": "running", "vcpus": 2, "memory_kib": 8388608, "autostart": False, "groups": [],
        "deployment": None, "type": "test", "arch": "i686", "networks": ["default"],
        "disks": [{"path": "/guest/diskimage1", "size_bytes": 0}],
    }  # fmt: skip
    assert found["networks"] == ["default"]
    assert found["images_folder"]["free_bytes"] > 0
    assert (found["disk_profiles"], found["nic_profiles"]) == (["default"], ["default"])


def test_profiles_are_named_and_a_wrong_setting_of_them_is_no_reason_for_no_inventory(
    conn, tmp_path
):
    given = {"virt:disk": {"fast": [{"system": {"size": 1}}]}, "virt:nic": "br0"}
    found = inventory.read(conn, lambda key, default=None: given.get(key, default), tmp_path)
    assert (found.disk_profiles, found.nic_profiles) == (("default", "fast"), ("default",))


def test_groups_come_from_our_metadata(conn, tmp_path):
    xml = conn.lookupByName("test").XMLDesc().replace("<name>test<", "<name>web1<")
    xml = xml[: xml.index("<uuid>")] + xml[xml.index("</uuid>") + 7 :]
    ours = (
        '<metadata><s:guest xmlns:s="https://saltproject.io/xmlns/salt-virt/1">'
        '<s:entry key="groups">web eu</s:entry></s:guest></metadata>'
    )
    conn.defineXML(xml.replace("</name>", "</name>" + ours))
    found = inventory.read(conn, lambda key, default=None: default, tmp_path).to_answer()
    assert found["guests"]["web1"]["groups"] == ["web", "eu"]
    assert found["guests"]["web1"]["state"] == "shutdown"


@pytest.mark.parametrize("is_interrupted", [False, True])
def test_what_a_guest_will_take_is_counted_while_it_is_made(conn, tmp_path, is_interrupted):
    """Its record says what it will have; a disk that it only reads takes nothing, one in a pool
    that does not run is on nothing that is known."""
    (tmp_path / "cd.iso").write_bytes(bytes(4096))
    made = tmp_path / "vda.raw"
    creator = "1:1:x" if is_interrupted else metadata.worker()
    ours = (
        '<metadata><s:guest xmlns:s="https://saltproject.io/xmlns/salt-virt/1" '
        f'creating="{creator}">'
        f'<s:disk target="vda" path="{made}" size="1073741824"/></s:guest></metadata>'
    )
    disks = (
        f"<disk type='file'><source file='{tmp_path}/cd.iso'/><target dev='vdb'/><readonly/></disk>"
        "<disk type='volume'><source pool='off' volume='v'/><target dev='vdc'/></disk>"
    )
    xml = conn.lookupByName("test").XMLDesc().replace("<name>test<", "<name>web1<")
    xml = xml[: xml.index("<uuid>")] + xml[xml.index("</uuid>") + 7 :]
    before = inventory.read(conn, lambda key, default=None: default, tmp_path).to_answer()
    xml = xml.replace("</name>", "</name>" + ours).replace("</devices>", disks + "</devices>")
    conn.defineXML(xml)
    found = inventory.read(conn, lambda key, default=None: default, tmp_path).to_answer()
    shown = {disk.get("path") or disk["pool"] for disk in found["guests"]["web1"]["disks"]}
    assert shown == {"/guest/diskimage1", "off"}
    stores = [
        name
        for name, one in found["stores"].items()
        if one["promised_bytes"] != before["stores"].get(name, one)["promised_bytes"]
    ]
    guest = found["guests"]["web1"]
    assert (guest["creating"], guest.get("interrupted", False)) == (True, is_interrupted)
    if is_interrupted:  # nobody makes the disks of which it has none yet
        assert stores == []
        return
    (store,) = stores
    grown = found["stores"][store]["promised_bytes"] - before["stores"][store]["promised_bytes"]
    assert grown == 2**30


@pytest.mark.parametrize("code", range(8))
def test_every_state_that_holds_memory_counts_in_full(code):
    holds = code not in (libvirt.VIR_DOMAIN_SHUTOFF, libvirt.VIR_DOMAIN_CRASHED)
    assert facts.Guest("g", state=lookup.state_name(code)).meant_to_run == holds


def test_a_guest_that_goes_while_it_is_listed_is_passed_over(conn):
    """As one does that is migrated away: its name is still known, its state is not."""
    xml = conn.lookupByName("test").XMLDesc().replace("<name>test<", "<name>web1<")
    going = conn.defineXML(xml[: xml.index("<uuid>")] + xml[xml.index("</uuid>") + 7 :])
    listed = conn.listAllDomains()
    going.undefine()
    there = type("Connection", (), {"listAllDomains": lambda self: listed})()
    assert lookup.states(there) == {"test": "running"}


def test_who_uses_a_file(conn, tmp_path):
    base, top = tmp_path / "base.qcow2", tmp_path / "top.qcow2"
    for argv in (["-f", "qcow2", base, "1M"], ["-f", "qcow2", "-b", base, "-F", "qcow2", top]):
        subprocess.run(["qemu-img", "create", "-q", *map(str, argv)], check=True)
    disk = f"<disk type='file'><source file='{top}'/><target dev='vdz'/></disk>"
    dom = conn.lookupByName("test")
    xml = dom.XMLDesc().replace("<devices>", f"<devices>{disk}")
    xml = xml[: xml.index("<uuid>")] + xml[xml.index("</uuid>") + 7 :]
    other = conn.defineXML(xml.replace("<name>test<", "<name>web1<"))
    used = usage.read(conn, dom.UUIDString(), images=False)
    for path in (str(base), str(top), "/guest/diskimage1"):
        assert used.guests(usage.keys_of(conn, path)) == ["web1"]
    left = usage.read(conn, other.UUIDString(), images=False)
    assert left.guests(usage.keys_of(conn, "/guest/diskimage1")) == ["test"]
    assert left.guests(usage.keys_of(conn, str(top))) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="makes a network namespace: needs root")
def test_bridges_are_told_from_other_devices():
    """In a namespace of its own, whose devices /sys does not show."""
    name = f"salt-virt-{os.getpid()}"
    look = "from saltvirt.host.network import links; print(links.kinds(), links.bridges())"
    script = (
        "ip link add br7 type bridge && ip link add veth7 type veth peer name veth8 && "
        f"{sys.executable} -c '{look}'"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        argv = ["ip", "netns", "exec", name, "sh", "-c", script]
        done = subprocess.run(argv, check=True, capture_output=True, text=True, env=env)
    finally:
        subprocess.run(["ip", "netns", "del", name], check=True)
    assert "'br7': 'bridge'" in done.stdout
    assert "'veth7': 'veth'" in done.stdout
    assert done.stdout.strip().endswith("['br7']")


def test_what_a_guest_on_its_way_takes_of_a_folder_and_of_a_pool_is_counted(
    conn, tmp_path, monkeypatch
):
    """Its reservation is a file's name; the pool is the test driver's own."""
    folder, own = tmp_path / "arrivals", tmp_path / "images"
    folder.mkdir()
    own.mkdir()
    monkeypatch.setattr(paths, "RUN", str(tmp_path / "run"))
    here = reservations.local
    monkeypatch.setattr(inventory.reservations, "local", lambda names: here(names, str(folder)))

    def read():
        found = inventory.read(conn, lambda key, default=None: default, str(own))
        grows = {**found.stores, **found.pools}
        return found, {name: one.promised_bytes for name, one in grows.items()}

    _, before = read()
    coming = reservation.Reservation(
        "web9", 2048, 3, 1, ((str(own), 5 << 20), ("default-pool", 7 << 20))
    )
    (folder / coming.file).touch()
    found, after = read()
    assert found.arriving == {"web9": facts.Arriving(3, 2048, None)}
    more = {name: after[name] - before[name] for name in before if after[name] != before[name]}
    assert sorted(more.values()) == [5 << 20, 7 << 20]
    assert more["default-pool"] == 7 << 20


def test_a_kernel_that_tells_no_size_of_huge_pages_has_none(tmp_path, monkeypatch):
    monkeypatch.setattr(hugepages, "_MEMINFO", str(tmp_path / "meminfo"))
    assert hugepages.default_size_kib() == 0
    (tmp_path / "meminfo").write_text("MemTotal: 1 kB\n")
    assert hugepages.default_size_kib() == 0
    (tmp_path / "meminfo").write_text("MemTotal: 1 kB\nHugepagesize:    2048 kB\n")
    assert hugepages.default_size_kib() == 2048


def test_a_file_that_is_not_for_this_process_is_said_with_what_to_do():
    with pytest.raises(errors.OperationFailed) as raised, own_files.permitted():
        raise PermissionError(13, "Permission denied", "/var/lib/salt-virt/x")
    assert raised.value.text.startswith(
        "/var/lib/salt-virt/x cannot be accessed by this minion: Permission denied; "
        "run the minion as root"
    )


def test_a_guest_that_is_made_while_they_are_listed_is_told_the_next_time(conn, tmp_path):
    class Coming:
        def __getattr__(self, name):
            return getattr(conn, name)

        def getAllDomainStats(self, *arguments):
            conn.defineXML(
                "<domain type='test'><name>new</name><memory>1024</memory><os><type>hvm</type></os>"
                "</domain>"
            )
            return conn.getAllDomainStats(*arguments)

    def guests(of):
        return sorted(inventory.read(of, lambda key, default=None: default, str(tmp_path)).guests)

    assert guests(Coming()) == ["test"]
    assert guests(conn) == ["new", "test"]
