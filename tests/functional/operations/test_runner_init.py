"""Every parameter of a host's ``virt.init`` passes through the runner and reaches the domain."""

import inspect
from xml.etree import ElementTree

import pytest

libvirt = pytest.importorskip("libvirt")
pytest.importorskip("salt")

from saltvirt import errors
from saltvirt.fleet import answer
from saltvirt.operations.create import wait
from saltvirt.operations.create.init import Init
from saltvirt.operations.create.request import InitRequest
from saltvirt.placement import policy
from saltvirt.spec import guest
from tests.clock import Clock
from tests.functional.cloud import Fleet
from tests.functional.conftest import load_with_folders
from tests.functional.host.provision.test_init import image, info  # noqa: F401

ROOMY = policy.PlacementPolicy(memory_ratio=10, reserved_memory_kib=0, reserved_disk_bytes=0)

# parameter: (its value, XPath in the domain, text or attribute value there)
REACHES = {
    "cpu": ({"maximum": 2, "model": "Westmere"}, "cpu/model", "Westmere"),
    "mem": ({"boot": 64, "current": 32}, "currentMemory", "32768"),
    "nic": ("lan", "devices/interface/source/@network", "default"),
    "nic_profile": ("lan", "devices/interface/source/@network", "default"),
    "interfaces": (
        [{"name": "e", "network": "default", "model": "e1000"}],
        "devices/interface/model/@type", "e1000",
    ),
    "disk": ("two", "devices/disk[2]/target/@dev", "vdb"),
    "disk_profile": ("two", "devices/disk[2]/target/@dev", "vdb"),
    "disks": (
        [{"name": "d", "size": 4, "model": "scsi", "cache": "none"}],
        "devices/disk[2]/target/@bus", "scsi",
    ),
    "image": ("IMAGE", "metadata/*/*[1]", "IMAGE"),
    "graphics": ({"type": "vnc", "listen": "10.0.0.1"}, "devices/graphics/@listen", "10.0.0.1"),
    "enable_vnc": (True, "devices/graphics/@type", "vnc"),
    "serial_type": ("pty", "devices/serial/@type", "pty"),
    "serials": ([{"type": "pty"}], "devices/serial/@type", "pty"),
    "consoles": ([{"type": "pty"}], "devices/console/@type", "pty"),
    "boot": ({"kernel": "/boot/k", "cmdline": "quiet"}, "os/cmdline", "quiet"),
    "boot_dev": ("network hd", "os/boot/@dev", "network"),
    "os_type": ("hvm", "os/type", "hvm"),
    "arch": ("i686", "os/type/@arch", "i686"),
    "hypervisor": ("test", "@type", "test"),
    "vm_type": ("test", "@type", "test"),
    "hypervisor_type": ("test", "@type", "test"),
    "numatune": ({"memory": {"mode": "strict", "nodeset": "0"}}, "numatune/memory/@mode", "strict"),
    "hypervisor_features": (
        {"kvm-hint-dedicated": True}, "features/kvm/hint-dedicated/@state", "on"
    ),
    "kvm_hidden": (True, "features/kvm/hidden/@state", "on"),
    "clock": ({"utc": False}, "clock/@offset", "localtime"),
    "on_poweroff": ("destroy", "on_poweroff", "destroy"),
    "on_reboot": ("destroy", "on_reboot", "destroy"),
    "on_crash": ("preserve", "on_crash", "preserve"),
    "stop_on_reboot": (True, "on_reboot", "destroy"),
    "os": ("linux", "metadata/*/{https://saltproject.io/xmlns/salt-virt/1}os", "linux"),
    "title": ("The web", "title", "The web"),
    "description": ("It serves", "description", "It serves"),
    "metadata": ({"owner": "me"}, "metadata/*/*[@key='owner']", "me"),
    "rng": ({"model": "virtio"}, "devices/rng/@model", "virtio"),
    "tpm": ({"model": "tpm-tis"}, "devices/tpm/@model", "tpm-tis"),
    "watchdog": ({"model": "i6300esb"}, "devices/watchdog/@model", "i6300esb"),
    "memballoon": ("none", "devices/memballoon/@model", "none"),
    "groups": (["web", "eu"], "metadata/*/*[@key='groups']", "web eu"),
}  # fmt: skip
# who makes, fetches, seeds or starts the guest gets these; or they take QEMU or a device to show
DELIVERED = {
    "approve_key", "autosign_grains", "autostart", "config", "enable_qcow", "grains",
    "guest_agent", "host_devices", "inputs",
    "image_hash", "install", "machine", "overlay", "pcie_ports", "pillar", "priv_key",
    "filesystems", "iommu", "panic", "scsi_controller", "sound", "sysinfo", "video", "vsock",
    "pub_key", "saltenv", "seed", "seed_cmd", "start", "startup_states", "user_data",
}  # fmt: skip

