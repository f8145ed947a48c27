"""Images other than the lab's own: with cloud-init, without a minion."""

import shutil
from pathlib import Path

from tests.lab import cache, layers
from tests.lab.build import guest
from tests.lab.sh import run

CLOUD_CONFIG = """\
datasource_list: [NoCloud, None]
cloud_init_modules: [bootcmd, write-files, set_hostname, update_hostname, ssh]
cloud_config_modules: [runcmd]
cloud_final_modules: [salt-minion, scripts-user, final-message]
growpart: {mode: "off"}
resize_rootfs: false
"""
# the lab's guest loads no drivers but those of its root disk and network, to boot sooner
WAIT = """\
[Service]
ExecStartPre=-udevadm trigger --action=add
ExecStartPre=/bin/sh -c 'for n in $(seq 60); do blkid -L cidata && exit; sleep 1; done; true'
"""
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


def _cloud(folder, found):
    """As distributions make them: cloud-init and no configuration at all, but with a minion
    that is not enabled, for the lab has no way out to a package of it."""
    tree = _tree(folder, [found.salt / "layer", found.guest_os])
    _salt_links(tree)
    resolv = (tree / "etc/resolv.conf").read_text()
    shutil.copy("/etc/resolv.conf", tree / "etc/resolv.conf")
    install = "apt-get -q update && apt-get -qy install --no-install-recommends cloud-init"
    run(["chroot", tree, "sh", "-c", install])
    (tree / "etc/resolv.conf").write_text(resolv)
    (tree / "etc/cloud/cloud.cfg.d/90_lab.cfg").write_text(CLOUD_CONFIG)
    wait = tree / "etc/systemd/system/cloud-init-local.service.d/wait.conf"
    wait.parent.mkdir(parents=True)
    wait.write_text(WAIT)
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
    """The path of an image: ``cloud`` or ``bare``; built once."""
    key = cache.key(Path(__file__), *sorted(layers.keys(recipe).values()))
    build = {"cloud": _cloud, "bare": _bare}[kind]
    folder = cache.built(f"test-{kind}-{key}", lambda part: build(part, _Found(recipe)))
    return folder / "image.qcow2"
