"""The tutorial as an operator types it on the master. ``make demo`` shows it,
tests/integration/test_tutorial.py checks its outputs, and README.md prints it."""

from dataclasses import dataclass

IMAGE = "/var/lib/libvirt/images/debian.qcow2"


@dataclass(frozen=True)
class Step:
    """title: what it is about. commands: typed on the master, in this order."""

    title: str
    commands: tuple


STEPS = (
    Step(
        "Modules, states and runners come to the master and to the hosts by sync",
        (
            "salt-run saltutil.sync_all",
            "salt-run salt.cmd cp.cache_dir salt://libvirt",
            "salt 'hv*' saltutil.sync_all",
        ),
    ),
    Step(
        "The formula makes hypervisors of them: libvirt, certificates, the TLS socket, br0",
        ("salt 'hv*' state.apply libvirt",),
    ),
    Step("A second time there is nothing to do", ("salt 'hv*' state.apply libvirt",)),
    Step(
        "Each host talks to the other's libvirt over mutual TLS",
        ("salt hv1 cmd.run 'virsh -c qemu+tls://hv2/system hostname'",),
    ),
    Step("What the hosts have, and what of it is free", ("salt-run virt.host_info",)),
    Step("The guests so far", ("salt-run virt.list",)),
    Step(
        "Deploy: a host is chosen, the image copied and seeded, the guest started",
        ("salt-run virt.init centos1 2 512 salt://debian.qcow2 enable_vnc=True",),
    ),
    Step("The guest answers, from inside", ("salt centos1 test.ping",)),
    Step("What runs where", ("salt-run virt.query",)),
    Step(
        "Live migration over TLS, without shared storage; the guest has not rebooted",
        (
            "salt centos1 cmd.run 'cat /proc/sys/kernel/random/boot_id'",
            "salt-run virt.migrate centos1 hv2",
            "salt centos1 test.ping",
            "salt centos1 cmd.run 'cat /proc/sys/kernel/random/boot_id'",
        ),
    ),
    Step(
        "On one hypervisor directly: a copy of an image, and an overlay over it",
        (
            f"salt hv1 cp.get_file salt://debian.qcow2 {IMAGE}",
            f"salt hv1 virt.init centos2 1 512 image={IMAGE} seed=False start=False",
            f"salt hv1 virt.init centos3 1 512 image={IMAGE} seed=False start=False "
            "enable_qcow=True",
        ),
    ),
    Step(
        "By name, wherever the guest runs",
        (
            "salt-run virt.pause centos1",
            "salt-run virt.resume centos1",
            "salt-run virt.reset centos1",
            "salt-run virt.force_off centos1",
            "salt-run virt.start centos1",
            "salt-run virt.vm_info centos1",
            "salt-run virt.next_host",
        ),
    ),
    Step(
        "Purge removes a guest's own disks and its key, and nothing else",
        (
            "salt-run virt.purge centos2 force=True",
            "salt-run virt.purge centos3",
            "salt-run virt.list",
        ),
    ),
)

# after the tutorial, make demo types these commands to fill the cloud
SHOWCASE = (
    'salt-run virt.deployed "$(cat /srv/showcase.json)" deployment=shop '
    "defaults='{image: salt://debian.qcow2, enable_qcow: True}'",
    "salt-run virt.label web1 '[web, production]'",
    "salt-run virt.label web2 '[web, production]'",
    "salt-run virt.set_owner db1 demo",
    "salt-run virt.shutdown centos1 timeout=300",
    "salt-run virt.snapshot centos1 before-update",
    "salt-run virt.start centos1",
    "salt-run virt.backup db1",
    "salt-run virt.backups",
    "salt-run virt.query",
)