# what is done, and by whose leave, not what the guest is
OF_THE_CALL = {"definition", "from_master", "overcommit", "placement", "test", "unless_moved"}


@pytest.fixture
def runner(conn, tmp_path):
    """(the fleet, a function that runs the runner's init as the adapter does)."""
    modules = load_with_folders(
        tmp_path,
        nic={"lan": {"eth0": {"network": "default"}}, "default": {}},
        disk={"default": [{"a": {"size": 16}}], "two": [{"a": {"size": 16}}, {"b": {"size": 4}}]},
    )
    fleet = Fleet(modules, tmp_path)

    def init(name="web1", **given):
        told = {"cpu": 1, "mem": 64, "image": None, "hypervisor": "test", "start": False, **given}
        first = {k: told.pop(k) for k in ("cpu", "mem", "image", "hypervisor", "start")}
        placing = {k: told.pop(k) for k in ("groups", "labels", "prefer") if k in told}
        arguments = {"seed": False, **told}
        wanted = InitRequest(name, **first, **placing, arguments=arguments)
        return Init(fleet, ROOMY, wanted, fleet.report(name, "init")).run()

    return fleet, init


def test_no_parameter_is_forgotten():
    from tests.functional.conftest import load

    signature = inspect.signature(load("test:///default")["virt.init"]).parameters
    known = {*guest.arguments(), *signature} - {"name", "kwargs"} - OF_THE_CALL
    assert known == (set(REACHES) - {"groups"}) | DELIVERED


@pytest.mark.parametrize("parameter", REACHES)
def test_it_reaches_the_domain(runner, conn, image, parameter):  # noqa: F811
    _, init = runner
    value, path, wanted = REACHES[parameter]
    given = {parameter: image if value == "IMAGE" else value}
    if parameter in ("vm_type", "hypervisor_type"):
        given["hypervisor"] = "kvm"
    init(**given)
    root = ElementTree.fromstring(conn.lookupByName("web1").XMLDesc())
    element, _, attribute = path.rpartition("/@") if "/@" in path else (path, "", "")
    if path.startswith("@"):
        found = root.get(path[1:])
    else:
        node = root.find(element)
        assert node is not None, f"no {element}"
        found = node.get(attribute) if attribute else node.text
    assert found == (image if wanted == "IMAGE" else wanted)


@pytest.mark.parametrize("parameter", sorted(DELIVERED - {"start"}))
def test_it_is_delivered_to_the_host(parameter):
    given = "cloud-init" if parameter == "seed" else "as given"
    wanted = InitRequest("web1", 1, 64, "/a", arguments={parameter: given})
    expected = True if parameter == "approve_key" else given
    assert wanted.host_request().to_answer()[parameter] == expected


def test_a_thin_overlay_is_asked_for(runner, image):  # noqa: F811
    _, init = runner
    placed = init(image=image, enable_qcow=True, disk=None, disks=[{"name": "a"}])
    assert info(placed.changes["created"]["disks"][0]["path"])["backing-filename"] == image


