"""The lab of a run: three hypervisors with storage of each kind, and its cleanup."""

import contextlib
import json
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.chaos.steps import LUNS
from tests.integration.migration import counter
from tests.lab import storage
from tests.lab.sh import LabError, run

MASTER = "10.77.0.1"
BOOT = counter.BOOT
IMAGE = "/var/lib/libvirt/images/counter.qcow2"
LOCAL = "/srv/local"
LOCAL_MIB = 640
HELD_CPUS = 5  # so many vCPUs each host promises
INSIDE = (Path(__file__).parent / "inside.py").read_text()
PYTHON = "/opt/salt/bin/python"
MAKE_IMAGE = f"""qemu-img create -q -f qcow2 {IMAGE} 64M
qemu-io -f qcow2 -c 'write -q -P 0x5a 0 512k' {IMAGE}"""
# a host with small storage of its own, which can be filled: it comes back after a reboot
HOST = f"""set -e
truncate -s {LOCAL_MIB}M /srv/local.img
mkfs.ext4 -q -m 0 /srv/local.img
mkdir -p /srv/local /srv/gluster
echo '/srv/local.img /srv/local ext4 loop 0 0' >> /etc/fstab
mount /srv/local
rmdir /srv/local/lost+found
mkdir /srv/local/pond
{MAKE_IMAGE}
virsh -q pool-define-as pond dir --target /srv/local/pond
virsh -q pool-define-as data netfs --source-host master --source-path data \
    --source-format glusterfs --target /srv/gluster
for pool in pond data; do virsh -q pool-autostart $pool; virsh -q pool-start $pool; done
"""
CONFIG = """virt:
  images: /srv/local
  ratios: {{cpu: {ratio}}}
  placement: {{reserved_disk_bytes: 16777216}}
  disk:
    local: [{{system: {{size: 64}}}}]
    pool: [{{system: {{size: 64, pool: pond}}}}]
    shared: [{{system: {{size: 64, pool: data, cache: none}}}}]
"""
VAULT = "/srv/vault"
PLACEMENT = f"""  placement: {{reserved_disk_bytes: 16777216}}
  queue_timeout: 300
  backup: {{targets: {{vault: {{host: hv3, folder: {VAULT}}}}}}}
"""
# clock.c before each daemon of Salt: what the clock jump of a step writes is its offset
CLOCK = "/etc/chaos-clock"
KEPT = """virsh list --all; find /srv/local /srv/gluster /var/lib/salt-virt -ls; losetup -l
cat /var/lib/salt-virt/migrations/*.json /var/lib/salt-virt/arrivals/*
df /srv/local; ps -eo pid,ppid,lstart,stat,args
journalctl -q --no-pager -o short-precise --since=@{since} -u salt-master -u salt-minion -u libvirtd
"""
UNIT = """[Service]
Environment=LD_PRELOAD=/opt/chaos/clock.so
"""


def iqn(number):
    return f"iqn.2026-11.example:lun{number}"


def prepare(lab, say):
    """Make of a lab with shared storage, just up, what the steps expect."""
    storage.serve(lab)
    say("syncing")
    lab.sync()
    counter.install(lab)
    say("storage")
    storage.volume(lab, "data")
    for number in range(1, LUNS + 1):
        storage.lun(lab, iqn(number), number)
    lab.exec("master", ["sh", "-c", "cat >> /etc/salt/master.d/virt.conf"], input=PLACEMENT)
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda host: _host(lab, host), lab.hosts))
    lab.exec("hv3", f"mkdir -m 700 {VAULT}")
    for name in lab.names():
        clock(lab, name, "salt-master" if name == "master" else "salt-minion")
    lab.exec("master", "systemctl restart salt-master")
    lab.restart_minion(*lab.hosts)


@contextlib.contextmanager
def plain(lab):
    """What steps with disks in a folder need, in a lab of others, while the block runs."""
    counter.install(lab)
    for host in lab.hosts:
        lab.exec(host, f"mkdir {LOCAL} && {MAKE_IMAGE}")
    try:
        yield
    finally:
        for host in lab.hosts:
            lab.exec(host, f"rm -rf {LOCAL} {IMAGE}", check=False)


def clock(lab, name, unit):
    """A daemon of Salt whose clock can be set by writing an offset to CLOCK."""
    with tempfile.TemporaryDirectory() as made:
        library = Path(made) / "clock.so"
        source = Path(__file__).parent / "clock.c"
        run(
            [
                "gcc",
                "-O2",
                "-Wall",
                "-Wno-nonnull-compare",
                "-shared",
                "-fPIC",
                "-o",
                library,
                source,
            ]
        )
        lab.push(name, library, "/opt/chaos")
    folder = f"/etc/systemd/system/{unit}.service.d"
    script = f"echo +0 > {CLOCK}; mkdir -p {folder}; cat > {folder}/clock.conf"
    lab.exec(name, ["sh", "-c", script], input=UNIT)
    lab.exec(name, ["systemctl", "daemon-reload"])


def _host(lab, host):
    lab.exec(host, HOST)
    ratio = HELD_CPUS / int(lab.exec(host, "nproc").stdout)
    text = CONFIG.format(ratio=ratio)
    lab.exec(host, ["sh", "-c", "cat > /etc/salt/minion.d/chaos.conf"], input=text)


