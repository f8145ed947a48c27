"""The wheels that go into /opt/salt: Salt, libvirt's binding, GitPython for gitfs.

They are built on the machine that runs the lab, which has the compiler and
libvirt's headers; the machines of the lab have neither.
"""

import os

from tests.lab.sh import run

ALSO = ("libvirt-python", "GitPython", "cryptography")
# what 3007.14 imports: its own package names no dependency
UNDECLARED = {
    "3007.14": (
        "aiohttp", "certifi", "cherrypy", "contextvars", "croniter", "distro", "idna",
        "importlib-metadata", "jaraco.context", "jaraco.functools", "jaraco.text", "jinja2",
        "jmespath", "looseversion", "markupsafe<3", "more-itertools", "msgpack", "packaging==24.0",
        "psutil", "pycryptodomex", "pyopenssl", "python-dateutil", "python-gnupg", "pyyaml",
        "pyzmq", "requests", "setproctitle", "tornado", "urllib3",
    ),
}  # fmt: skip


def of(salt_version):
    """Salt and what it must have beside what it declares, for pip."""
    return [f"salt=={salt_version}", *UNDECLARED.get(salt_version, ())]


def build(folder, recipe):
    """Fill `folder` with wheels for Python 3.11."""
    python = folder / "venv/bin/python"
    run(["/usr/bin/python3", "-m", "venv", folder / "venv"])
    pip = [python, "-m", "pip", "--disable-pip-version-check"]
    env = {**os.environ, "PIP_ROOT_USER_ACTION": "ignore"}
    run([*pip, "install", "-q", "wheel", "setuptools"], env=env)
    wanted = [*of(recipe.salt_version), *ALSO]
    run([*pip, "wheel", "-q", "-w", folder / "wheels", *wanted], env=env)
    run(["rm", "-rf", folder / "venv"])
