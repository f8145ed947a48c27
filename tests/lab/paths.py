"""Paths of the lab: all are outside of the repository."""

import os
import re
from pathlib import Path

from tests.lab.sh import LabError

REPOSITORY = Path(__file__).resolve().parents[2]
INSTANCES = Path("/var/lib/salt-virt/labs")


def cache():
    """The folder of what is built once: root file systems, wheels, guest images."""
    given = os.environ.get("SALTVIRT_CACHE")
    if given:
        return Path(given)
    return Path("/var/cache" if os.geteuid() == 0 else Path.home() / ".cache") / "salt-virt"


def python_cache():
    """The folder of the tests' Python; SALTVIRT_PYTHON_CACHE keeps it apart from the rest."""
    given = os.environ.get("SALTVIRT_PYTHON_CACHE")
    return Path(given) if given else cache()


def instance_name(given=None):
    """The name of the lab meant: given, or from SALTVIRT_LAB, or "lab"."""
    name = given or os.environ.get("SALTVIRT_LAB") or "lab"
    if not re.fullmatch(r"[a-z][a-z0-9-]{0,23}", name):
        raise LabError(
            f"{name!r} is no name for a lab: a lower-case letter, then up to 23 lower-case "
            "letters, digits and dashes"
        )
    return name


def page(name):
    """A page of the manual, in whichever folder of docs it is; not one of the reference."""
    [found] = [
        path for path in (REPOSITORY / "docs").rglob(name) if path.parent.name != "reference"
    ]
    return found
