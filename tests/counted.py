"""A cloud of plain data that counts what it is asked.

What counts: ``published`` has one entry a job that the master publishes, with its function and the
hosts that it goes to. One publication to a list of hosts is one job of the master, and on each host
of the list one process of its minion: ``minions`` counts those, and is what many hosts feel.
"""

import threading
from collections import Counter

from saltvirt.fleet.answer import FAILED, Answer, down, silent

HOST = {
    "cpus": 64, "memory_kib": 512 << 20, "arch": "x86_64", "types": ["kvm", "qemu"],
    "images_folder": {"path": "/x", "total_bytes": 1 << 43, "free_bytes": 1 << 43,
                      "promised_bytes": 0},
    "bridges": ["br0"], "networks": ["default"],
}  # fmt: skip
NEEDS = {"disk_bytes": 10 << 30, "networks": ["default"], "image_here": False}


class Cloud:
    """hosts: how many. guests: host to {guest: its facts}. dead: hosts that answer nothing.
    busy: those that answer only who is patient.

    refuses: host to what it says against each guest. full_kib: host to the memory that its
    admission gives its guests. unhurried: the functions that may take as long as they want. first:
    called with host, function and arguments before it answers.
    """

    def __init__(self, tmp_path, hosts, guests=None, dead=(), **virt):
        folder = str(tmp_path)
        self.opts = {"pki_dir": folder, "cachedir": folder, "timeout": 1,
                     "virt": {"queue_timeout": 60, **virt}, "minimum_auth_version": 3}  # fmt: skip
        self.names = [f"hv{number:03}" for number in range(hosts)]
        self.guests = {host: dict((guests or {}).get(host, {})) for host in self.names}
        self.dead, self.busy, self.published = set(dead), set(), []
        self.refuses, self.full_kib, self.lock = {}, {}, threading.Lock()
        self.unhurried, self.marks = set(), {}
        self.first = lambda host, fun, kwarg: None

    # -- what a fleet is asked ------------------------------------------------------------

    def __call__(self, _opts, **_more):
        return self

    def __enter__(self):
        return self

    def __exit__(self, *_exc):
        pass

    def disconnect(self):
        pass

    def hosts(self, only=None):
        return [only] if only else list(self.names)

    def connected(self, hosts):
        return set(hosts) - self.dead

    def ask(self, hosts, fun, kwarg=None, patient=False, long=False, **_options):
        hosts = list(hosts)
        with self.lock:
            self.published.append((fun, hosts))
            self.unhurried |= {fun} if long else set()
        for host in hosts:
            if host in self.dead:
                self.first(host, fun, kwarg)
                yield down(host)
            elif host in self.busy and not patient:
                self.first(host, fun, kwarg)
                yield silent(host, 15, busy=True)
            else:
                yield self._said(host, fun, kwarg or {})

    def gather(self, hosts, fun, kwarg=None, **options):
        return {one.host: one for one in self.ask(hosts, fun, kwarg, **options)}

    def call(self, host, fun, kwarg=None, long=True, **options):
        return self.gather([host], fun, kwarg, long=long, **options)[host].get()

    def each(self, host, fun, calls, **_options):
        with self.lock:
            self.published.append((fun, [host]))
            self.unhurried |= {fun}
        if host in self.dead:
            return [down(host)] * len(calls)
        return [self._said(host, fun, kwarg) for kwarg in calls]

    def _said(self, host, fun, kwarg):
        self.first(host, fun, kwarg)
        with self.lock:
            found = getattr(self, fun.replace(".", "_"))(host, **kwarg)
        return found if isinstance(found, Answer) else Answer(host, found)

    def fire_event(self, _tag, _data):
        pass

    # -- what was counted -----------------------------------------------------------------

    @property
    def jobs(self):
        """Function to how many jobs of it were published."""
        return Counter(fun for fun, _ in self.published)

    @property
    def minions(self):
        """Function to how many minions were asked it, all jobs together."""
        return Counter(fun for fun, hosts in self.published for _ in hosts)

    # -- what a host answers --------------------------------------------------------------

    def virt_inventory(self, host, guest=None):
        mine = self.guests[host]
        promised = sum(one.get("disk_bytes", 0) for one in mine.values())
        shown = {name: {k: v for k, v in one.items() if k != "disk_bytes"}
                 for name, one in mine.items()}  # fmt: skip
        found = {**HOST, "guests": shown, "maintenance": self._closed(host)}
        found["images_folder"] = {**HOST["images_folder"], "promised_bytes": promised}
        return {**found, "guest": NEEDS} if guest else found

    def virt_vm_state(self, host, vm_=None):
        states = {name: one["state"] for name, one in self.guests[host].items()}
        return states if vm_ is None else {vm_: states[vm_]} if vm_ in states else {}

    def virt_init(self, host, name, cpu, mem, **_more):
        if host in self.refuses:
            return Answer(host, error=self.refuses[host], kind=FAILED)
        promised = sum(one["memory_kib"] for one in self.guests[host].values()) + (mem << 10)
        if promised > self.full_kib.get(host, promised):
            return Answer(host, error=f"refused: no room: {host}: memory", kind=FAILED)
        self.guests[host][name] = {
            "vcpus": cpu, "memory_kib": mem << 10, "state": "shutdown", "disk_bytes": 10 << 30,
        }  # fmt: skip
        return {"name": name, "pub_key": None, "disks": []}

    def virt_start(self, host, name, test=False, **_more):
        return True if test else self._become(host, name, "running")

    def virt_guest_details(self, host, vm_):
        return {vm_: dict(self.guests[host][vm_])} if vm_ in self.guests[host] else {}

    def virt_power(self, host, name, verb, states, last_seen=False, **_more):
        before = self.guests[host].get(name, {}).get("state")
        if last_seen and before not in ("running", "paused", "pmsuspended"):
            before = None
        if before not in states:
            return {"before": before, "after": None}
        after = {"shutdown": "shutdown", "stop": "shutdown", "pause": "paused"}.get(verb, "running")
        self._become(host, name, after)
        return {"before": before, "after": after}

    def virt_resize_disk(self, _host, **_more):
        return {"before": 1, "after": 2}

    def virt_seed_eject(self, host, name, last_seen=False):
        return None if last_seen and name not in self.guests[host] else True

    def _become(self, host, name, state):
        self.guests[host][name] = {**self.guests[host][name], "state": state}
        return True

    def virt_purge(self, host, vm_, test=False, **_more):
        if test:
            return {"delete": [], "keep": {}, "shared": {}, "unsure": []}
        return bool(self.guests[host].pop(vm_))

    def _closed(self, host):
        return self.marks.get(host, {}).get("reason")

    def virt_maintenance(self, host, reason=None, guests=None, off=False):
        before = self.marks.get(host, {}).get("guests", [])
        if off and not guests:
            self.marks.pop(host, None)
        elif off or reason:
            self.marks[host] = {"reason": reason, "guests": before if guests is None else guests}
        return self.marks.get(host)

    def virt_migrate_locations(self, host):
        return {"guests": self.virt_vm_state(host), "target_leftovers": [], "unfinished": [],
                "maintenance": self._closed(host)}  # fmt: skip

    def virt_migrate(self, host, vm_, target, **_more):
        if target in self.refuses:
            return Answer(host, error=f"refused: {host}: {self.refuses[target]}", kind=FAILED)
        self.guests[target][vm_] = self.guests[host].pop(vm_)
        return {"outcome": "moved", "name": vm_, "target": target, "transport": "TLS"}

    def virt_migratable(self, _host, vm_):
        return {"migratable": True, "reasons": []}

    def virt_leftovers(self, _host):
        return {"guests": {}, "unfinished": [], "migrations": {}}

    def virt_names_on_disk(self, host):
        return Answer(host, error="no such function", kind=FAILED)
