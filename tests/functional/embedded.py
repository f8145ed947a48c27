"""A QEMU driver inside the test process; each process can have only one."""

import atexit
import functools
import os
import shutil
import tempfile
import threading

import pytest

CONFIG = """user = "root"
group = "root"
cgroup_controllers = []
security_driver = "none"
stdio_handler = "file"
namespaces = []
spice_tls = 1
spice_tls_x509_cert_dir = "{root}"
"""


def _events(libvirt):
    while True:
        libvirt.virEventRunDefaultImpl()


@functools.cache
def connection():
    """A libvirt connection to ``qemu:///embed``, closed at exit; skips where it cannot be."""
    libvirt = pytest.importorskip("libvirt")
    if os.geteuid() != 0:
        pytest.skip("an own QEMU driver needs root")
    libvirt.virEventRegisterDefaultImpl()
    libvirt.virEventAddTimeout(100, lambda *_: None, None)
    # libvirt's sockets are in there: their names must be short
    root = tempfile.mkdtemp(prefix="sv")
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    os.mkdir(f"{root}/etc")
    with open(f"{root}/etc/qemu.conf", "w", encoding="utf-8") as config:
        config.write(CONFIG.format(root=root))
    try:
        conn = libvirt.open(f"qemu:///embed?root={root}")
    except libvirt.libvirtError as exc:
        if exc.get_error_code() != libvirt.VIR_ERR_NO_CONNECT:
            raise
        pytest.skip(f"libvirt has no QEMU driver here: {exc}")
    threading.Thread(target=_events, args=(libvirt,), daemon=True).start()
    atexit.register(conn.close)
    return conn