def look(lab, since, known, backups=False):
    """{machine: what inside.py says of it}. since: of the logs. known: guest to the number of
    records whose sums are known to be right. backups: those are read, too."""

    def one(name):
        role = "master" if name == "master" else "host"
        about = {"role": role, "since": since, "known": known, "backups": backups}
        asked = json.dumps(about)
        end = time.monotonic() + 120
        while True:  # libvirtd may be starting
            done = lab.exec(name, [PYTHON, "-c", INSIDE], check=False, timeout=150, input=asked)
            if done.returncode == 0:
                return json.loads(done.stdout)
            if time.monotonic() > end:
                raise LabError(f"{name} cannot be looked at: {done.stderr[-600:]}")
            time.sleep(1)

    with ThreadPoolExecutor() as pool:
        return dict(zip(lab.names(), pool.map(one, lab.names()), strict=True))


def keep(lab, folder, since):
    """Writes what each machine logged since then, and what it has, into a folder."""
    for name in lab.names():
        if lab.machine(name).leader():
            done = lab.exec(name, KEPT.format(since=since), check=False, timeout=120)
            (folder / name).write_text(done.stdout)


def is_deaf(lab, host, since):
    """Whether a minion has not told itself the master's new key: Salt's AsyncAuth, two of which
    were under way while the machine hung, fails before it does. It hears no job from then on."""
    logged = f"journalctl -q -o cat -u salt-minion --since=@{int(since)}"
    fault = "AsyncAuth._authenticate.*InvalidState"
    return lab.exec(host, f"{logged} | grep -q '{fault}'", check=False).returncode == 0


def where(lab, name):
    """The host that has a domain of that name, running before defined; the first where none has."""
    found = {}
    for host in lab.hosts:
        with contextlib.suppress(LabError):
            done = lab.exec(host, ["virsh", "domstate", name], check=False, timeout=20)
            if done.returncode == 0:
                found[host] = done.stdout.strip()
    for host, state in found.items():
        if state == "running":
            return host
    return next(iter(found), lab.hosts[0])


def blank(lab, number):
    """A LUN for a new guest: empty, but for what images have at their begin."""
    path = f"/srv/bricks/lun{number}"
    lab.exec(
        "master",
        f"truncate -s 0 {path} && head -c 512k /dev/zero | tr '\\0' Z > {path} && "
        f"truncate -s 64M {path}",
    )


def remove(lab, name):
    """A guest that the rules give up: all of it is taken away past our code."""
    for host in lab.hosts:
        lab.exec(host, f"virsh destroy {name}; "
                       "virsh undefine --nvram --snapshots-metadata --checkpoints-metadata "
                       f"{name}; "
                       f"find /srv/local /srv/gluster -name '{name}[_.]*' -delete; true",
                 check=False, timeout=60)  # fmt: skip
    lab.exec("master", f"salt-key -q -y -d {name}", check=False)


WIPE = f"""echo +0 > {CLOCK}; pkill -9 -f -- '[b]in/salt-minion'; systemctl restart salt-minion
virsh list --all --name | while read -r name; do [ -n "$name" ] || continue
    virsh destroy "$name"
    virsh undefine --nvram --managed-save --snapshots-metadata --checkpoints-metadata "$name"; done
pkill -9 -f '/run/salt-virt/backups/backup[.]export[.]export_server'
pkill -9 -f qemu-storage-daemo[n]; pkill -9 -x qemu-img
iptables -F INPUT; iptables -F OUTPUT; rm -f /srv/local/full
for pool in $(virsh -q pool-list --all --name); do
    case $pool in pond|data) ;; *) virsh pool-destroy $pool; virsh pool-undefine $pool ;; esac; done
find /srv/local /srv/gluster -mindepth 1 ! -path /srv/local/pond -delete
rm -rf /var/lib/salt-virt/migrations /var/lib/salt-virt/arrivals /var/lib/salt-virt/moved \
    /var/lib/salt-virt/target_leftovers \
    /var/lib/salt-virt/maintenance.json /var/lib/salt-virt/aside /var/lib/salt-virt/backups
rm -rf /srv/vault/*
rm -f /run/chaos-*.raw
true"""


def wipe(lab):
    """Take all guests and what is left of them away, past our code, where a run was broken off."""
    lab.exec("master", f"pkill -9 -f -- '[b]in/salt-run'; echo +0 > {CLOCK}", check=False)
    for host in lab.hosts:
        lab.heal(host)
        if not lab.machine(host).leader():
            lab.power_on(host)
        lab.exec(host, WIPE, check=False, timeout=120)
    kept = "cd /etc/salt/pki/master && ls -1 minions minions_pre"
    names = set(lab.exec("master", kept).stdout.split()) - {*lab.hosts}
    for name in sorted(names):
        if not name.endswith(":"):
            lab.exec("master", f"salt-key -q -y -d {name}", check=False)
    of_guests = "/var/cache/salt/master/virt/[!lcs]* {0}/virtkeys/*/* {0}/virt-accepted/*"
    lab.exec("master", f"rm -rf {of_guests.format('/etc/salt/pki/master')}", check=False)
    lab.wait_for_minion(*lab.hosts)
