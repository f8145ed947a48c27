"""Simulated time, and the resources that machines share: networks, shared storage, disks with
leases. Violations are detected here: each guest writes its epoch to its disk."""

import heapq
import random

from saltvirt.ha.model.messages import IO_FAILED, RUNNING
from saltvirt.placement.facts import Host as Room
from tests.ha.hosts import Host
from tests.ha.machines import Master

# the storage gives a lease to another host when the one that has it did not renew it for so long
LEASE_S = 15
# a master of many reads what has come only twice a beat
READS_LATE = 11


class World:
    """All of it, and the time."""

    def __init__(self, scenario):
        self.scenario, self.policy = scenario, scenario.policy
        self.random = random.Random(scenario.seed)
        self.time, self.queue, self.count = 0.0, [], 0
        self.timeline, self.violations, self.last_change = [], [], 0.0
        self.cuts, self.heartbeats, self.disks, self.leases = set(), {}, {}, {}
        self.lease_answers, self.fences, self.confirmed = {}, {}, {}
        self.fail_start, self.fail_migrate = {}, {}
        self.disabled = set()  # guests that a person has taken from high availability
        self.wanted, self.wishes = dict(scenario.guests), {}
        self.maintenance, self.armed = set(), True
        self.self_fenced, self.fenced, self.decided = [], [], 0
        self.unjust, self.commanded = [], 0.0
        # known: the definition of each guest that masters were told last, by number
        self.first_epochs, self.known = {}, {}
        self.hosts = {name: Host(self, name, one) for name, one in scenario.hosts.items()}
        self.masters = {name: Master(self, name) for name in scenario.masters}
        self.rooms = {
            name: Room(name, one.cpus, one.memory_mib * 1024, types=("kvm",), arch="x86_64")
            for name, one in scenario.hosts.items()
        }
        self.at(1, self.write)
        for name, host in self.hosts.items():
            if scenario.hosts[name].power:
                network = host.network
                host.power_on()
                host.network = network
        self.said, self.acted, self.given_up = [], 0, 0
        self.said.append({**self.now_said(), "guests": dict(self.wanted)})
        self.persons = random.Random(f"{scenario.seed}, persons")
        several = len(scenario.masters) > 1
        self.shares = several and all(hasattr(one, "file") for one in self.masters.values())
        if self.shares:
            self.at(0.5, self.say_again)
        for place, master in enumerate(self.masters.values()):
            self.at(0.3 + place, master.start)

    # time

    def at(self, delay, function, *args):
        self.count += 1
        heapq.heappush(self.queue, (self.time + delay, self.count, function, args))

    def run_until(self, until):
        queue = self.queue
        while queue and queue[0][0] <= until:
            self.time, _, function, args = heapq.heappop(queue)
            function(*args)
        self.time = max(self.time, until)

    # what persons want

    def now_said(self):
        return {"guests": self.wanted, "wishes": self.wishes, "armed": self.armed,
                "confirmed": self.confirmed}  # fmt: skip

    def say_again(self):
        """What persons want now. At times it is said at a master that does not lead."""
        self.at(1, self.say_again)
        said = {key: one if key == "armed" else dict(one) for key, one in self.now_said().items()}
        news = said != self.said[-1]
        self.said += [said] if news else []
        unheard = not any(one.file.text for one in self.masters.values())
        running = [one for one in self.masters.values() if one.state is not None]
        if running and (unheard or (news and self.persons.random() < 0.3)):
            self.persons.choice(running).hear_a_person()

    def acts(self, name, seen):
        """Once it was acted by what persons wanted, nobody goes by what they wanted before."""
        number = self.masters[name].acted_by()
        if number < self.acted:
            self.violations.append(f"{name} acts by wishes {number}, {self.acted} were acted by")
        self.acted = number

    def leads(self, name, term):
        """Nobody decides once a majority has granted the lead to one who came after him."""
        later = [host for host in self.hosts.values() if host.kept.term > term]
        if 2 * len(later) > len(self.hosts):
            self.violations.append(f"{name} decides, and leads no more")

    def settle(self, quiet_s, most_s):
        """Runs on until nothing has happened for so long, and no host is about to go down. Returns
        whether it came to that."""
        end = self.time + most_s
        self.last_change = self.time
        while self.time < end:
            until = self.last_change + quiet_s
            if until <= self.time:
                if not any(host.goes_down() for host in self.hosts.values()):
                    return True
                until = self.time + 1
            self.run_until(min(until, end))
        return False

    def say(self, actor, action, why=""):
        self.last_change = self.time
        entry = {"time": round(self.time, 2), "actor": actor, "action": action, "why": why}
        self.timeline.append(entry)

    # networks

    def connected(self, one, other):
        """Whether what one sends comes to the other."""
        if not (one.network and other.network) or (one.name, other.name) in self.cuts:
            return False
        return getattr(one, "is_on", True) and getattr(other, "is_on", True)

    def send(self, one, other, kind, message):
        if self.connected(one, other) and getattr(other, "state", None) is not None:
            delay = self.random.uniform(0.001, 0.05)
            delay *= READS_LATE if isinstance(other, Master) else 1
            other.inbox.append((self.time + delay, kind, one.name, message))

    # disks

    def write(self):
        """Each guest writes its epoch to its disk once a second; who writes behind another is
        found."""
        self.at(1, self.write)
        for name, record in self.newest().guests.items():
            self.first_epochs.setdefault(name, record.epoch)
        for host in self.hosts.values():
            if not host.is_on or host.hung or not host.storage:
                continue
            for name, copy in host.copies.items():
                if copy.state != RUNNING:
                    continue
                if not copy.shut and self.take_lease(name, host.name):
                    self.wrote(name, host.name, copy.writes)
                else:
                    copy.trouble = IO_FAILED

    def wrote(self, name, host, epoch):
        last = self.disks.get(name)
        if last is not None and (epoch < last[0] or (epoch == last[0] and host != last[1])):
            found = {"time": round(self.time, 2), "guest": name, "host": host, "epoch": epoch,
                     "disk": {"epoch": last[0], "host": last[1]}}  # fmt: skip
            self.violations.append(found)
        else:
            self.disks[name] = (epoch, host)

    def take_lease(self, name, host):
        """The storage's leases, of guests that have one: whether the host may write."""
        wanted = self.wanted.get(name)
        if wanted is None or not wanted.leased:
            return True
        holder, at = self.leases.get(name, (host, 0))
        if holder != host and self.hosts[holder].is_on and self.time - at < LEASE_S:
            return False
        old = self.hosts[holder].copies.get(name)
        if holder != host and old is not None:
            old.shut = True
        self.leases[name] = (host, self.time)
        return True

    # what is seen at the end

    def newest(self):
        """The newest registry of all masters."""
        return max((m.kept.registry for m in self.masters.values()), key=lambda r: r.stamp)

    def end(self):
        newest = self.newest()
        hosts = {
            name: {
                "power": "on" if host.is_on else "off",
                "state": newest.host(name).state,
                "why": newest.host(name).reason,
                "watchdog": "armed" if host.device_armed else "rests",
            }
            for name, host in self.hosts.items()
        }
        guests = {}
        for name in self.wanted:
            record = newest.guests.get(name)
            runs = [host.name for host in self.hosts.values() if host.runs(name)]
            guests[name] = {
                "host": runs[0] if runs else (record.host or record.last if record else ""),
                "state": record.state if record else "new",
                "running": bool(runs),
                "wanted": self.wanted[name].desired_state,
                "epoch": record.epoch - self.first_epochs.get(name, 0) if record else 0,
                "why": record.reason if record else "",
            }
        return {"hosts": hosts, "guests": guests, "armed": newest.armed}