def test_what_may_be_secret_is_told_to_the_chosen_host_only():
    secret = {"priv_key": "-----", "config": {"token": "x"}, "user_data": "password: x"}
    wanted = InitRequest("web1", 1, 64, "/a", arguments={**secret, "disk": "big"})
    assert secret.items() <= wanted.host_request().to_answer().items()
    assert not set(secret) & set(wanted.sizing_arguments())
    assert wanted.sizing_arguments()["disk"] == "big"


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"nicc": "lan"}, "web1: argument: unknown 'nicc', did you mean 'nic'?"),
        ({"disk": "big"}, "web1: disk profile: unknown 'big'; known: default, two"),
        ({"cpu": -1}, "cpu -1 is not a positive whole number"),
        ({"mem": "lots"}, "mem"),
        ({"labels": "rack=a"}, "labels: give a dictionary of labels"),
        ({"labels": {"rack": "a"}}, "hv1: lacks the label rack"),
        ({"image": "/no/such"}, "web1: image /no/such does not exist on this host"),
        ({"interfaces": [{"name": "e", "bridge": "br7"}]}, "hv1: has no bridge br7"),
    ],
)
def test_a_slip_is_one_line_and_nothing_is_asked_of_a_host_but_facts(runner, given, why):
    fleet, init = runner
    with pytest.raises(errors.VirtError) as caught:
        init(**given)
    assert why in caught.value.text
    assert "\n" not in caught.value.text
    assert {fun for fun, _ in fleet.asked} <= {"virt.inventory"}


def test_what_a_host_made_whose_answer_was_lost_is_there_and_stays(runner, conn, monkeypatch):
    fleet, init = runner
    gather = fleet.gather

    def losing(hosts, fun, kwarg=None, **options):
        found = gather(hosts, fun, kwarg, **options)
        return {"hv1": answer.lost("hv1")} if fun == "virt.init" else found

    monkeypatch.setattr(fleet, "gather", losing)
    assert init().details["state"] == "shutdown"
    assert "virt.purge" not in [fun for fun, _ in fleet.asked]
    assert "web1" in [dom.name() for dom in conn.listAllDomains()]


def test_the_guest_of_another_made_meanwhile_stays_and_is_not_taken(runner, conn, monkeypatch):
    fleet, init = runner
    gather = fleet.gather

    def losing(hosts, fun, kwarg=None, **options):
        if fun != "virt.init":
            return gather(hosts, fun, kwarg, **options)
        gather(hosts, fun, {**kwarg, "metadata": {"operation": "another master's"}}, **options)
        return {"hv1": answer.lost("hv1")}

    monkeypatch.setattr(fleet, "gather", losing)
    with pytest.raises(errors.AlreadyExists, match="created by another operation"):
        init()
    assert "virt.purge" not in [fun for fun, _ in fleet.asked]
    assert "web1" in [dom.name() for dom in conn.listAllDomains()]


def test_no_host_but_the_chosen_one_is_told_the_mark_of_the_operation():
    wanted = InitRequest("web1", 1, 64, "/a", arguments={"metadata": {"owner": "me"}})
    assert wanted.host_request().to_answer()["metadata"] == {
        "owner": "me",
        "operation": wanted.operation,
    }
    assert wanted.operation not in str(wanted.sizing_arguments())
    assert wanted.operation != InitRequest("web1", 1, 64, "/a").operation


@pytest.fixture
def waiting(runner, monkeypatch):
    """A function that makes a guest, starts it and waits for it, in the time of the test."""
    fleet, _ = runner
    clock = Clock()
    fleet.now = clock.monotonic
    monkeypatch.setattr(wait, "time", clock)

    def init(kind):
        nics = [{"name": "e", "network": "default"}]
        wanted = InitRequest(
            "web1", 1, 64, None, "test", wait_for=kind, wait_s=10,
            arguments={"seed": False, "disk": None, "interfaces": nics},
        )  # fmt: skip
        return Init(fleet, ROOMY, wanted, fleet.report("web1", "init")).run()

    return init


def test_a_guest_is_waited_for_until_somebody_knows_its_address(waiting, conn):
    assert waiting("address").details == {"host": "hv1", "state": "running"}
    assert conn.lookupByName("web1").isActive()


def test_a_guest_whose_agent_never_answers_stays_and_is_said(waiting, conn):
    with pytest.raises(errors.OperationFailed) as raised:
        waiting("agent")
    assert raised.value.text == ("web1 runs on hv1, but its agent did not answer within 10 s")
    assert conn.lookupByName("web1").isActive()
