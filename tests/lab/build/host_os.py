"""The root file system that the master and the hypervisors share, without Salt."""

import re
import shutil

from tests.lab.build.debian import bootstrap
from tests.lab.sh import run

PACKAGES = (
    "systemd,systemd-sysv,dbus,udev,iproute2,iptables,nftables,procps,kmod,socat,openssl,"
    "libvirt-daemon-system,libvirt-daemon-driver-qemu,libvirt-clients,"
    "libvirt-daemon-driver-storage-rbd,libvirt-daemon-driver-storage-iscsi-direct,"
    "qemu-system-x86,qemu-utils,qemu-block-extra,ovmf,swtpm,swtpm-tools,gnutls-bin,"
    "python3-libnbd,dnsmasq-base,lvm2,xfsprogs,btrfs-progs,e2fsprogs,dosfstools,parted,fdisk,gdisk,"
    "openssh-server,openssh-client,git,fuse3,xorriso,"
    "guestfs-tools,libguestfs-tools,linux-image-cloud-amd64,"
    "python3,python3-venv,ca-certificates,iputils-ping"
)
# in Debian 13 each of libvirt's storage back ends is a package, and QEMU's spice, too
MORE_13 = ",qemu-system-modules-spice" + "".join(
    f",libvirt-daemon-driver-{name}"
    for name in ("interface", *(f"storage-{kind}" for kind in
                                ("disk", "iscsi", "logical", "mpath", "scsi")))
)  # fmt: skip

MASTER_UNIT = """\
[Unit]
Description=Salt master
After=network.target
[Service]
Type=notify
NotifyAccess=all
ExecStart=/opt/salt/bin/salt-master
LimitNOFILE=100000
[Install]
WantedBy=multi-user.target
"""
MINION_UNIT = """\
[Unit]
Description=Salt minion
After=network.target libvirtd.service
[Service]
Type=notify
NotifyAccess=all
KillMode=process
ExecStart=/opt/salt/bin/salt-minion
[Install]
WantedBy=multi-user.target
"""
DNSMASQ_UNIT = """\
[Unit]
Description=DHCP and names for the guests of the lab
[Service]
ExecStart=/usr/sbin/dnsmasq --keep-in-foreground --conf-file=/etc/lab-dnsmasq.conf
[Install]
WantedBy=multi-user.target
"""
# no cgroup tree is writable in a machine; everything else is as Debian ships it
QEMU_CONF = "\ncgroup_controllers = []\n"
# no udev runs in a machine, so device-mapper (where the kernel has it) must not wait for it
LVM = {"udev_sync": "0", "udev_rules": "0", "obtain_device_list_from_udev": "0"}
# libvirt's own back end of libguestfs would need a libvirtd of its own for root
MANAGER_CONF = """\
[Manager]
DefaultEnvironment=LIBGUESTFS_BACKEND=direct
DefaultTimeoutStopSec=10s
"""
NOT_IN_A_LAB = (
    "apt-daily.timer", "apt-daily-upgrade.timer", "dpkg-db-backup.timer", "fstrim.timer",
    "e2scrub_all.timer", "e2scrub_reap.service", "systemd-resolved.service", "ssh.service",
    "ssh.socket", "getty@tty1.service", "console-getty.service", "libvirt-guests.service",
    "lvm2-monitor.service", "lvm2-lvmpolld.socket", "dm-event.socket", "systemd-timesyncd.service",
    "systemd-pcrlock-make-policy.service",
)  # fmt: skip
LOOP_DEVICES = 64


def build(root, recipe):
    """Fill the folder `root` with the operating system of a lab machine."""
    sources = ()
    packages = PACKAGES
    if recipe.debian == "13":
        # Salt's venv has Python 3.11 everywhere, as Salt's own packages bring their Python
        sources = ("bookworm",)
        packages += ",python3.11" + MORE_13
    bootstrap(root, recipe.suite, packages, sources)
    units = root / "etc/systemd/system"
    (units / "salt-master.service").write_text(MASTER_UNIT)
    (units / "salt-minion.service").write_text(MINION_UNIT)
    (units / "lab-dnsmasq.service").write_text(DNSMASQ_UNIT)
    for name in NOT_IN_A_LAB:
        (units / name).unlink(missing_ok=True)
        (units / name).symlink_to("/dev/null")
    with open(root / "etc/libvirt/qemu.conf", "a", encoding="utf-8") as conf:
        conf.write(QEMU_CONF)
    lvm_without_udev(root / "etc/lvm/lvm.conf")
    (units.parent / "system.conf.d").mkdir(exist_ok=True)
    (units.parent / "system.conf.d/lab.conf").write_text(MANAGER_CONF)
    (root / "etc/tmpfiles.d/lab-loop.conf").write_text(
        "".join(f"b! /dev/loop{n} 0660 root disk - 7:{n}\n" for n in range(LOOP_DEVICES))
    )
    shutil.rmtree(root / "var/lib/apt/lists", ignore_errors=True)
    (root / "etc/machine-id").unlink(missing_ok=True)
    libguestfs_appliance(root)


def lvm_without_udev(path):
    """Set LVM's switches in lvm.conf, where they stand commented out."""
    text = path.read_text()
    for name, value in LVM.items():
        text = re.sub(rf"^(\s*)(# )?{name} = .*$", rf"\1{name} = {value}", text, flags=re.MULTILINE)
    path.write_text(text)


def libguestfs_appliance(root):
    """Run libguestfs once: it keeps what it makes at its first use, and later ones are quick."""
    run(["mount", "-t", "proc", "proc", root / "proc"])
    try:
        env = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LIBGUESTFS_BACKEND": "direct"}
        run(["chroot", root, "guestfish", "-a", "/dev/null", "run"], env=env)
    finally:
        run(["umount", root / "proc"])
