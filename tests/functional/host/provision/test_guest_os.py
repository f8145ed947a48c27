"""``os`` of a guest on a private libvirtd: QEMU starts with what it sets, a second apply changes
nothing, and an unknown system is refused before anything is changed."""

import functools

import pytest

pytest.importorskip("libvirt")
pytest.importorskip("salt")

from saltvirt import errors
from saltvirt.host.provision import osinfo
from saltvirt.host.provision.guest_definition import stored
from tests.functional.daemon import libvirtd  # noqa: F401
from tests.functional.host.provision.test_pending import DATA, NIC, SYSTEM, host, state  # noqa: F401

DATABASE = {
    "acme.org/acme-1.xml": """<os id="http://acme.org/acme/1"><short-id>acme1</short-id>
        <family>linux</family><devices><device id="http://pcisig.com/pci/1af4/1041"/>
        <device id="http://pcisig.com/pci/1af4/1001"/></devices></os>""",
    "acme.org/acme-2.xml": """<os id="http://acme.org/acme/2"><short-id>acme2</short-id>
        <short-id>acmetwo</short-id><family>linux</family>
        <derives-from id="http://acme.org/acme/1"/><devices>
        <device id="http://pcisig.com/pci/1af4/1001" removed="true"/></devices></os>""",
    "microsoft.com/win-12.xml": """<os id="http://microsoft.com/win/12"><short-id>win12</short-id>
        <family>winnt</family><firmware arch="x86_64" type="bios" supported="false"/>
        <devices><device id="http://pcisig.com/pci/8086/10d3"/></devices></os>""",
    "acme.org/damaged.xml": "<os id='http://acme.org/3'><short-id>acme3</short-id>",
}


@pytest.fixture
def database(tmp_path, monkeypatch):
    for name, text in DATABASE.items():
        path = tmp_path / "os" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        end = "</libosinfo>" if "damaged" not in name else ""
        path.write_text(f"<libosinfo version='0.0.1'>{text}{end}", encoding="utf-8")
    monkeypatch.setattr(osinfo, "FOLDERS", (str(tmp_path / "os"),))


def test_names_of_osinfo_db(database):
    one, two = osinfo.find("acme1"), osinfo.find("acmetwo")
    assert (one.family, one.id) == ("linux", "http://acme.org/acme/1")
    assert (one.virtio_disk, one.virtio_nic) == (True, True)
    assert (two.virtio_disk, two.virtio_nic) == (False, True)
    windows = osinfo.find("win12")
    assert (windows.family, windows.secure, windows.pcie) == ("windows", True, True)
    for name, message in (
        ("acme22", "unknown 'acme22', did you mean 'acme2'"),
        ("acme3", "unknown 'acme3'"),
        ("windwos", "did you mean 'windows'"),
        ("windows11", "did you mean 'win11'"),
        ("ubuntu", "give its version, for example ubuntu20.04, ubuntu22.04"),
        ("???", "families: linux, "),
    ):
        with pytest.raises(errors.InvalidInput, match=message.replace("?", r"\?")):
            osinfo.find(name)


@pytest.mark.parametrize("name", ["win11", "debian12", "ubuntu24.04", "rhel9.0"])
def test_common_names_without_osinfo_db(name, monkeypatch):
    monkeypatch.setattr(osinfo, "FOLDERS", ())
    assert osinfo.find(name).id.startswith("http://")


@pytest.mark.parametrize(
    ("machine", "bus", "model"), [("pc", "ide", "e1000"), ("q35", "sata", "e1000")]
)
def test_a_system_without_drivers_of_virtio(host, machine, bus, model):  # noqa: F811
    nic = {"name": "eth0", "type": "user"}
    host.init(machine=machine, os="generic", disks=[SYSTEM], interfaces=[nic])
    running = host.running()
    assert (running.disks[0].bus, running.interfaces[0].model) == (bus, model)
    nics = [nic, {"name": "eth1", "type": "user"}]
    answer = host.update(disks=[SYSTEM, DATA], interfaces=nics)
    assert any("disk" in text for text in answer["pending"]), "neither bus can do it now"
    changed = stored(host.conn.lookupByName("g1"))
    assert [disk.bus for disk in changed.disks] == [bus] * 2
    assert [item.model for item in changed.interfaces] == [model] * 2
    assert host.update(disks=[SYSTEM, DATA], interfaces=nics, os="generic")["changes"] == []


@pytest.mark.parametrize(("machine", "model"), [("pc", "e1000"), ("q35", "e1000e")])
def test_windows(host, machine, model):  # noqa: F811
    arguments = {"os": "win11", "graphics": "vnc", "disks": [SYSTEM]}
    answer = host.init(machine=machine, interfaces=[{"name": "eth0", "type": "user"}], **arguments)
    assert "requires UEFI with secure boot and a TPM" in " ".join(answer["warnings"])
    running = host.running()
    assert running.osinfo_id == "http://microsoft.com/win/11"
    assert (running.clock.offset, running.disks[0].bus) == ("localtime", "sata")
    assert (running.interfaces[0].model, running.features.hyperv_spinlocks) == (model, True)
    assert "tablet" in [item.type for item in running.inputs]
    assert host.update(**arguments)["changes"] == []
    assert host.texts() == []


