"""The Python environment of the tests: a venv in the cache, keyed by what is in it."""

import os

from tests.lab import cache, paths
from tests.lab.sh import LabError, run

REQUIREMENTS = paths.REPOSITORY / "tests/requirements.txt"


def python(say=lambda text: None):
    """The interpreter that runs the tests; its venv is built when it is not there.

    libvirt-python is in it where libvirt's headers are installed.
    """
    try:
        headers = run(["pkg-config", "--modversion", "libvirt"], check=False).stdout.strip()
    except LabError:
        headers = ""
    base = run(["/usr/bin/python3", "-VV"]).stdout
    name = f"tests-{cache.key(REQUIREMENTS, headers, base)}"
    return cache.built(name, lambda part: build(part, bool(headers)), say) / "bin/python"


def build(folder, binding):
    """Make the venv. It is moved afterwards, so its programs are run by `python -m`."""
    run(["/usr/bin/python3", "-m", "venv", folder])
    env = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_ROOT_USER_ACTION": "ignore"}
    also = ["libvirt-python"] if binding else []
    run([folder / "bin/pip", "install", "-q", "-r", REQUIREMENTS, *also], env=env)
