"""A query of twenty real minions compared with ``test.ping`` to the same twenty, in the lab. The
minions are processes in the lab's hypervisors, each with a libvirt of its own (the test driver), so
that Salt and this project are measured, not QEMU."""

import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.lab.fixtures import Lab

MINIONS = 20
RUNS = 5
FOLDER = "/var/tmp/minions"
START = """
set -e
root={folder}/{name}
mkdir -p $root/etc $root/cache
cat > $root/etc/minion <<X
master: master
id: {name}
cachedir: $root/cache
pki_dir: $root/pki
sock_dir: $root/run
pidfile: $root/pid
log_file: $root/log
extension_modules: /var/cache/salt/minion/extmods
log_level: error
enable_fqdns_grains: False
acceptance_wait_time: 1
random_reauth_delay: 1
virt: {{connection: {{uri: 'test:///default'}}}}
X
mkdir -p $root/run
systemd-run -q --unit {name} salt-minion -c $root/etc
"""
STOP = "systemctl stop 'bm*.service'; rm -rf {folder}"
ACCEPT = "salt-key -yqA >/dev/null; salt-key -l accepted --no-color | grep -c '^bm'"
CONFIG = "/etc/salt/master.d/zz-bench.conf"


def seconds(cloud, command):
    began = time.perf_counter()
    cloud.exec("master", command, timeout=300)
    return time.perf_counter() - began


def up(cloud):
    """Starts the minions and waits until all of them answer."""
    names = [f"bm{number:02}" for number in range(MINIONS)]
    for number, name in enumerate(names):
        host = cloud.hosts[number % len(cloud.hosts)]
        cloud.exec(host, START.format(folder=FOLDER, name=name))

    def accepted():
        return cloud.exec("master", ACCEPT, check=False).stdout.strip() == str(MINIONS)

    def answering():
        return (
            sum(v is True for v in cloud.salt("bm*", "test.ping", timeout=20).values()) == MINIONS
        )

    cloud.wait(accepted, "the keys of all minions", timeout_s=300, every_s=2)
    cloud.wait(answering, "an answer of every minion", timeout_s=300, every_s=2)


def down(cloud):
    cloud.exec("master", f"rm -f {CONFIG}; salt-key -yqd 'bm*' >/dev/null || true")
    for host in cloud.hosts:
        cloud.exec(host, STOP.format(folder=FOLDER), check=False)


def main():
    cloud = Lab(sys.argv[1] if len(sys.argv) > 1 else "lab")
    try:
        up(cloud)
        cloud.exec("master", f"echo 'virt: {{hosts: \"bm*\"}}' > {CONFIG}")
        found = cloud.run_json("virt.query")
        found.pop("retcode", None)
        wrong = {name: one for name, one in found.items() if "test" not in one.get("vm_info", {})}
        assert len(found) == MINIONS and not wrong, (len(found), wrong)
        ratios, floors = [], []
        for run in range(RUNS + 1):
            floor_s = seconds(cloud, "salt -t 60 'bm*' test.ping >/dev/null")
            query_s = seconds(cloud, "salt-run virt.query >/dev/null 2>&1")
            if run:  # the first is the warm-up
                ratios.append(query_s / floor_s)
                floors.append(floor_s)
        low, middle, high = min(ratios), statistics.median(ratios), max(ratios)
        print(f"virt.query of {MINIONS} minions, against test.ping to them:")
        print(f"  {middle:.2f} x  (from {low:.2f} to {high:.2f}; test.ping {min(floors):.1f} s)")
    finally:
        down(cloud)


if __name__ == "__main__":
    main()
