"""The Python environment of the tests: a venv in a cache, with its content as the key."""

import os

from tests.lab import cache, packages, paths
from tests.lab.build import wheels
from tests.lab.recipe import SALTS
from tests.lab.sh import LabError, run

REQUIREMENTS = paths.REPOSITORY / "tests/requirements.txt"
# whether and where Python keeps what it compiles
COMPILING = ("PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX")


def requirements(salt=None):
    """What is in the venv, as pip's lines. salt: "3006", "3007" or "3008", in the place of the
    pinned one."""
    lines = REQUIREMENTS.read_text(encoding="utf-8").splitlines()
    if salt is None:
        return lines
    return [
        word for line in lines
        for word in (wheels.of(SALTS[salt]) if line.startswith("salt==") else [line])
    ]  # fmt: skip


def python(say=lambda text: None, salt=None):
    """The interpreter that runs the tests; its venv is built when it is not there.

    salt: as for :func:`requirements`.
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
    wanted = "\n".join(requirements(salt))
    name = f"tests-{cache.key(wanted, headers, base)}"

    def fill(part):
        build(part, wanted, bool(headers))

    return cache.built(name, fill, say, paths.python_cache()) / "bin/python"


def bytecode():
    """The folder where the tests' Python keeps what it has compiled of this tree and of all that
    is imported; the tree itself has none of it."""
    return paths.python_cache() / f"bytecode-{cache.key(str(paths.REPOSITORY))}"


def compiling():
    """The environment that has Python keep what it compiles. Tests start hundreds of processes
    that import the library, and compiling it takes five times as long as importing it."""
    folder = bytecode()
    folder.mkdir(parents=True, exist_ok=True)
    os.utime(folder)  # cache.prune() removes what nobody uses
    return dict(zip(COMPILING, ("", str(folder)), strict=True))


def build(folder, wanted, binding):
    """Make the venv. It is moved afterwards, so its programs are run by `python -m`."""
    try:
        run(["/usr/bin/python3", "-m", "venv", folder])
    except LabError as exc:
        raise LabError("apt-get install python3-venv first: the tests' Python needs it") from exc
    env = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_ROOT_USER_ACTION": "ignore"}
    also = ["libvirt-python"] if binding else []
    listed = folder / "requirements.txt"
    listed.write_text(f"{wanted}\n", encoding="utf-8")
    run([folder / "bin/pip", "install", "-q", "-r", listed, *also], env=env)
