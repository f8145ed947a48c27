"""The previous release as a folder, from which an update begins."""

import os

from tests.lab import paths
from tests.lab.sh import LabError, run

# until a release is tagged: the last commit whose published library was some 500 files
FIRST = "623c821"


def tree(folder, repository=paths.REPOSITORY):
    """Fill the new folder with the files of the newest tag before this commit, or of FIRST.

    Returns the name of what it holds. LabError where the clone does not have that commit.
    """
    name, packed = previous(repository), folder.with_suffix(".tar")
    try:
        run(["git", "-C", repository, "archive", "-o", packed, name])
    except LabError as exc:
        raise LabError(f"{exc} (a shallow clone? git fetch --unshallow)") from exc
    folder.mkdir()
    run(["tar", "-xf", packed, "-C", folder])
    packed.unlink()
    return name


def previous(repository):
    """The newest tag before this commit, or FIRST."""
    told = run(["git", "-C", repository, "describe", "--tags", "--abbrev=0", "HEAD^"], check=False)
    return told.stdout.strip() or FIRST


def publish(folder, remote):
    """Publish a release's tree by its own program: how it is published is a part of it."""
    env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    run(["python3", "-m", "tests.lab.publish", remote], cwd=folder, env=env)