def test_an_existing_guest_on_request(host):  # noqa: F811
    host.init(disks=[SYSTEM])
    before = stored(host.conn.lookupByName("g1")).tostring()
    with pytest.raises(errors.InvalidInput, match="did you mean 'windows'"):
        host.update(os="windws")
    assert stored(host.conn.lookupByName("g1")).tostring() == before
    answer = host.update(os="linux")
    assert [(c["path"], c["live"]) for c in answer["changes"]] == [("os", True)]
    assert host.running().record.os == "linux"
    answer = host.update(os="windows")
    assert {"os", "clock:offset"} <= {change["path"] for change in answer["changes"]}
    assert any("clock:offset" in text for text in answer["pending"])
    assert not any("hyperv_mode" in text for text in answer["pending"]), "libvirt's own"
    assert host.update(os="windows")["changes"] == []
    assert stored(host.conn.lookupByName("g1")).disks[0].bus == "virtio"


def test_an_unknown_system_is_refused_before_anything_is_changed(host):  # noqa: F811
    with pytest.raises(errors.InvalidInput, match="did you mean 'windows'"):
        host.init(os="windwos", disks=[SYSTEM])
    assert host.conn.listAllDomains() == []


def test_the_definitions_of_systems_are_read_once_for_a_guest(host, database, monkeypatch):  # noqa: F811
    sought, find = [], osinfo.find
    monkeypatch.setattr(osinfo, "find", lambda name: sought.append(name) or find(name))
    host.init(os="acmetwo", disks=[SYSTEM], test=True)
    assert sought == ["acmetwo"]


def test_a_clone_is_of_the_same_system(host):  # noqa: F811
    host.init(os="windows", disks=[SYSTEM], start=False)
    host.modules["virt.clone"]("g1", "g2", seed=False)
    assert host.modules["virt.update"]("g2", os="windows")["changes"] == []
    assert host.modules["virt.update"]("g2", hypervisor_features={"hyperv-spinlocks": False})
    host.modules["virt.rename"]("g2", "g3")
    assert host.modules["virt.update"]("g3", os="windows")["changes"] == []


def topology(host):  # noqa: F811
    cpu = stored(host.conn.lookupByName("g1")).cpu
    return cpu.sockets, cpu.cores, cpu.threads


def test_windows_has_one_socket(host):  # noqa: F811
    change = functools.partial(host.modules["virt.setvcpus"], "g1", config=True, overcommit=True)
    host.init(os="windows", cpu={"maximum": 4, "current": 2}, overcommit=True)
    assert topology(host) == (1, 4, 1)
    assert host.update(cpu=6, os="windows", overcommit=True)["definition"]
    assert topology(host) == (1, 6, 1)
    assert host.update(cpu=6, os="windows")["changes"] == []
    assert change(3) is True
    assert (topology(host), stored(host.conn.lookupByName("g1")).vcpu.maximum) == ((1, 3, 1), 3)
    host.update(cpu={"topology": {"sockets": 3, "cores": 1, "threads": 1},
                     "tuning": {"vcpupin": {0: "0", 2: "1"}}})  # fmt: skip
    assert host.update(os="windows")["changes"] == []
    assert change(5) is True
    assert topology(host) == (5, 1, 1)
    host.conn.lookupByName("g1").destroy()  # a running guest does not give back its first vCPUs
    assert change(1) is True
    assert topology(host) == (1, 1, 1)
    before = stored(host.conn.lookupByName("g1")).tostring()
    with pytest.raises(errors.VirtError):
        change(9999)
    assert stored(host.conn.lookupByName("g1")).tostring() == before


WINDOWS = {"os": "win10", "disks": [SYSTEM], "graphics": "vnc", "cpu": {"maximum": 2}, "mem": 128}


def test_states_of_windows(host):  # noqa: F811
    run = functools.partial(state(host.modules), "g1", vm_type="qemu", seed=False)
    with pytest.raises(AssertionError, match="did you mean 'windows'"):
        run(**{**WINDOWS, "os": "windws"})
    assert host.conn.listAllDomains() == []
    nic = {"nic_profile": None, "interfaces": [NIC]}
    assert run(**WINDOWS, **nic)["result"] is True
    for _ in range(2):
        repeated = run(**WINDOWS, **nic)
        assert (repeated["result"], repeated["changes"]) == (True, {})
        assert "will change" not in repeated["comment"]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"os": ["windows"]}, "os .* is not a name"),
        ({"os": {"name": "windows"}}, "os .* is not a name"),
        ({"os": "win 11"}, "os 'win 11' is not a name"),
        ({"os": True}, "os: unknown 'true'"),
        ({"os": 11}, "os: unknown '11'"),
        ({"oss": "linux"}, "unknown 'oss', did you mean 'os'"),
    ],
)
def test_an_os_that_is_none(host, wrong, message):  # noqa: F811
    with pytest.raises(errors.InvalidInput, match=message):
        host.init(start=False, **wrong)
    assert (host.conn.listAllDomains(), list(host.images.iterdir())) == ([], [])


def test_what_another_program_has_set_stays(host):  # noqa: F811
    host.init(disks=[SYSTEM], clock={"timezone": "Europe/Paris"}, start=False)
    definition = stored(host.conn.lookupByName("g1"))
    definition.osinfo_id = "http://microsoft.com/win/10"
    definition.features.hyperv_spinlocks = False
    host.conn.defineXML(definition.tostring())
    host.update(os="windows")
    changed = stored(host.conn.lookupByName("g1"))
    assert (changed.osinfo_id, changed.clock.offset, changed.features.hyperv_spinlocks) == (
        "http://microsoft.com/win/10", "timezone", False,
    )  # fmt: skip
    host.update(os="win11")
    assert stored(host.conn.lookupByName("g1")).osinfo_id == "http://microsoft.com/win/11"
    host.update(os="linux")
    assert "libosinfo" not in host.conn.lookupByName("g1").XMLDesc(0)
