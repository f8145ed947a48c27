"""The page's requests to salt-api, answered from a simulated cloud without a master."""

import contextlib
import http.server
import json
import queue
import random
import socket
import threading
from pathlib import Path

from saltvirt.rights.verbs import RULES
from tests.clock import until

NOVNC = Path("/usr/share/novnc")
FILES = Path(__file__).resolve().parents[2] / "formulas/virt/page/files"
KINDS = {
    ".html": "text/html",
    ".js": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
}
USER, PASSWORD, TOKEN = "anna", "told only to her", "0123456789abcdef"
SIZES_MIB = (1024, 2048, 2048, 4096, 4096, 8192, 16384)
# what a guest becomes by a verb
STATES = {
    "start": "running", "shutdown": "shutdown", "force_off": "shutdown", "pause": "paused",
    "resume": "running", "reset": "running",
}  # fmt: skip
HOSTILE = "<img src=x onerror=alert(1)>"


def cloud(hosts, guests):
    """Hosts by name, each a dict of guests by name, always the same ones."""
    chance = random.Random(18)
    found = {f"hyper{number}": {} for number in range(1, hosts + 1)}
    words = ("web", "db", "build", "mail", "cache", "queue")
    for number in range(1, guests + 1):
        name = f"{chance.choice(words)}{number}"
        found[f"hyper{(number - 1) % hosts + 1}"][name] = {
            "cpu": chance.choice((1, 2, 2, 4, 8)), "mem": 1024 * chance.choice(SIZES_MIB),
            "state": chance.choices(("running", "shutdown", "paused"), (17, 2, 1))[0],
            "uuid": f"{number:08d}-0000-4000-8000-000000000000",
        }  # fmt: skip
    return found


