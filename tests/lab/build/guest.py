"""The guest image: a small bootable Debian disk with a minion that is installed
but not configured: what a user would hand to virt.init.
"""

import os
import shutil

from tests.lab.build.debian import bootstrap
from tests.lab.sh import run

PACKAGES = (
    "systemd-sysv,udev,dbus,iproute2,linux-image-cloud-amd64,python3,ca-certificates,"
    "procps,iputils-ping,qemu-guest-agent,openssh-server,python3-venv,busybox-static,cpio"
)
SIZE_MIB = 1400
START_MIB = 1
MINION_UNIT = """\
[Unit]
Description=Salt minion
After=network-online.target
Wants=network-online.target
[Service]
Type=notify
NotifyAccess=all
KillMode=process
ExecStart=/usr/bin/salt-minion
[Install]
WantedBy=multi-user.target
"""
NETWORK = """\
[Match]
Name=eth* en*
[Network]
DHCP=ipv4
IPv6AcceptRA=no
LinkLocalAddressing=no
[DHCPv4]
UseHostname=no
"""
EXTLINUX = """\
PROMPT 0
TIMEOUT 1
DEFAULT linux
LABEL linux
  LINUX /boot/{kernel}
  INITRD /boot/initrd.lab
  APPEND {arguments}
"""
KERNEL_ARGUMENTS = (
    "root=LABEL=root rw quiet console=ttyS0 net.ifnames=0 mitigations=off nokaslr audit=0 "
    "apparmor=0 cryptomgr.notests fsck.mode=skip"
)
# An image boots on an emulated CPU in many tests, so the seconds of a boot are counted:
# what serves no guest here is not started, and what may come after the minion does.
MASKED = (
    "apt-daily.timer", "apt-daily-upgrade.timer", "dpkg-db-backup.timer", "fstrim.timer",
    "e2scrub_all.timer", "e2scrub_reap.service", "logrotate.timer", "systemd-pstore.service",
    "systemd-tmpfiles-clean.timer", "getty@tty1.service", "systemd-timesyncd.service",
    "systemd-update-utmp.service", "systemd-update-utmp-runlevel.service",
    "systemd-binfmt.service", "modprobe@drm.service", "modprobe@configfs.service",
    "modprobe@dm_mod.service", "modprobe@fuse.service", "modprobe@loop.service",
    "modprobe@efi_pstore.service", "kmod-static-nodes.service", "systemd-modules-load.service",
    "systemd-sysctl.service", "systemd-sysusers.service", "systemd-random-seed.service",
    "systemd-journal-flush.service", "systemd-hwdb-update.service", "systemd-repart.service",
    "sys-kernel-debug.mount", "sys-kernel-tracing.mount", "sys-kernel-config.mount",
    "sys-fs-fuse-connections.mount", "dev-hugepages.mount", "dev-mqueue.mount",
    "proc-sys-fs-binfmt_misc.automount", "systemd-remount-fs.service", "console-setup.service",
    "keyboard-setup.service",
)  # fmt: skip
AFTER_THE_MINION = ("systemd-logind.service", "serial-getty@.service")
# udev looks at what a guest needs; a device that is plugged in later is seen as always
UDEV_TRIGGER = """\
[Service]
ExecStart=
ExecStart=-udevadm trigger --action=add --subsystem-match=net --subsystem-match=block \
--subsystem-match=virtio-ports --subsystem-match=input
ExecStart=-udevadm trigger --action=add /sys/class/tty/ttyS0
"""
JOURNAL = "[Journal]\nStorage=volatile\n"
# a guest is emulated, and others may have the CPU: after 90 s its systemd gives a service or a
# device up, and starts what waits for it never again
PATIENCE = "[Manager]\nDefaultTimeoutStartSec=30min\nDefaultDeviceTimeoutSec=30min\n"
MINION_SPEED = "enable_fqdns_grains: False\nenable_gpu_grains: False\n"
# modules of the initrd: for a virtio disk, network, agent channel, memory balloon and the power
# button always, for other disks when there is no virtio disk
FIRST = (
    "virtio_pci", "virtio_blk", "ext4", "virtio_net", "virtio_console", "virtio_balloon", "button",
    "evdev",
)  # fmt: skip
SECOND = ("virtio_scsi", "ata_piix", "sd_mod")
INIT = """\
#!/busybox sh
/busybox mount -t devtmpfs dev /dev
for module in $(/busybox cat /first); do /busybox insmod /modules/$module; done
disk() { for name in vda1 sda1; do [ -b /dev/$name ] && root=/dev/$name && return 0; done; false; }
disk || for module in $(/busybox cat /second); do /busybox insmod /modules/$module; done
tries=0
until disk; do
    tries=$((tries + 1)); [ $tries -gt 100 ] && echo "no disk to boot from" && /busybox sh
    /busybox usleep 100000
done
/busybox mount -t ext4 $root /root || /busybox sh
/busybox mount --move /dev /root/dev
exec /busybox switch_root /root /sbin/init
"""


