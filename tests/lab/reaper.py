"""A small process that outlives the owner of a lab and then removes the lab."""

import os
import select
import subprocess
import sys

from tests.lab import paths, process


def start(cloud, owner):
    """Start a detached reaper for the process `owner`."""
    argv = [
        sys.executable,
        "-m",
        "tests.lab.reaper",
        cloud.name,
        cloud.describe()["id"],
        str(owner),
    ]
    child = subprocess.Popen(
        argv,
        cwd=paths.REPOSITORY,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    process.remember(child.pid, cloud.folder / "reaper.pid")


def stop(cloud):
    """End the lab's reaper, if it has one and is not it."""
    pid = process.recall(cloud.folder / "reaper.pid")
    if pid and pid != os.getpid():
        process.kill(pid)


def main(name, only_id, owner):
    """Wait for the end of the owner, then take down the lab with that id."""
    from tests.lab.cloud import Cloud

    try:
        handle = os.pidfd_open(int(owner))
    except ProcessLookupError:
        handle = None
    if handle is not None:
        select.select([handle], [], [])
    Cloud(name).down(only_id)


if __name__ == "__main__":
    main(*sys.argv[1:])
