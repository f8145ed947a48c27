"""The description of the host with libvirt's test driver; tests/integration has real
hypervisors."""

import re
import socket

import pytest

libvirt = pytest.importorskip("libvirt")
pytest.importorskip("salt")

from salt.exceptions import CommandExecutionError

from saltvirt.pki.common import certs


def test_node_info_by_its_names(virt, conn):
    cpu, memory, cpus, mhz, nodes, sockets, cores, threads = conn.getInfo()
    assert virt["virt.node_info"]() == {
        "cpumodel": cpu, "phymemory": memory, "cpus": cpus, "cpumhz": mhz, "numanodes": nodes,
        "sockets": sockets, "cpucores": cores, "cputhreads": threads,
    }  # fmt: skip


def test_what_running_guests_leave(virt, conn):
    dom = conn.lookupByName("test")
    dom.setMemory(1024 * 1024)
    assert virt["virt.freemem"]() == 3072 - 256 - 1024
    assert virt["virt.freecpu"]() == 16 - 2
    dom.destroy()
    assert virt["virt.freemem"]() == 3072 - 256
    assert virt["virt.freecpu"]() == 16
    assert isinstance(virt["virt.freemem"](), int)


def test_an_empty_host_leaves_all(empty):
    assert empty["virt.freecpu"]() == 4
    assert empty["virt.freemem"]() == 8192 - 256


def test_capabilities(virt):
    found = virt["virt.capabilities"]()
    assert found["host"]["cpu"]["arch"] == "i686"
    assert found["guests"][0]["arch"]["domains"] == {"test": {"emulator": None, "machines": {}}}
    assert len(found["host"]["topology"]["cells"]) == 2


def test_one_bad_architecture_does_not_fail_the_call(virt):
    found = virt["virt.all_capabilities"]()
    assert found["host"] == virt["virt.capabilities"]()
    assert [entry["arch"] for entry in found["domains"]] == ["i686"]
    assert "not supported" in found["domains"][0]["error"]


def test_cpu_baseline_refuses_an_unknown_form(virt):
    with pytest.raises(CommandExecutionError, match="out must be"):
        virt["virt.cpu_baseline"](out="json")


def test_node_devices_of_the_test_driver_are_none_for_guests(virt):
    assert virt["virt.node_devices"]() == []


@pytest.mark.parametrize(
    "function", ["node_info", "freemem", "capabilities", "all_capabilities", "node_devices"]
)
def test_a_typo_is_refused_and_a_missing_daemon_named(virt, function):
    with pytest.raises(CommandExecutionError, match="unknown argument: conection"):
        virt[f"virt.{function}"](conection="test:///default")
    with pytest.raises(CommandExecutionError, match=r"cannot connect to qemu\+unix:///system"):
        virt[f"virt.{function}"](connection="qemu+unix:///system?socket=/nowhere")


@pytest.mark.parametrize(
    ("certificates", "remedy"),
    [
        (False, "; this host has no certificates: apply libvirt.keys to it"),
        (True, "; its TLS socket does not listen: apply libvirt.service to it"),
    ],
)
def test_without_certificates_or_socket_it_names_the_state(virt, tmp_path, certificates, remedy):
    if certificates:
        key = certs.new_key()
        ca = certs.self_signed(key, certs.subject("ca"), 1, certs.utcnow())
        (tmp_path / "cacert.pem").write_bytes(certs.cert_pem(ca))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        uri = f"qemu+tls://127.0.0.1:{free.getsockname()[1]}/system?pkipath={tmp_path}"
        with pytest.raises(CommandExecutionError, match=f"{re.escape(remedy)}$"):
            virt["virt.node_info"](connection=uri)


def test_the_grain_and_what_says_so(virt):
    import os

    from saltvirt.host.node import detect

    found = detect.detect(os.uname().machine)
    assert virt["virt.is_hyper"]() is found["hypervisor"]
    assert virt["virt.get_hypervisor"]() == found["type"]
    assert set(found) == {"hypervisor", "type", "daemons", "kvm", "arch"}


def test_profiles(empty):
    from tests.functional.conftest import load

    found = empty["virt.get_profiles"]()
    assert found["disk"]["default"][0]["size"] == 8192
    assert found["nic"]["default"][0]["source"] == "br0"
    configured = load(
        "test:///default", disk={"two": [{"system": {"size": 1}}, {"data": {"size": 2}}]}
    )
    found = configured["virt.get_profiles"](hypervisor="kvm")
    assert sorted(found["disk"]) == ["default", "two"]
    assert [disk["name"] for disk in found["disk"]["two"]] == ["system", "data"]
    assert {disk["format"] for disk in found["disk"]["two"]} == {"qcow2"}
    xen = configured["virt.get_profiles"](hypervisor="xen")
    assert {disk["model"] for disk in xen["disk"]["two"]} == {"xen"}


def test_a_dictionary_of_dictionaries(virt):
    found = virt["virt.nesthash"]({"a": 1})
    found["b"]["c"]["d"] = 2
    assert found == {"a": 1, "b": {"c": {"d": 2}}}
