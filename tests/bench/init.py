"""Forty guests on three hosts by salt-run virt.init, against shell loops, in one run on a lab.

    tests/lab/lab --name bench up 3 && tests/lab/lab --name bench sync
    tests/lab/lab bench init bench [ROUNDS [AT_ONCE]]

Each guest is an overlay over an image that its host has, without a system and not seeded. The peer
is a loop a host, all of them at once: qemu-img create, virsh define, virsh start, of the definition
that virt.init makes. Printed: seconds of both, and how many times as long virt.init takes.
"""

import re
import statistics
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from tests.lab.fixtures import Lab

GUESTS, AT_ONCE = 40, 4
IMAGE, FOLDER = "/srv/bench-image.qcow2", "/srv/bench"
CONFIG = "/etc/salt/master.d/zz-bench.conf"
# idle guests without a system, and disks without data: all of them on one machine
POLICY = "virt: {placement: {cpu_ratio: 64, disk_ratio: 64}}"
LOOP = """set -e
for name in $(cat {folder}/names); do
    qemu-img create -q -f qcow2 -b {image} -F qcow2 {folder}/$name.qcow2
    sed "s|@NAME@|$name|g" {folder}/guest.xml > {folder}/$name.xml
    virsh -q define {folder}/$name.xml
    virsh -q start $name
done
"""
REMOVE = """
for name in $(virsh list --all --name | grep '^bench'); do
    disks=$(virsh domblklist $name | grep -o '/.*qcow2')
    virsh -q destroy $name; virsh -q undefine $name
    rm -f $disks
done
"""
# what libvirt gives each guest anew
OWN = (r"<uuid>.*?</uuid>\n?", r"<mac address=.*?/>\n?")


def names(kind):
    return [f"bench-{kind}{number:02}" for number in range(GUESTS)]


def on_all(lab, act):
    """What ``act`` of each host returns, at once."""
    with ThreadPoolExecutor(len(lab.hosts)) as pool:
        return [*pool.map(act, lab.hosts)]


def running(lab, kind):
    counted = on_all(lab, lambda host: lab.exec(host, "virsh list --name").stdout)
    return len(re.findall(rf"^bench-{kind}\d\d$", "\n".join(counted), re.M))


def by_salt(lab, at_once, several):
    asked = {"seed": False, "enable_qcow": True, "at_once": at_once}
    began = time.monotonic()
    done = lab.run("virt.init", ",".join(several), 1, 64, IMAGE, **asked)
    took_s = time.monotonic() - began
    assert done.rc == 0, done.stdout + done.stderr
    return took_s


def by_shell(lab, definition):
    count = len(lab.hosts)
    for number, host in enumerate(lab.hosts):
        lab.exec(host, f"mkdir -p {FOLDER}; cat > {FOLDER}/guest.xml", input=definition)
        lab.exec(host, f"cat > {FOLDER}/names", input="\n".join(names("peer")[number::count]))
    loop = LOOP.format(folder=FOLDER, image=IMAGE)
    began = time.monotonic()
    on_all(lab, lambda host: lab.exec(host, loop, timeout=1200))
    return time.monotonic() - began


def definition_of(lab, name):
    """The definition of a guest that virt.init has made, for one of any name."""
    [host] = [host for host in lab.hosts if name in lab.exec(host, "virsh list --name").stdout]
    text = lab.exec(host, f"virsh dumpxml --inactive {name}").stdout
    for own in OWN:
        text = re.sub(own, "", text)
    disk = re.search(r"<source file='(.*?)'", text).group(1)
    return text.replace(disk, f"{FOLDER}/@NAME@.qcow2").replace(name, "@NAME@")


def remove(lab):
    on_all(lab, lambda host: lab.exec(host, REMOVE, check=False, timeout=600))


def main():
    lab = Lab(sys.argv[1] if len(sys.argv) > 1 else "lab")
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    at_once = int(sys.argv[3]) if len(sys.argv) > 3 else AT_ONCE
    lab.exec("master", f"echo '{POLICY}' > {CONFIG}")
    remove(lab)
    on_all(lab, lambda host: lab.exec(host, f"qemu-img create -q -f qcow2 {IMAGE} 1G"))
    by_salt(lab, at_once, ["bench-first0", "bench-first1", "bench-first2"])
    definition = definition_of(lab, "bench-first0")
    remove(lab)
    ours, peers = [], []
    for _ in range(rounds):
        ours.append(by_salt(lab, at_once, names("ours")))
        assert running(lab, "ours") == GUESTS
        remove(lab)
        peers.append(by_shell(lab, definition))
        assert running(lab, "peer") == GUESTS
        remove(lab)
    lab.exec("master", f"rm -f {CONFIG}")
    ratios = [ours_s / peer_s for ours_s, peer_s in zip(ours, peers, strict=True)]
    print(f"{GUESTS} guests (overlay, no seed) on {len(lab.hosts)} hosts, at_once={at_once}:")
    print(f"  shell loops, one a host  {statistics.median(peers):6.1f} s")
    print(f"  salt-run virt.init       {statistics.median(ours):6.1f} s")
    print(f"  {statistics.median(ratios):.2f} x  (from {min(ratios):.2f} to {max(ratios):.2f})")


if __name__ == "__main__":
    main()