def build_os(root):
    """Fill `root` with the guest's operating system, without Salt."""
    bootstrap(root, "bookworm", PACKAGES)
    initrd(root)
    units = root / "etc/systemd/system"
    wants = units / "multi-user.target.wants"
    wants.mkdir(exist_ok=True)
    (units / "salt-minion.service").write_text(MINION_UNIT)
    (wants / "salt-minion.service").symlink_to("../salt-minion.service")
    run(["chroot", root, "systemctl", "-q", "enable", "systemd-networkd.service"])
    for name in MASKED:
        (units / name).unlink(missing_ok=True)
        (units / name).symlink_to("/dev/null")
    for name in AFTER_THE_MINION:
        write(units / f"{name}.d/lab.conf", "[Unit]\nAfter=salt-minion.service\n")
    write(units / "systemd-udev-trigger.service.d/lab.conf", UDEV_TRIGGER)
    write(root / "etc/systemd/journald.conf.d/lab.conf", JOURNAL)
    write(root / "etc/systemd/system.conf.d/lab.conf", PATIENCE)
    write(root / "etc/salt/minion.d/speed.conf", MINION_SPEED)
    (root / "etc/systemd/network/10-dhcp.network").write_text(NETWORK)
    (root / "etc/fstab").write_text("LABEL=root / ext4 defaults 0 0\n")
    (root / "etc/hostname").write_text("debian\n")
    (root / "etc/hosts").write_text("127.0.0.1 localhost\n")
    (root / "etc/machine-id").write_text("")
    (root / "etc/resolv.conf").unlink(missing_ok=True)
    (root / "etc/resolv.conf").write_text("nameserver 10.77.0.1\n")
    (root / "etc/salt/pki").mkdir()
    run(["chroot", root, "sh", "-c", "echo root:salt | chpasswd"])
    run(["chroot", root, "systemctl", "-q", "disable", "ssh.service"])
    boot_loader(root)
    for folder in ("var/cache/apt", "var/lib/apt/lists", "usr/share/locale"):
        shutil.rmtree(root / folder, ignore_errors=True)


def write(path, text):
    """Write a file, and the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def initrd(root):
    """Make /boot/initrd.lab: a few modules and a shell, a second faster than Debian's."""
    version = next((root / "lib/modules").iterdir()).name
    tree = root / "tmp/initrd"
    for name in ("modules", "dev", "root"):
        (tree / name).mkdir(parents=True)
    shutil.copy(root / "usr/bin/busybox", tree / "busybox")
    loaded = set()
    for name, wanted in (("first", FIRST), ("second", SECOND)):
        asked = ["chroot", root, "modprobe", "-S", version, "-a", "--show-depends", *wanted]
        lines = [line.split() for line in run(asked).stdout.splitlines()]
        paths = [line[1] for line in lines if line[0] == "insmod" and line[1] not in loaded]
        paths = list(dict.fromkeys(paths))
        loaded.update(paths)
        for path in paths:
            shutil.copy(root / path.lstrip("/"), tree / "modules")
        (tree / name).write_text("\n".join(path.rpartition("/")[2] for path in paths))
    (tree / "init").write_text(INIT)
    (tree / "init").chmod(0o755)
    # compressed, for the boot loader cannot read a file with holes
    pack = "cd /tmp/initrd && find . | cpio -o -H newc --quiet | gzip > /boot/initrd.lab"
    run(["chroot", root, "sh", "-c", pack])
    shutil.rmtree(tree)


def boot_loader(root):
    """Write extlinux's configuration for the kernel that is installed."""
    kernel = next((root / "boot").glob("vmlinuz-*")).name
    for unused in (root / "boot").glob("initrd.img-*"):
        unused.unlink()
    (root / "boot/extlinux").mkdir()
    text = EXTLINUX.format(kernel=kernel, arguments=KERNEL_ARGUMENTS)
    (root / "boot/extlinux/extlinux.conf").write_text(text)


def build(folder, guest_os, salt):
    """Make `folder`/debian.qcow2, and layers that show it to the machines of a lab."""
    raw, tree, work, upper = (folder / n for n in ("disk.raw", "tree", "work", "upper"))
    for made in (tree, work, upper):
        made.mkdir()
    options = f"lowerdir={salt / 'layer'}:{guest_os},upperdir={upper},workdir={work}"
    run(["mount", "-t", "overlay", "overlay", "-o", options, tree])
    try:
        for name in ("salt-minion", "salt-call"):
            (tree / "usr/bin" / name).symlink_to(f"/opt/salt/bin/{name}")
        write_disk(tree, raw)
    finally:
        run(["umount", tree])
    image = folder / "debian.qcow2"
    run(["qemu-img", "convert", "-c", "-O", "qcow2", raw, image])
    run(["rm", "-rf", raw, tree, work, upper])
    for layer, place in (("master", "srv/salt"), ("hypervisor", "var/lib/libvirt/images")):
        (folder / layer / place).mkdir(parents=True)
        (folder / layer / place).chmod(0o755 if layer == "master" else 0o711)
        os.link(image, folder / layer / place / image.name)


def write_disk(tree, raw):
    """One bootable ext4 partition; mke2fs fills it from the folder, without a mount."""
    with open(raw, "wb") as disk:
        disk.truncate(SIZE_MIB << 20)
    run(["parted", "-s", raw, "mklabel", "msdos", "mkpart", "primary", "ext4",
         f"{START_MIB}MiB", "100%", "set", "1", "boot", "on"])  # fmt: skip
    run(["dd", "if=/usr/lib/EXTLINUX/mbr.bin", f"of={raw}", "bs=440", "count=1", "conv=notrunc"])
    run(["mke2fs", "-q", "-F", "-t", "ext4", "-L", "root", "-O", "^64bit,^metadata_csum",
         "-d", tree, "-E", f"offset={START_MIB << 20}", raw,
         f"{SIZE_MIB - START_MIB}M"])  # fmt: skip
    loop = run(["losetup", "-o", START_MIB << 20, "--show", "-f", raw]).stdout.strip()
    point = raw.parent / "mnt"
    point.mkdir()
    try:
        run(["mount", loop, point])
        try:
            run(["extlinux", "--install", point / "boot/extlinux"])
        finally:
            run(["umount", point])
    finally:
        run(["losetup", "-d", loop])
        point.rmdir()
