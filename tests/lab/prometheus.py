"""Prometheus, its promtool and the exporter of libvirt that Debian has, as programs in the cache:
nothing is installed, and no service is started."""

import sys

from tests.lab import cache
from tests.lab.sh import LabError, run

PACKAGES = ("prometheus", "prometheus-libvirt-exporter")


def _fill(folder):
    def download():
        return run(["apt-get", "-q", "download", *PACKAGES], cwd=folder, check=False).returncode

    if download():
        run(["apt-get", "-q", "update"])
        if download():
            raise LabError(f"apt-get cannot download {' and '.join(PACKAGES)}")
    for deb in sorted(folder.glob("*.deb")):
        run(["dpkg-deb", "-x", deb, folder])
        deb.unlink()


def program(name):
    """The path of ``prometheus``, ``promtool`` or ``prometheus-libvirt-exporter``."""
    return cache.built(f"prometheus-{cache.key(*PACKAGES)}", _fill) / "usr/bin" / name


def wheel():
    """The path of a wheel of the client library for Python."""

    def fill(folder):
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
        run([*pip, "download", "-q", "--no-deps", "-d", folder, "prometheus-client"])

    (found,) = cache.built("prometheus-client", fill).glob("*.whl")
    return found
