"""Copy this working tree to the machines of a running lab, by gitfs and sync_all."""

import json

from tests.lab import paths, publish
from tests.lab.sh import LabError

# the master unpacks all of it before the minions ask: two that ask at once for a file of a folder
# that is not unpacked make Salt 3008's gitfs fail for one of them (salt/utils/gitfs.py, find_file)
MASTER = (
    ("fileserver.update",),
    ("saltutil.sync_all",),
    *(("salt.cmd", "cp.cache_dir", f"salt://{folder}") for folder in ("libvirt", "virt")),
)


def sync(cloud, tree=paths.REPOSITORY):
    """Publish `tree`, have the master fetch it, and every machine that answers sync.

    Returns {minion: {kind: [names]}} of what changed.
    """
    publish.publish(tree, cloud.repository)
    for command in MASTER:
        cloud.typed(["salt-run", *command], check=True)
    answers = sync_all(cloud, ["-t", "120", "hv*"])
    guests = set(cloud.exec("master", "ls /etc/salt/pki/master/minions").stdout.split())
    if guests - set(cloud.names()):
        # a guest that is off is not waited for long
        answers |= sync_all(cloud, ["-t", "10", "-C", "* and not hv*"])
    bad = [name for name in cloud.names()[1:] if not isinstance(answers.get(name), dict)]
    if bad:
        raise LabError(f"saltutil.sync_all failed on {', '.join(bad)}: {answers}")
    return answers


def sync_all(cloud, target):
    """What the minions of a target (arguments of `salt`) answer to saltutil.sync_all."""
    argv = ["salt", "--out=json", "--static", *target, "saltutil.sync_all"]
    done = cloud.typed(argv)
    try:
        return json.loads(done.stdout)
    except ValueError as exc:
        raise LabError(f"saltutil.sync_all said:\n{done.stdout}{done.stderr}") from exc