class Api(http.server.ThreadingHTTPServer):
    """hosts: as of :func:`cloud`. ``calls``: (function, its arguments), in their order.
    ``answers``: function to what is answered in place of its own. ``refuses``: functions that the
    user may not call. ``limits``: function to the only arguments that the user may give.
    ``valid``: is the session still good. ``now``, ``expire``: when it began by the master's clock,
    and when it ends.
    ``has_events``: may the user read them. ``has_novnc``: are its files beside the page's.
    ``cuts``: the streams of events break off while a job is begun, and its end is told to nobody.
    """

    daemon_threads = True

    def __init__(self, hosts):
        super().__init__(("127.0.0.1", 0), Handler)
        self.hosts, self.calls, self.answers, self.refuses = hosts, [], {}, set()
        self.valid, self.has_events, self.has_novnc, self.cuts = True, True, True, False
        self.methods, self.maintenance, self.has_ended = ["file", "pam"], {}, False
        self.listeners, self.jids = [], iter(range(1, 1 << 30))
        self.limits, self.now, self.expire = {}, 3e9, 4e9
        self.connections, self.deleted = [], set()
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.thread = threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True)
        self.thread.start()

    def get_request(self):
        found = super().get_request()
        self.connections.append(found[0])
        return found

    def stop(self):
        """End it, and the connections that a browser keeps open."""
        self.has_ended = True
        for one in list(self.listeners):
            one.put(None)
        self.shutdown()
        self.server_close()
        self.thread.join()
        for one in self.connections:
            with contextlib.suppress(OSError):  # it has ended
                one.shutdown(socket.SHUT_RDWR)

    def cut(self):
        """Break the streams of events off, and wait until the page has opened one again."""
        before = list(self.listeners)
        for one in before:
            one.put(None)
        until(lambda: set(map(id, self.listeners)) - set(map(id, before)), "a stream again")

    def tell(self, tag, data):
        """An event to all pages."""
        for one in list(self.listeners):
            one.put((tag, data))

    def named(self, name):
        """(Host, guest) of a name; of one that is nowhere (None, None)."""
        for host, guests in self.hosts.items():
            if name in guests:
                return host, guests[name]
        return None, None

    def call(self, fun, arguments):
        """What a function of the runner returns."""
        self.calls.append((fun, arguments))
        if fun in self.refuses:
            return failed("virt", f"{USER} may not call virt.{fun}")
        if fun in self.answers:
            given = self.answers[fun]
            return given(arguments) if callable(given) else given
        if fun in STATES:
            return self.power(fun, arguments["name"])
        return getattr(self, f"do_{fun}")(arguments)

    def power(self, fun, name):
        host, guest = self.named(name)
        if guest is None:
            return failed(name, f"no guest '{name}' on any hypervisor")
        guest["state"] = STATES[fun]
        return done(name, f"{name} on {host}: {fun}")

    def do_query(self, _arguments):
        return {host: _queried(guests) for host, guests in self.hosts.items()}

    def do_host_info(self, _arguments):
        return {host: {**_info(guests), "maintenance": self.maintenance.get(host)}
                for host, guests in self.hosts.items()}  # fmt: skip

    def do_top(self, _arguments):
        return {"top": {"hosts": {host: _used(guests) for host, guests in self.hosts.items()}}}

    def do_owners(self, _arguments):
        names = [name for guests in self.hosts.values() for name in guests]
        labels = {name: ["web", "prod"] for name in names if name.startswith("web")}
        return {"owners": {"guests": dict.fromkeys(names[::3], "ops"), "labels": labels}}

    def do_vm_info(self, arguments):
        host, guest = self.named(arguments["name"])
        if guest is None:
            return failed("vm_info", f"no guest '{arguments['name']}' on any hypervisor")
        found = _queried({"it": guest})["vm_info"]["it"]
        found["addresses"] = [*found["addresses"], "198.51.100.7"]
        known = {"owner": "ops", "labels": ["web"], "ha": {"state": "started", "priority": 7},
                 "backups": {"count": 0, "last": None}, "unknown": {"usage": HOSTILE}}  # fmt: skip
        return {host: {arguments["name"]: {**found, **known, "snapshots": [{}, {}]}}}

    def do_watch(self, _arguments):
        text = "this master's configuration has no engine virt_reach: see docs/how-to/consoles.md"
        return failed("page", text)

    def do_migratable(self, arguments):
        name, target = arguments["name"], arguments["target"]
        host, _ = self.named(name)
        if target == "hyper2":
            return failed(name, f"{name} cannot be moved to hyper2: its CPU has no avx2")
        return {name: {"result": True, "comment": f"{name} can be moved from {host} to {target}"}}

    def do_migrate(self, arguments):
        name, target = arguments["name"], arguments["target"] or "hyper3"
        if target == "hyper2":
            return self.do_migratable(arguments)
        host, guest = self.named(name)
        if arguments.get("test"):
            comment = f"{name} would be moved from {host} to {target} over TLS"
            return {name: {"result": None, "comment": comment}}
        for percent in (20, 60, 90):
            self.tell(f"salt/virt/migrate/{name}/progress", {"name": name, "percent": percent})
        del self.hosts[host][name]
        self.hosts[target][name] = guest
        return done(name, f"{name} was moved from {host} to {target} over TLS in 4.1 s")

    def do_evacuate(self, arguments):
        host = arguments["host"]
        moves = dict.fromkeys(self.hosts[host], "hyper3")
        rows = [["guest", "goes to", "reason"], *([name, to, ""] for name, to in moves.items())]
        return {host: {
            "result": None, "comment": f"{host}: {len(moves)} would move, 0 would stay",
            "table": rows, "left": {},
        }}  # fmt: skip

    def do_snapshots(self, arguments):
        known = [{"name": "monday", "created": "2026-11-23 08:00:00", "external": False,
                  "state": "running", "parent": None, "current": False, "description": None},
                 {"name": HOSTILE, "created": "2026-11-24 08:00:00", "external": True,
                  "state": "shutoff", "parent": "monday", "current": True, "description": None},
                 ]  # fmt: skip
        return {arguments["name"]: {"result": True, "comment": "", "snapshots": known}}

    def do_explain(self, arguments):
        columns = ["host", "score", "memory", "vcpu", "disk", "image", "labels", "spread",
                   "rejected by", "reason"]  # fmt: skip
        rows = [
            ["hyper3", 2.75, 1.0, 0.75, 0.5, 0.5, 0.0, 0.0, None, None],
            ["hyper1", 1.5, 0.5, 0.5, 0.25, 0.0, 0.0, 0.25, None, None],
            ["hyper2", *[None] * 7, "memory", "2048 MiB are wanted, 512 MiB are free"],
        ]
        title = f"{arguments['name']} would go to hyper3"
        return {arguments["name"]: {"host": "hyper3", "title": title, "table": [columns, *rows]}}

    def do_init(self, arguments):
        answers = {}
        for name in arguments["name"].split(","):
            answers |= self.create(name, arguments)
        return answers

    def create(self, name, arguments):
        if self.named(name)[0]:
            return failed(name, f"name '{name}' is there already, on {self.named(name)[0]}")
        if arguments.get("test"):
            return {name: {"result": None, "comment": f"{name} would be created on hyper3"}}
        for step, percent in (("placed", None), ("copy", 30), ("copy", 100), ("seed", None)):
            data = {"message": f"{step} of disk system", "percent": percent}
            self.tell(f"salt/virt/{name}/init/{step}", data)
        self.hosts["hyper3"][name] = {
            "cpu": int(arguments["cpu"]), "mem": 1024 * 2048, "state": "running", "uuid": name,
        }  # fmt: skip
        return done(name, f"{name} is running on hyper3")

    def do_ha_status(self, _arguments):
        hosts = {
            name: {"state": "up", "reason": "", "watchdog": "armed", "fences": ["fence_ipmilan"],
                   "moved": dict.fromkeys(list(guests)[:2], "hyper3"), "unplaced": []}
            for name, guests in self.hosts.items()
        }  # fmt: skip
        guests = {
            name: {"state": "started", "desired_state": "started", "host": host, "priority": 0,
                   "may_run_on": list(self.hosts), "binding": "", "reason": ""}
            for host, guests in self.hosts.items() for name in list(guests)[:2]
        }  # fmt: skip
        return {"ha": {
            "result": True, "comment": f"armed: {len(hosts)} hosts, {len(guests)} guests",
            "configured": True, "armed": True, "engine": {"running": True, "leader": "master1"},
            "quorum": {"members": len(hosts), "heard": len(hosts), "needed": 3}, "problems": [],
            "hosts": hosts, "guests": guests,
            "rules": {"webs": {"guests": list(guests)[:2], "kind": "anti_affinity", "hosts": {},
                               "strict": True}},
        }}  # fmt: skip

    def do_ha_simulate(self, arguments):
        lost = arguments["lose"]
        first, second, *_ = [*self.hosts[lost], "a", "b"]
        return failed(
            lost, f"if {lost} failed, 1 guest would be started elsewhere, 1 nowhere",
            moved={first: "hyper3"}, unplaced={second: HOSTILE},
        )  # fmt: skip

    def do_certs(self, _arguments):
        def host(end):
            return {"certificates": {"server": {"not_after": f"{end}T00:00:00Z",
                                                "renewed": "2026-11-20"}}}  # fmt: skip

        wrong = {"hyper2": "server: it was to be renewed 3 days ago: apply virt.keys"}
        hosts = {"hyper1": host("2027-02-01"), "hyper2": host("2026-12-01")}
        return {"certificates": {"hosts": hosts}, "problems": wrong, "retcode": 1}

    def do_backups(self, arguments):
        one = {"backup_id": "1", "guest": arguments.get("name", "web1"), "host": "hyper1",
               "taken_at": "2026-11-23 02:00", "consistency": "file systems", "problem": None,
               }  # fmt: skip
        return {"vault": [one]}

    def do_migrate_unfinished(self, _arguments):
        return {
            "unfinished": {"result": True, "comment": "no migration is unfinished", "hosts": {}}
        }

    def do_repair(self, _arguments):
        return {"repair": {"result": None, "comment": "no leftovers", "findings": [],
                           "table": [["what", "is wrong", "repairing", "command"]]}}  # fmt: skip

    def do_help(self, _arguments):
        verbs = sorted(set(RULES) - self.refuses)
        return {"All": {"table": [], "verbs": verbs, "arguments": self.limits}}

    def do_networks(self, _arguments):
        one = {"active": True, "autostart": True, "persistent": True, "forward": "nat",
               "bridge": "virbr0", "addresses": ["192.168.122.1/24"], "leases": 3}  # fmt: skip
        found = {
            name: {"networks": {"default": {**one, "guests": list(guests)[:2]}},
                   "bridges": {"br0": {"guests": list(guests)}}}
            for name, guests in self.hosts.items()
        }  # fmt: skip
        return {"networks": {"hosts": {**found, "hyper9": {"error": "hyper9 does not respond"}}}}

    def do_pools(self, _arguments):
        one = {"type": "dir", "state": "running", "capacity": 1 << 40, "allocation": 900 << 30,
               "free": 124 << 30, "autostart": True, "persistent": True,
               "target_path": "/srv/images"}  # fmt: skip
        return {"pools": {"hosts": {name: {"pools": {"images": one}} for name in self.hosts}}}

    def do_volumes(self, _arguments):
        one = {"type": "file", "format": "qcow2", "path": "/srv/images/x", "allocation": 1 << 30,
               "capacity": 8 << 30}  # fmt: skip
        found = {name: {"pools": {"images": {"volumes": {
                     f"{next(iter(guests))}_system": {**one, "used_by": list(guests)[:1]},
                     **({} if name in self.deleted else {HOSTILE: {**one, "used_by": []}})}},
                     "iscsi": {"error": "gone"}}}
                 for name, guests in self.hosts.items()}  # fmt: skip
        return {"volumes": {"hosts": found}}

    def do_deployments(self, _arguments):
        name, one = next(iter(self.hosts["hyper1"].items()))
        there = {"status": "present", "listed": True, "created_by_deployment": True,
                 "host": "hyper1", "state": one["state"], "cpu": one["cpu"], "memory_mib": 2048,
                 "size_bytes": 8 << 30, "image": "salt://debian.qcow2", "reason": None}  # fmt: skip
        gone = {**there, "status": "missing", "host": None, "state": None, "size_bytes": None,
                "reason": HOSTILE}  # fmt: skip
        counts = {"present": 1, "missing": 1, "unknown": 0, "to_remove": 0, "kept": 0}
        shop = {
            "result": False, "comment": "", "time": "2026-11-27T20:00:00Z", "user": "ops",
            "remove": False, "counts": counts, "guests": {name: there, "web9": gone},
        }  # fmt: skip
        lab = {
            **dict.fromkeys(("result", "time", "user", "remove")), "comment": "",
            "counts": {**counts, "missing": 0}, "guests": {name: {**there, "listed": None}},
        }  # fmt: skip
        return {"deployments": {"deployments": {"shop": shop, HOSTILE: lab},
                                "unreachable": {"hyper9": "down"}}, "retcode": 1}  # fmt: skip

    def do_volume_delete(self, arguments):
        host, about = arguments["host"], f"{arguments['pool']}/{arguments['volume']}"
        if arguments.get("test"):
            comment = f"volume {about} would be deleted on {host}"
            return {about: {"result": None, "comment": comment}}
        self.deleted.add(host)
        return done(about, f"volume {about} was deleted on {host}")

    def do_images(self, _arguments):
        cached = {"path": "/srv/salt-images/1.qcow2", "source": "salt://debian.qcow2",
                  "format": "qcow2", "size_bytes": 2 << 30, "fetched": "2026-11-20"}  # fmt: skip
        guests = list(self.hosts["hyper1"])[:2]
        return {"images": {
            "hosts": {"hyper1": {"images": {"1.qcow2": {**cached, "used_by": guests}}}},
            "master": [{"source": "salt://debian.qcow2", "size_bytes": 2 << 30, "cached_on": []},
                       {"source": f"salt://{HOSTILE}", "size_bytes": 1 << 30, "cached_on": []}],
        }}  # fmt: skip

    def do_maintenance(self, arguments):
        host, on = arguments["host"], arguments["state"] == "on"
        if arguments.get("test"):
            return {host: {"result": None, "comment": f"{host} would get no new guests"}}
        self.maintenance[host] = arguments.get("reason", "maintenance") if on else None
        return done(host, f"{host} is {'' if on else 'no longer '}in maintenance")

    def do_rebalance(self, arguments):
        name = next(iter(self.hosts["hyper1"]))
        if arguments.get("apply"):
            self.hosts["hyper3"][name] = self.hosts["hyper1"].pop(name)
            return done("rebalance", "rebalanced")
        rows = [["guest", "from", "to", "imbalance after", "reason"],
                [name, "hyper1", "hyper3", 0.04, None],
                ["db99", None, None, None, "it has a local disk"]]  # fmt: skip
        return {"rebalance": {
            "result": None, "comment": "1 move; the imbalance is 0.213, guests move from 0.1",
            "changes": {"moved": {name: "hyper3"}}, "score": 0.213, "table": rows,
            "stay": {"db99": "it has a local disk"},
        }}  # fmt: skip

    def do_log(self, arguments):
        entry = {"time": "2026-11-28T19:00:00Z", "seconds": 4.2, "user": "ops", "verb": "snapshot",
                 "guest": arguments.get("name"), "host": "hyper1", "result": True,
                 "comment": HOSTILE}  # fmt: skip
        if arguments.get("name"):
            return {"log": {"entries": [entry]}}
        one = {**entry, "seconds": 42, "user": "root", "verb": "migrate", "guest": "web1",
               "comment": "web1 was moved to hyper2"}  # fmt: skip
        wrong = {**one, "verb": "start", "user": HOSTILE, "result": False, "comment": HOSTILE}
        return {"log": {"entries": [one, wrong]}}


