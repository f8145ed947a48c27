"""Images other than the lab's own: with cloud-init, without a minion."""

import shutil
from pathlib import Path

from tests.lab import cache, layers
from tests.lab.build import guest
from tests.lab.sh import run

CLOUD_CONFIG = """\
cloud_init_modules: [bootcmd, write-files, set_hostname, update_hostname, ssh]
cloud_config_modules: [runcmd]
cloud_final_modules: [salt-minion, scripts-user, final-message]
growpart: {mode: "off"}
resize_rootfs: false
"""
# who configures the network of an image: its packages. cloud-init as Debian has it chooses netplan,
# ifupdown and systemd-networkd, in this order; NetworkManager has to be named, as EL does
SYSTEMS = {
    "cloud": (),
    "netplan": ("netplan.io",),
    "ifupdown": ("ifupdown", "isc-dhcp-client"),
    "network-manager": ("network-manager",),
}
RENDERERS = "system_info: {network: {renderers: [network-manager]}}\n"
OTHERS = ("ifupdown", "network-manager")  # where systemd-networkd is off
WANTS = "etc/systemd/system/multi-user.target.wants/salt-minion.service"


def _tree(folder, lower):
    """An overlay on layers of the lab's guest; (the tree, what undoes it)."""
    tree, work, upper = (folder / name for name in ("tree", "work", "upper"))
    for made in (tree, work, upper):
        made.mkdir()
    below = ":".join(map(str, lower))
    options = f"lowerdir={below},upperdir={upper},workdir={work}"
    run(["mount", "-t", "overlay", "overlay", "-o", options, tree])
    return tree


def _finish(folder, tree):
    raw = folder / "disk.raw"
    try:
        guest.write_disk(tree, raw)
    finally:
        run(["umount", tree])
    run(["qemu-img", "convert", "-c", "-O", "qcow2", raw, folder / "image.qcow2"])
    run(["rm", "-rf", raw, *(folder / name for name in ("tree", "work", "upper"))])


def _salt_links(tree):
    for name in ("salt-minion", "salt-call"):
        (tree / "usr/bin" / name).symlink_to(f"/opt/salt/bin/{name}")


def _debians_initrd(tree):
    """In place of the lab's, which loads no driver of the drive: cloud-init decides at the very
    begin of a boot, by the volumes that it sees then, whether it runs."""
    version = next((tree / "lib/modules").iterdir()).name
    # the power button, which the lab's initrd loads: the lab's udev asks for few devices
    with (tree / "etc/initramfs-tools/modules").open("a") as modules:
        modules.write("button\n")
    run(["chroot", tree, "update-initramfs", "-c", "-k", version])
    loader = tree / "boot/extlinux/extlinux.conf"
    loader.write_text(loader.read_text().replace("initrd.lab", f"initrd.img-{version}"))


def _cloud(folder, found, system):
    """As distributions make them: cloud-init, which chooses its datasource as Debian has it do, and
    no configuration at all, but with a minion that is not enabled, for the lab has no way out to a
    package of it. system: see SYSTEMS."""
    tree = _tree(folder, [found.salt / "layer", found.guest_os])
    _salt_links(tree)
    resolv = (tree / "etc/resolv.conf").read_text()
    shutil.copy("/etc/resolv.conf", tree / "etc/resolv.conf")
    packages = " ".join(("cloud-init", "initramfs-tools", *SYSTEMS[system]))
    install = f"apt-get -q update && apt-get -qy install --no-install-recommends {packages}"
    run(["chroot", tree, "sh", "-c", f"export DEBIAN_FRONTEND=noninteractive; {install}"])
    _debians_initrd(tree)
    (tree / "etc/resolv.conf").write_text(resolv)
    (tree / "etc/cloud/cloud.cfg.d/90_lab.cfg").write_text(
        CLOUD_CONFIG + RENDERERS * (system == "network-manager")
    )
    if system in OTHERS:
        run(["chroot", tree, "systemctl", "-q", "disable", "systemd-networkd.service"])
    (tree / WANTS).unlink()
    (tree / "etc/systemd/network/10-dhcp.network").unlink()
    for name in ("var/cache/apt", "var/lib/apt/lists"):
        shutil.rmtree(tree / name, ignore_errors=True)
    _finish(folder, tree)


def _bare(folder, found):
    """A system without any minion, which has one to install: the lab has no way out."""
    tree = _tree(folder, [found.salt / "layer", found.guest_os])
    (tree / WANTS).unlink()
    (tree / "etc/systemd/system/salt-minion.service").unlink()
    _finish(folder, tree)


class _Found:
    def __init__(self, recipe):
        names = layers.keys(recipe)
        self.guest_os = cache.built(names["guest_os"], guest.build_os)
        self.salt = layers.layers(recipe).salt


def image(kind, recipe):
    """The path of an image: ``bare``, or one of SYSTEMS with cloud-init; built once."""
    key = cache.key(Path(__file__), *sorted(layers.keys(recipe).values()))

    def build(part):
        if kind == "bare":
            return _bare(part, _Found(recipe))
        return _cloud(part, _Found(recipe), kind)

    return cache.built(f"test-{kind}-{key}", build) / "image.qcow2"
