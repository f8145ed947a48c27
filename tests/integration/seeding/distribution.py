"""A distribution's cloud image, made of Debian's own packages, and what its guests install from.

It is what Debian's `generic` image is where a guest's first boot is concerned: Debian's kernel and
initrd, cloud-init with Debian's configuration, netplan and systemd-resolved, nobody's password, and
no minion. Its boot loader is extlinux, and its apt knows the repository of the lab alone.
"""

import shutil

from tests.integration.seeding import images
from tests.lab import cache, layers
from tests.lab.build import empty_os, guest
from tests.lab.build.debian import bootstrap
from tests.lab.sh import run

NAME = "debian-12-generic-amd64.qcow2"
PORT = 8000
PACKAGES = (
    "systemd-sysv,udev,dbus,libpam-systemd,systemd-resolved,libnss-resolve,netplan.io,iproute2,"
    "linux-image-cloud-amd64,initramfs-tools,zstd,cloud-init,cloud-guest-utils,fdisk,e2fsprogs,"
    "ca-certificates,openssh-server,sudo,procps,pciutils,iputils-ping,curl,wget,less,python3"
)
EXTLINUX = """\
PROMPT 0
TIMEOUT 1
DEFAULT linux
LABEL linux
  LINUX /boot/{kernel}
  INITRD /boot/{initrd}
  APPEND root=LABEL=root ro console=tty0 console=ttyS0,115200 consoleblank=0
"""
SOURCE = "deb [trusted=yes] http://{master}:{port}/apt ./\n"
# else cloud-init writes Debian's mirrors there, to which a lab has no way
KEEP_SOURCES = "apt: {preserve_sources_list: true}\n"
CONTROL = """\
Package: salt-minion
Version: {version}
Architecture: amd64
Maintainer: the lab <root@localhost>
Depends: python3
Description: Salt's minion, as a package that brings a Python of its own
"""
POST_INSTALLATION = """\
#!/bin/sh
set -e
systemctl daemon-reload
systemctl enable salt-minion.service
systemctl start salt-minion.service
"""
CONFIGURATION = "# a minion that nobody has configured yet\n"


def build(folder, recipe, master):
    """Fill `folder` with `web`: the image with its hashes, and the repository `apt`."""
    web = folder / "web"
    (web / "apt").mkdir(parents=True)
    _image(folder, web / NAME, master)
    sums = run(["sha512sum", NAME], cwd=web).stdout
    (web / "SHA512SUMS").write_text(sums)
    package = _package(folder, web / "apt", recipe)
    (web / "apt/Packages").write_text(empty_os.entry(package), encoding="utf-8")


def _image(folder, image, master):
    tree, raw = folder / "tree", folder / "disk.raw"
    tree.mkdir()
    bootstrap(tree, "bookworm", PACKAGES)
    kernel, initrd = (next((tree / "boot").glob(f"{n}-*")).name for n in ("vmlinuz", "initrd.img"))
    guest.write(tree / "boot/extlinux/extlinux.conf", EXTLINUX.format(kernel=kernel, initrd=initrd))
    guest.write(tree / "etc/fstab", "LABEL=root / ext4 rw,errors=remount-ro 0 1\n")
    guest.write(tree / "etc/apt/sources.list", SOURCE.format(master=master, port=PORT))
    guest.write(tree / "etc/cloud/cloud.cfg.d/99_lab.cfg", KEEP_SOURCES)
    guest.write(tree / "etc/machine-id", "")
    guest.write(tree / "etc/hostname", "localhost\n")
    (tree / "etc/resolv.conf").unlink(missing_ok=True)
    (tree / "etc/resolv.conf").symlink_to("../run/systemd/resolve/stub-resolv.conf")
    for unused in ("var/cache/apt", "var/lib/apt/lists"):
        shutil.rmtree(tree / unused, ignore_errors=True)
    guest.write_disk(tree, raw)
    run(["qemu-img", "convert", "-c", "-O", "qcow2", raw, image])
    run(["rm", "-rf", raw, tree])


def _package(folder, into, recipe):
    """The package salt-minion: the lab's Salt, with a configuration as dpkg knows it."""
    tree = folder / "package"
    tree.mkdir()
    run(["cp", "-a", layers.layers(recipe).salt / "layer/opt", tree / "opt"])
    for name in ("salt-minion", "salt-call"):
        (tree / "usr/bin").mkdir(parents=True, exist_ok=True)
        (tree / "usr/bin" / name).symlink_to(f"/opt/salt/bin/{name}")
    guest.write(tree / "lib/systemd/system/salt-minion.service", guest.MINION_UNIT)
    guest.write(tree / "etc/salt/minion", CONFIGURATION)
    guest.write(tree / "DEBIAN/control", CONTROL.format(version=recipe.salt_version))
    guest.write(tree / "DEBIAN/conffiles", "/etc/salt/minion\n")
    guest.write(tree / "DEBIAN/postinst", POST_INSTALLATION)
    (tree / "DEBIAN/postinst").chmod(0o755)
    package = into / f"salt-minion_{recipe.salt_version}_amd64.deb"
    run(["dpkg-deb", "--root-owner-group", "-Zgzip", "-z1", "--build", tree, package])
    run(["rm", "-rf", tree])
    return package


def web(recipe, master):
    """The folder that the master is to serve at PORT; built once."""
    key = cache.key(images.Path(__file__), *sorted(layers.keys(recipe).values()), master)
    return cache.built(f"test-distribution-{key}", lambda part: build(part, recipe, master)) / "web"