def _queried(guests):
    return {
        "node_info": {"cpus": 32, "phymemory": 131072},
        "vm_info": {
            name: {
                "cpu": one["cpu"], "mem": one["mem"], "maxMem": one["mem"], "state": one["state"],
                "uuid": one["uuid"], "graphics": {"type": "vnc", "port": "5900"},
                "disks": {"vda": {"file": f"/srv/salt-images/{name}_system.qcow2",
                                  "file format": "qcow2", "virtual size": 8 << 30}},
                "nics": {"52:54:00:12:34:56": {"type": "bridge", "source": {"bridge": "br0"},
                                               "model": "virtio"}},
                "pending": one.get("pending", []), "autostart": True,
                "addresses": [f"192.0.2.{number}", f"2001:db8::{number}"],
            }
            for number, (name, one) in enumerate(guests.items(), 1)
        },
    }  # fmt: skip


def _info(guests):
    used = 6554 + sum(one["mem"] // 1024 + 90 for one in guests.values())
    vcpus = sum(one["cpu"] for one in guests.values())
    return {
        "cpus": 32, "vcpus_used": vcpus, "vcpus_free": 128 - vcpus, "memory_mib": 131072,
        "memory_used_mib": used, "memory_free_mib": max(0, 131072 - used), "disk_gib": 1800.0,
        "disk_free_gib": 1800.0 - 8 * len(guests), "guests": len(guests), "types": ["kvm"],
        "creating": [name for name, one in guests.items() if one.get("creating")],
        "disk_profiles": ["default", "fast"], "nic_profiles": ["default"],
    }  # fmt: skip


def _used(guests):
    rates = {
        "disk_read_bytes_s": 3 << 20, "disk_written_bytes_s": 1 << 20,
        "network_received_bytes_s": 512 << 10, "network_sent_bytes_s": None,
    }  # fmt: skip
    return {
        "cpus": 32, "cpu_percent": 37.5, "memory_bytes": 128 << 30, "memory_used_bytes": 41 << 30,
        "load": [1.5, 1.0, 0.5], "pressure": {"cpu": 2.5, "memory": 0.0, "io": 1.0}, **rates,
        "guests": {
            name: {"state": one["state"], "vcpus": one["cpu"], "cpu_percent": 12.0 * one["cpu"],
                   "memory_bytes": one["mem"] << 10, "memory_used_bytes": one["mem"] << 9, **rates}
            for name, one in guests.items()
            if one["state"] == "running"
        },
    }  # fmt: skip


def done(name, comment):
    """As the runner's verbs answer."""
    return {name: {"result": True, "comment": comment, "changes": {}}}


def failed(name, comment, **more):
    """As they answer when they fail."""
    return {name: {"result": False, "comment": comment, **more}, "retcode": 1}


class Handler(http.server.BaseHTTPRequestHandler):
    """The requests of rest_cherrypy that the page makes."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_words):
        pass

    def answer(self, code, data, kind="application/json"):
        body = data if isinstance(data, bytes) else json.dumps(data).encode()
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def allowed(self):
        return self.server.valid and self.headers.get("X-Auth-Token") == TOKEN

    def do_GET(self):
        if self.path == "/page":
            return self.file("index.html")
        if self.path == "/static/login.json" and self.server.methods:
            return self.answer(200, {"methods": self.server.methods})
        if self.path.startswith("/static/"):
            return self.file(self.path.removeprefix("/static/"))
        if self.path == "/events" and self.allowed() and self.server.has_events:
            return self.events()
        code = 401 if self.path == "/events" and self.server.has_events else 404
        return self.answer(code, b"", "text/html")

    def file(self, name):
        path = (FILES / name).resolve()
        if name.startswith("novnc/") and self.server.has_novnc:
            path = (NOVNC / name.removeprefix("novnc/")).resolve()
        if not {FILES, NOVNC} & {path.parent, *path.parents} or not path.is_file():
            return self.answer(404, b"", "text/html")
        return self.answer(200, path.read_bytes(), KINDS[path.suffix])

    def events(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        heard = queue.Queue()
        self.server.listeners.append(heard)
        try:
            self.wfile.write(b"retry: 400\n")
            # a stream that is opened while the server ends is told of that by nobody
            while not self.server.has_ended and (one := heard.get()):
                tag, data = one
                text = json.dumps({"tag": tag, "data": data})
                self.wfile.write(f"tag: {tag}\ndata: {text}\n\n".encode())
        except OSError:
            pass
        finally:
            self.server.listeners.remove(heard)
            self.close_connection = True

    def do_POST(self):
        given = json.loads(self.rfile.read(int(self.headers["Content-Length"])) or b"{}")
        if self.path == "/login":
            return self.login(given)
        if self.path == "/logout":
            self.server.calls.append(("logout", {}))
            return self.answer(200, {"return": "Your token has been cleared"})
        if not self.allowed():
            return self.answer(401, b"<p>No permission</p>", "text/html")
        return self.run(given[0])

    def login(self, given):
        if (given["username"], given["password"]) != (USER, PASSWORD):
            return self.answer(401, b"<p>Could not authenticate</p>", "text/html")
        found = {"token": TOKEN, "user": USER, "eauth": given["eauth"],
                 "start": self.server.now, "expire": self.server.expire}  # fmt: skip
        return self.answer(200, {"return": [found]})

    def run(self, low):
        fun = low["fun"].removeprefix("virt.")
        arguments = {**low["kwarg"], **({"args": low["arg"]} if low["arg"] else {})}
        if low["client"] == "runner":
            found = {"data": self.server.call(fun, arguments), "outputter": "virt_query"}
            return self.answer(200, {"return": [found]})
        if self.server.cuts:
            self.server.cut()
        jid = str(next(self.server.jids))
        self.answer(200, {"return": [{"tag": f"salt/run/{jid}", "jid": jid}]})
        found = {"data": self.server.call(fun, arguments), "outputter": "virt_query"}
        if not self.server.cuts:
            self.server.tell(f"salt/run/{jid}/ret", {"fun": f"runner.virt.{fun}", "return": found})
        return None
