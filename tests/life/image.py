"""The small guest: Debian's kernel and busybox on a disk that boots by BIOS and by UEFI.

It boots in a few seconds on an emulated CPU. The first partition has the kernel, twice: for
syslinux, and as one EFI program with its initrd. The second one has the guest's records.
"""

import gzip
import shutil
from pathlib import Path

from tests.lab import cache, layers, packages
from tests.lab.recipe import Recipe
from tests.lab.sh import run

HERE = Path(__file__).parent
PACKAGES = ("binutils", "cpio", "dosfstools", "mtools", "syslinux", "syslinux-common",
            "systemd-boot-efi", "qemu-utils", "parted")  # fmt: skip
NAME = "small.qcow2"
START_MIB, BOOT_MIB, RECORDS_MIB = 1, 40, 2
ARGUMENTS = (
    "quiet console=ttyS0 net.ifnames=0 panic=-1 mitigations=off nokaslr audit=0 apparmor=0 "
    "cryptomgr.notests rdinit=/init"
)
MODULES = ("virtio_pci", "virtio_blk", "virtio_net", "virtio_balloon", "button", "evdev")
SYSLINUX = f"""PROMPT 0
TIMEOUT 1
DEFAULT life
LABEL life
  LINUX kernel
  INITRD initrd
  APPEND {ARGUMENTS}
"""
STUB = "/usr/lib/systemd/boot/efi/linuxx64.efi.stub"
# where the stub expects its parts, above its own sections
PARTS = (("osrel", 0x20000), ("cmdline", 0x30000), ("linux", 0x2000000), ("initrd", 0x3000000))
POWER_BUTTON = "#!/bin/sh\nsync\npoweroff -f\n"


def image(say=lambda text: None):
    """Build the small guest's image, if the cache has none, and return its path."""
    packages.ensure(say, PACKAGES)
    guest_os = layers.layers(Recipe(), say).image.parent.parent
    guest_os /= layers.keys(Recipe())["guest_os"]
    parts = [HERE / name for name in ("image.py", "init.sh", "disks.sh", "info.sh", "udhcpc.sh")]
    name = f"small-{cache.key(*parts, guest_os.name)}"
    return cache.built(name, lambda folder: build(folder, guest_os), say) / NAME


def build(folder, guest_os):
    """Make `folder`/small.qcow2. guest_os: the Debian tree that has the kernel and busybox."""
    kernel = next((guest_os / "boot").glob("vmlinuz-*"))
    initrd = make_initrd(folder, guest_os)
    program = make_program(folder, kernel, initrd)
    boot, raw = folder / "boot.img", folder / "disk.raw"
    make_boot(folder, boot, {kernel: "kernel", initrd: "initrd", program: "EFI/BOOT/BOOTX64.EFI"})
    with open(raw, "wb") as disk:
        disk.truncate((START_MIB + BOOT_MIB + RECORDS_MIB + 1) << 20)
    end_mib = START_MIB + BOOT_MIB
    run(["parted", "-s", raw, "mklabel", "msdos",
         "mkpart", "primary", "fat16", f"{START_MIB}MiB", f"{end_mib}MiB",
         "mkpart", "primary", f"{end_mib}MiB", f"{end_mib + RECORDS_MIB}MiB",
         "set", "1", "boot", "on"])  # fmt: skip
    copy(boot, raw, START_MIB << 20)
    run(["dd", "if=/usr/lib/syslinux/mbr/mbr.bin", f"of={raw}", "bs=440", "count=1",
         "conv=notrunc"])  # fmt: skip
    run(["qemu-img", "convert", "-c", "-O", "qcow2", raw, folder / NAME])
    for path in folder.iterdir():
        if path.name != NAME:
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def make_initrd(folder, guest_os):
    """Pack busybox, the modules and the scripts of the guest; the archive's path."""
    tree = folder / "tree"
    for name in ("bin", "dev", "proc", "sys", "modules", "www/cgi-bin", "etc/acpi/PWRF"):
        (tree / name).mkdir(parents=True)
    shutil.copy(guest_os / "usr/bin/busybox", tree / "bin/busybox")
    version = next((guest_os / "lib/modules").iterdir()).name
    listed = run(["chroot", guest_os, "modprobe", "-S", version, "-a", "--show-depends", *MODULES])
    words = [line.split() for line in listed.stdout.splitlines()]
    paths = list(dict.fromkeys(path for kind, path, *_ in words if kind == "insmod"))
    for path in paths:
        shutil.copy(guest_os / path.lstrip("/"), tree / "modules")
    order = "\n".join(Path(path).name for path in paths)
    (tree / "modules/order").write_text(order, encoding="ascii")
    script(tree / "init", (HERE / "init.sh").read_text())
    script(tree / "udhcpc.sh", (HERE / "udhcpc.sh").read_text())
    script(tree / "www/cgi-bin/info", (HERE / "info.sh").read_text())
    script(tree / "etc/acpi/PWRF/00000080", POWER_BUTTON)
    shutil.copy(HERE / "disks.sh", tree / "disks.sh")
    packed = run(["sh", "-c", f"cd {tree} && find . | cpio --quiet -o -H newc > ../initrd.cpio"])
    assert not packed.returncode
    archive = folder / "initrd"
    archive.write_bytes(gzip.compress((folder / "initrd.cpio").read_bytes(), 6, mtime=0))
    return archive


def script(path, text):
    """Write a program's text and make the file executable."""
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)


def make_program(folder, kernel, initrd):
    """Join kernel, initrd and arguments to one EFI program; its path."""
    files = {"osrel": folder / "osrel", "cmdline": folder / "cmdline",
             "linux": kernel, "initrd": initrd}  # fmt: skip
    files["osrel"].write_text("ID=life\nNAME=life\n", encoding="ascii")
    files["cmdline"].write_text(ARGUMENTS, encoding="ascii")
    options = [
        word for name, address in PARTS
        for word in ("--add-section", f".{name}={files[name]}",
                     "--change-section-vma", f".{name}={address:#x}")
    ]  # fmt: skip
    program = folder / "life.efi"
    run(["objcopy", *options, STUB, program])
    return program


def make_boot(folder, boot, files):
    """Make the FAT file system that both kinds of firmware read. files: source to path in it."""
    with open(boot, "wb") as image_file:
        image_file.truncate(BOOT_MIB << 20)
    hidden = (START_MIB << 20) // 512
    run(["mkfs.vfat", "-F", "16", "-n", "LIFE", "-h", hidden, boot])
    run(["syslinux", "--install", boot])
    config = folder / "syslinux.cfg"
    config.write_text(SYSLINUX, encoding="ascii")
    run(["mmd", "-i", boot, "::/EFI", "::/EFI/BOOT"])
    for source, path in {**files, config: "syslinux.cfg"}.items():
        run(["mcopy", "-i", boot, source, f"::/{path}"])


def copy(source, target, offset):
    """Copy a file's bytes into another file at an offset."""
    with open(source, "rb") as read, open(target, "r+b") as written:
        written.seek(offset)
        shutil.copyfileobj(read, written)
