"""Detection of hypervisors with one daemon, with modular daemons, and with socket activation."""

import os

import pytest

from saltvirt.host.node import detect

KVM = ["usr/bin/qemu-system-x86_64", "dev/kvm"]
KVM_ARM = ["usr/bin/qemu-system-aarch64", "dev/kvm"]


@pytest.fixture
def machine(tmp_path):
    def make(*files):
        for name in files:
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("control_d\n" if name == "proc/xen/capabilities" else "")
        return tmp_path

    return make


@pytest.mark.parametrize(
    ("arch", "files", "kind", "daemons"),
    [
        ("x86_64", ["usr/sbin/libvirtd", "run/libvirt/libvirt-sock", *KVM], "kvm", ["libvirtd"]),
        (
            "aarch64",
            ["usr/sbin/libvirtd", "run/libvirt/libvirt-sock", *KVM_ARM],
            "kvm",
            ["libvirtd"],
        ),
        (
            "x86_64",
            ["usr/sbin/virtqemud", "run/libvirt/virtqemud-sock", *KVM],
            "kvm",
            ["virtqemud"],
        ),
        (
            "aarch64",
            ["usr/sbin/virtqemud", "var/run/libvirt/virtqemud-sock", *KVM_ARM],
            "kvm",
            ["virtqemud"],
        ),
        (
            "x86_64",  # Enterprise Linux
            ["usr/sbin/virtqemud", "run/libvirt/virtqemud-sock", "usr/libexec/qemu-kvm", "dev/kvm"],
            "kvm",
            ["virtqemud"],
        ),
        (
            "x86_64",
            ["usr/sbin/libvirtd", "run/libvirt/libvirt-sock", "usr/bin/qemu-system-x86_64"],
            "qemu",
            ["libvirtd"],
        ),
        (
            "x86_64",
            ["usr/sbin/libvirtd", "run/libvirt/libvirt-sock", "proc/xen/capabilities"],
            "xen",
            ["libvirtd"],
        ),
        (
            "x86_64",
            ["usr/sbin/virtxend", "run/libvirt/virtxend-sock", "proc/xen/capabilities", *KVM],
            "xen",
            ["virtxend"],
        ),
        ("x86_64", ["usr/sbin/virtlxcd", "run/libvirt/virtlxcd-sock"], "lxc", ["virtlxcd"]),
        (
            "amd64",
            ["usr/local/sbin/virtbhyved", "run/libvirt/virtbhyved-sock", "dev/vmm"],
            "bhyve",
            ["virtbhyved"],
        ),
        (
            "amd64",
            ["usr/local/sbin/libvirtd", "var/run/libvirt/libvirt-sock", "dev/vmm"],
            "bhyve",
            ["libvirtd"],
        ),
        # the daemon of one kind serves no other
        (
            "x86_64",
            [
                "usr/sbin/virtlxcd",
                "run/libvirt/virtlxcd-sock",
                "dev/vmm",
                "proc/xen/capabilities",
                *KVM,
            ],
            "lxc",
            ["virtlxcd"],
        ),
    ],
)
def test_hypervisors(machine, arch, files, kind, daemons):
    found = detect.detect(arch, machine(*files))
    assert (found["hypervisor"], found["type"], found["daemons"]) == (True, kind, daemons)
    assert found["kvm"] is ("dev/kvm" in files)
    assert found["arch"] == arch


@pytest.mark.parametrize(
    "files",
    [
        [],
        KVM,  # QEMU alone
        ["usr/sbin/libvirtd", *KVM],  # installed, switched off
        ["run/libvirt/libvirt-sock", *KVM],  # what a removed package left behind
        ["usr/sbin/libvirtd", "run/libvirt/libvirt-sock"],  # nothing to run a guest with
        # another daemon than the one that drives QEMU
        ["usr/sbin/virtnetworkd", "run/libvirt/virtnetworkd-sock", *KVM],
    ],
)
def test_no_hypervisors(machine, files):
    found = detect.detect("x86_64", machine(*files))
    assert (found["hypervisor"], found["type"]) == (False, None)


def test_an_unprivileged_xen_guest_is_no_hypervisor(machine):
    """Its capabilities are there and say no control_d."""
    root = machine("usr/sbin/libvirtd", "run/libvirt/libvirt-sock", "proc/xen/capabilities")
    (root / "proc/xen/capabilities").write_text("")
    assert detect.detect("x86_64", root)["type"] is None


def test_without_a_daemon_no_kind_is_told(machine):
    found = detect.detect("x86_64", machine(*KVM, "dev/vmm", "proc/xen/capabilities"))
    assert (found["hypervisor"], found["type"], found["daemons"]) == (False, None, [])


def test_what_a_minion_may_not_look_at_is_not_there_for_it(machine):
    root = machine(*KVM, "usr/sbin/libvirtd", "run/libvirt/libvirt-sock")
    (root / "run/libvirt").chmod(0)
    nobody = os.geteuid() == 0  # root may look everywhere
    if nobody:
        os.seteuid(65534)
    try:
        found = detect.detect("x86_64", root)
    finally:
        if nobody:
            os.seteuid(0)
        (root / "run/libvirt").chmod(0o755)
    assert (found["hypervisor"], found["daemons"], found["arch"]) == (False, [], "x86_64")
