"""The Python environment of the tests: a venv in a cache, keyed by what is in it."""

import os

from tests.lab import cache, packages, paths
from tests.lab.sh import LabError, run

REQUIREMENTS = paths.REPOSITORY / "tests/requirements.txt"


def python(say=lambda text: None):
    """The interpreter that runs the tests; its venv is built when it is not there.

    What it is built with is installed first where we may. libvirt-python is in it where
    libvirt's headers are.
    """
    if not packages.why_not():
        packages.ensure(say, packages.PYTHON)
    try:
        headers = run(["pkg-config", "--modversion", "libvirt"], check=False).stdout.strip()
    except LabError:
        headers = ""
    base = run(["/usr/bin/python3", "-VV"]).stdout
    name = f"tests-{cache.key(REQUIREMENTS, headers, base)}"
    home = paths.python_cache()
    return cache.built(name, lambda part: build(part, bool(headers)), say, home) / "bin/python"


def build(folder, binding):
    """Make the venv. It is moved afterwards, so its programs are run by `python -m`."""
    try:
        run(["/usr/bin/python3", "-m", "venv", folder])
    except LabError as exc:
        raise LabError("apt-get install python3-venv first: the tests' Python needs it") from exc
    env = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_ROOT_USER_ACTION": "ignore"}
    also = ["libvirt-python"] if binding else []
    run([folder / "bin/pip", "install", "-q", "-r", REQUIREMENTS, *also], env=env)
