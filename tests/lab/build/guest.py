"""The guest image: a small bootable Debian disk with a minion that is installed
but not configured: what a user would hand to virt.init.
"""

import os
import shutil

from tests.lab.build.debian import bootstrap
from tests.lab.sh import run

PACKAGES = (
    "systemd-sysv,udev,dbus,iproute2,linux-image-cloud-amd64,python3,ca-certificates,"
    "procps,iputils-ping,qemu-guest-agent,openssh-server,python3-venv"
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
  INITRD /boot/{initrd}
  APPEND root=/dev/vda1 rootfstype=ext4 rw quiet console=ttyS0 net.ifnames=0
"""
# what costs seconds of boot under emulation and serves no guest here
MASKED = (
    "apt-daily.timer", "apt-daily-upgrade.timer", "dpkg-db-backup.timer", "fstrim.timer",
    "e2scrub_all.timer", "e2scrub_reap.service", "systemd-pstore.service", "getty@tty1.service",
    "systemd-timesyncd.service", "systemd-update-utmp.service", "systemd-binfmt.service",
    "modprobe@drm.service", "sys-kernel-debug.mount", "sys-kernel-tracing.mount",
    "dev-hugepages.mount", "dev-mqueue.mount", "systemd-hwdb-update.service",
)  # fmt: skip
MODULES = "virtio_pci\nvirtio_blk\next4\n"
INITRD = "MODULES=list\nCOMPRESS=zstd\nCOMPRESSLEVEL=3\nBUSYBOX=n\nFSTYPE=ext4\n"


def build_os(root):
    """Fill `root` with the guest's operating system, without Salt."""
    bootstrap(root, "bookworm", PACKAGES)
    (root / "etc/initramfs-tools/modules").write_text(MODULES)
    (root / "etc/initramfs-tools/conf.d/lab").write_text(INITRD)
    run(["chroot", root, "update-initramfs", "-u"])
    units = root / "etc/systemd/system"
    wants = units / "multi-user.target.wants"
    wants.mkdir(exist_ok=True)
    (units / "salt-minion.service").write_text(MINION_UNIT)
    (wants / "salt-minion.service").symlink_to("../salt-minion.service")
    run(["chroot", root, "systemctl", "-q", "enable", "systemd-networkd.service"])
    for name in MASKED:
        (units / name).unlink(missing_ok=True)
        (units / name).symlink_to("/dev/null")
    (root / "etc/systemd/network/10-dhcp.network").write_text(NETWORK)
    (root / "etc/fstab").write_text("/dev/vda1 / ext4 defaults 0 1\n")
    (root / "etc/hostname").write_text("debian\n")
    (root / "etc/hosts").write_text("127.0.0.1 localhost\n")
    (root / "etc/machine-id").write_text("")
    (root / "etc/resolv.conf").unlink(missing_ok=True)
    (root / "etc/resolv.conf").write_text("nameserver 10.77.0.1\n")
    (root / "etc/salt").mkdir()
    for name in ("minion.d", "pki"):
        (root / "etc/salt" / name).mkdir()
    run(["chroot", root, "sh", "-c", "echo root:salt | chpasswd"])
    run(["chroot", root, "systemctl", "-q", "disable", "ssh.service"])
    boot_loader(root)
    for folder in ("var/cache/apt", "var/lib/apt/lists", "usr/share/locale"):
        shutil.rmtree(root / folder, ignore_errors=True)


def boot_loader(root):
    """Write extlinux's configuration for the kernel that is installed."""
    kernel, initrd = (next((root / "boot").glob(p)).name for p in ("vmlinuz-*", "initrd.img-*"))
    (root / "boot/extlinux").mkdir()
    text = EXTLINUX.format(kernel=kernel, initrd=initrd)
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
