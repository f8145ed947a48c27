"""Bring this working tree to the machines of a running lab, by gitfs and sync_all."""

import json

from tests.lab import paths, publish
from tests.lab.sh import LabError


def sync(cloud, tree=paths.REPOSITORY):
    """Publish `tree`, have the master fetch it, and every machine that answers sync.

    Returns {minion: {kind: [names]}} of what changed.
    """
    publish.publish(tree, cloud.repository)
    for runner in ("fileserver.update", "saltutil.sync_all"):
        cloud.exec("master", ["salt-run", runner])
    done = cloud.exec(
        "master", ["salt", "*", "saltutil.sync_all", "--out=json", "--static"], check=False
    )
    try:
        answers = json.loads(done.stdout)
    except ValueError as exc:
        raise LabError(f"saltutil.sync_all said:\n{done.stdout}{done.stderr}") from exc
    bad = [name for name in cloud.names()[1:] if not isinstance(answers.get(name), dict)]
    if bad:
        raise LabError(f"saltutil.sync_all failed on {', '.join(bad)}:\n{done.stdout}")
    return answers
