"""The cost of a verb for the master: time, CPU, memory, published jobs."""

import os
import threading
import time
from contextlib import suppress
from dataclasses import dataclass

from tests.lab import process

_EVERY_S = 1
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass
class Cost:
    """wall_s: of the verb. master_s: CPU of all of the master's processes; run_s: of `salt-run`.
    master_mib: what all of the master's processes had at most, a page that some share counted
    once; run_mib: `salt-run`'s resident memory at most. jobs: published ones; told: of
    how many hosts each of them reached, in all. code: of the exit."""

    wall_s: float = 0
    master_s: float = 0
    run_s: float = 0
    master_mib: float = 0
    run_mib: float = 0
    jobs: int = 0
    told: int = 0
    code: int = 0


class Master:
    """The processes of a master. pid: of the first one. jobs: its job cache."""

    def __init__(self, pid, jobs):
        self.pid, self.jobs = pid, jobs

    def cpu_s(self):
        """Seconds of CPU that all its processes, and those of them that ended, have used."""
        ticks = 0
        for pid, _ in process.family(self.pid):
            with suppress(OSError), open(f"/proc/{pid}/stat", encoding="ascii") as file:
                fields = file.read().rpartition(")")[2].split()
                ticks += sum(map(int, fields[11:15]))
        return ticks / _TICKS

    def memory_mib(self):
        """What all of them have in memory together."""
        return sum(_own_kib(pid) for pid, _ in process.family(self.pid)) / 1024

    def published(self):
        """How many jobs are written down, without what `salt-run` writes down of itself."""
        found = 0
        for _, folders, files in os.walk(self.jobs):
            if "jid" in files:
                found += not any(name.endswith("_master") for name in folders)
                folders.clear()
        return found


def _own_kib(pid):
    """What a process has in memory; of a page that some share, its part."""
    with suppress(OSError), open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
        return int(next(line for line in file if line.startswith("Pss:")).split()[1])
    return 0


def cost(master, begin):
    """The Cost of a process. begin: begins it, and returns it."""
    jobs, cpu_s, began = master.published(), master.cpu_s(), time.monotonic()
    over, most = threading.Event(), [0]

    def watch():
        while not over.wait(_EVERY_S):
            most[0] = max(most[0], master.memory_mib())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        child = begin()
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        wall_s = time.monotonic() - began
        most[0] = max(most[0], master.memory_mib())
    finally:
        over.set()
        watcher.join()
    return Cost(
        wall_s, master.cpu_s() - cpu_s, used.ru_utime + used.ru_stime, most[0],
        used.ru_maxrss / 1024, master.published() - jobs, code=child.returncode,
    )  # fmt: skip
