"""The layer of a lab with network storage that needs no module of the kernel: GlusterFS, whose
client is FUSE's, and iSCSI between tgt and libiscsi; and the binding that the agent of high
availability runs by."""

import shutil

from tests.lab.sh import run

PACKAGES = "glusterfs-server tgt libvirt-daemon-driver-storage-iscsi-direct python3-libvirt"


def build(folder, below):
    """Make `folder`/layer hold what installing the packages adds to the root `below`."""
    layer, work, root = folder / "layer", folder / "work", folder / "root"
    for made in (layer, work, root):
        made.mkdir()
    options = f"lowerdir={below},upperdir={layer},workdir={work}"
    run(["mount", "-t", "overlay", "overlay", "-o", options, root])
    try:
        (root / "etc/resolv.conf").unlink(missing_ok=True)
        shutil.copy("/etc/resolv.conf", root / "etc/resolv.conf")
        run(["chroot", root, "apt-get", "-q", "update"])
        run(["chroot", root, "/bin/sh", "-ec", f"""
            export DEBIAN_FRONTEND=noninteractive
            apt-get -q -y --no-install-recommends install {PACKAGES}
            apt-get clean
            systemctl disable glusterd.service tgt.service
            rm -rf /var/lib/apt/lists /etc/resolv.conf /usr/share/doc /usr/share/man
            rm -f /var/lib/glusterd/glusterd.info
        """])  # fmt: skip
    finally:
        run(["umount", root])
    run(["rm", "-rf", work, root])
