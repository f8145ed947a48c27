"""The Python of Salt 3007: a venv in the cache, beside the tests' own."""

import os

from tests.lab import cache, packages, paths
from tests.lab.build import wheels
from tests.lab.recipe import SALTS
from tests.lab.sh import run

VERSION = SALTS["3007"]


def python(say=lambda text: None):
    """The interpreter that has Salt 3007; it is made when it is not there."""
    if not packages.why_not():
        packages.ensure(say, packages.PYTHON)
    # pytest, for the tests' own QEMU driver is a file that imports it
    wanted = [*wheels.of(VERSION), "immutables", "libvirt-python", "pytest"]
    name = f"parity-{VERSION}-{cache.key(*wanted, run(['/usr/bin/python3', '-VV']).stdout)}"
    home = paths.python_cache()
    return cache.built(name, lambda part: build(part, wanted), say, home) / "bin/python"


def build(folder, wanted):
    """Make the venv. It is moved afterwards, so its programs are run by `python -m`."""
    run(["/usr/bin/python3", "-m", "venv", folder])
    env = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_ROOT_USER_ACTION": "ignore"}
    run([folder / "bin/python", "-m", "pip", "install", "-q", *wanted], env=env)
