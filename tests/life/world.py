"""The lab of the walks: its storage, its backup target, and access to it."""

import json
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.integration.migration import counter
from tests.lab import storage
from tests.life import image

HERE = Path(__file__).parent
PYTHON = "/opt/salt/bin/python"
MARK = "/run/life-mark"
# where disks, firmware variables and what is beside them are
FOLDERS = ("/srv/salt-images", "/srv/local/pond", "/srv/gluster", "/var/lib/libvirt/qemu/nvram",
           "/var/lib/libvirt/qemu/snapshot/files")  # fmt: skip
# files that are the host's and not a guest's
BESIDE = ("/_base/", "/.salt-virt", "/lost+found")
ANSWER_S = 240
HOST = """set -e
mkdir -p /srv/gluster /srv/local/pond
truncate -s 2M /srv/life.iso
virsh -q pool-define-as pond dir --target /srv/local/pond
virsh -q pool-define-as data netfs --source-host master --source-path data \
    --source-format glusterfs --target /srv/gluster
for pool in pond data; do virsh -q pool-autostart $pool; virsh -q pool-start $pool; done
"""
VAULT = "/srv/vault"
ISO = "/srv/life.iso"
MASTER = f"  backup: {{targets: {{vault: {{host: hv2, folder: {VAULT}}}}}}}\n"


def prepare(lab, say):
    """Make of a lab with shared storage, just up, what walks expect."""
    path = image.image(say)
    storage.serve(lab)
    say("syncing")
    lab.synced()
    counter.libvirts(lab)
    storage.volume(lab, "data")
    lab.push("master", path, "/srv/salt")
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda host: lab.exec(host, HOST), lab.hosts))
    lab.exec("hv1", "mkdir -p /srv/gluster/files")
    lab.exec("hv2", f"mkdir -m 700 -p {VAULT}")
    with tempfile.TemporaryDirectory() as folder:
        for name in ("probe.py", "inside.py"):
            copy = Path(folder) / name
            copy.write_text((HERE / name).read_text())
            for machine in lab.names():
                lab.push(machine, copy, "/opt/life")
    lab.exec("master", ["sh", "-c", "cat >> /etc/salt/master.d/virt.conf"], input=MASTER)
    lab.restart_master()


def look(lab, system=False):
    """{host: what inside.py prints there}. system: with the changed files of the host itself."""
    given = json.dumps({"folders": FOLDERS, "mark": MARK, "system": system})

    def ask(host):
        argv = [PYTHON, "/opt/life/inside.py"]
        return json.loads(lab.exec(host, argv, input=given, timeout=300).stdout)

    with ThreadPoolExecutor() as pool:
        return dict(zip(lab.hosts, pool.map(ask, lab.hosts), strict=True))


def probe(lab, macs, record=None, timeout_s=ANSWER_S):
    """What a small guest answers by each of its addresses; see probe.py."""
    given = json.dumps({"macs": macs, "record": record, "timeout_s": timeout_s})
    argv = [PYTHON, "/opt/life/probe.py"]
    return json.loads(lab.exec("master", argv, input=given, timeout=timeout_s + 300).stdout)


def clear(lab):
    """Remove all guests, past the product's code, and their files."""
    for host in lab.hosts:
        script = (
            "for name in $(virsh list --all --name); do virsh destroy $name; "
            "virsh undefine --nvram --snapshots-metadata --checkpoints-metadata $name; done; "
            "rm -rf /srv/local/pond/* /var/lib/salt-virt/*/*; "
            f"find {' '.join(FOLDERS)} -type f -not -path '*/_base/*' -delete; "
            "virsh pool-refresh pond; virsh pool-refresh data"
        )
        lab.exec(host, script, check=False)
    lab.exec("hv2", f"rm -rf {VAULT}/*", check=False)
    lab.exec("hv1", "mkdir -p /srv/gluster/files", check=False)


def reboot(lab, host):
    """Take a hypervisor's power away and boot it again."""
    lab.power_off(host)
    lab.power_on(host)
    lab.exec(host, f"mkdir -p /run && touch {MARK}", check=False)
    for pool in ("pond", "data"):
        lab.wait(
            lambda pool=pool: "running" in lab.exec(
                host, ["virsh", "pool-info", pool], check=False).stdout
            or lab.exec(host, ["virsh", "pool-start", pool], check=False).returncode == 0,
            f"pool {pool} of {host}",
        )  # fmt: skip
