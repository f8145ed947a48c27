"""Storage of the network that the lab's master serves: volumes of GlusterFS and LUNs of iSCSI.

The kernel needs FUSE for the one and nothing for the other, where QEMU itself is the client.
``server.root-squash`` takes root of the hypervisors for nobody, as NFS servers do.
"""

from tests.clock import until

SERVER = "master"
BRICKS = "/srv/bricks"


def serve(cloud):
    """Starts the servers; they answer when this returns."""
    cloud.exec(SERVER, ["systemctl", "start", "glusterd", "tgt"])
    for ask in ("gluster --mode=script volume list", "tgtadm --lld iscsi --op show --mode target"):
        _comes(cloud, ask)


def _comes(cloud, ask):
    until(lambda: not cloud.exec(SERVER, ask, check=False).returncode, ask)


def volume(cloud, name, owner=None, squash=False, strict=False):
    """Makes and starts a volume. owner: uid:gid of its folder; squash: root is nobody to it.
    strict: a file that was locked when its client was lost stays shut for that client."""
    brick = f"{BRICKS}/{name}"
    cloud.exec(SERVER, f"mkdir -p {brick}")
    gluster = "gluster --mode=script volume"
    cloud.exec(SERVER, f"{gluster} create {name} {SERVER}:{brick} force")
    if owner:
        uid, _, gid = owner.partition(":")
        cloud.exec(SERVER, f"{gluster} set {name} storage.owner-uid {uid}")
        cloud.exec(SERVER, f"{gluster} set {name} storage.owner-gid {gid}")
    if strict:
        cloud.exec(SERVER, f"{gluster} set {name} client.strict-locks on")
    cloud.exec(SERVER, f"{gluster} start {name}")
    _comes(cloud, f"{gluster} status {name} detail | grep -q 'Online *: Y'")
    if squash:
        cloud.exec(SERVER, f"{gluster} set {name} server.root-squash on")


def lun(cloud, iqn, number, size="64M"):
    """Makes a LUN of that size; number: of its target, too."""
    file = f"{BRICKS}/lun{number}"
    admin = f"tgtadm --lld iscsi --tid {number}"
    cloud.exec(
        SERVER,
        f"mkdir -p {BRICKS} && truncate -s {size} {file} && "
        f"{admin} --op new --mode target -T {iqn} && "
        f"{admin} --op new --mode logicalunit --lun 1 -b {file} && "
        f"{admin} --op bind --mode target -I ALL",
    )
