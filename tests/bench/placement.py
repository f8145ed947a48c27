"""Placement and listing of a large cloud from recorded answers, on one machine. For comparison:
OpenNebula lists 20,000 machines of a zone in 0.78 s. The same numbers here: 1,250 hosts, 20,000
guests; and half as many, to check that the cost is linear."""

import gc
import importlib.util
import resource
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "_utils"))

from saltvirt.placement import choose, facts, policy

HOSTS, GUESTS = 1250, 20_000


def recorded(hosts, guests):
    """The hosts' answers to virt.inventory, as plain data."""
    each = guests // hosts
    return {
        f"hyper{i:04}": {
            "cpus": 64, "memory_kib": 512 * 1024**2, "arch": "x86_64", "types": ["kvm", "qemu"],
            "guests": {
                f"guest{i:04}-{j:02}": {
                    "uuid": "", "state": "running", "vcpus": 2, "memory_kib": (j % 8 + 1) * 2**21,
                    "autostart": True, "groups": [f"g{j}"],
                }
                for j in range(each)
            },
            "images_folder": {"total_bytes": 10**13, "free_bytes": 5 * 10**12,
                              "promised_bytes": 10**12},
            "bridges": ["br0"], "networks": ["default"],
            "pools": {"default": {"free_bytes": 10**12}},
            "guest": {"disk_bytes": 10**10, "bridges": ["br0"], "image_here": i % 3 == 0},
        }
        for i in range(hosts)
    }  # fmt: skip


def outputter():
    spec = importlib.util.spec_from_file_location("virt_query", ROOT / "_output/virt_query.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.output


def place(answers):
    hosts = [
        facts.host_of(name, facts.Inventory.from_answer(data, name))
        for name, data in answers.items()
    ]
    request = facts.PlacementRequest("new", vcpus=4, memory_kib=8 * 2**20, groups=("g1",),
                            by_profile=True)  # fmt: skip
    return choose.choose(hosts, request, policy.PlacementPolicy())


def listing(answers, output):
    data = {name: {"running": sorted(data["guests"])} for name, data in answers.items()}
    return output(data)


def best_of(function, *arguments, runs=5):
    times = []
    for _ in range(runs):
        began = time.process_time()
        function(*arguments)
        times.append(time.process_time() - began)
    return min(times)


def main():
    whole, half = recorded(HOSTS, GUESTS), recorded(HOSTS // 2, GUESTS // 2)
    output = outputter()
    gc.freeze()  # the recording itself is not what is measured
    assert len(place(whole).ranked) == HOSTS
    assert listing(whole, output).count("guest") == GUESTS + 1  # the head of the column
    print(f"{HOSTS} hosts, {GUESTS} guests, from recorded answers")
    for what, function, extra in (("placement", place, ()), ("virt.list", listing, (output,))):
        full_s, half_s = best_of(function, whole, *extra), best_of(function, half, *extra)
        print(f"  {what:10} {full_s:6.3f} s   against half the hosts: {full_s / half_s:.2f} x")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"  peak memory of the process, answers included: {peak:.0f} MiB")


if __name__ == "__main__":
    main()
