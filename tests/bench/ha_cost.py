"""What high availability costs a master when nothing happens: the share of one core that the
engine takes, of 100 hosts with 2,000 guests, by default.

    tests/lab/lab bench ha_cost [HOSTS [GUESTS]]

The real engine over real TLS, in this process; in another one something that answers as agents do:
every host is heard by all, every guest runs, every definition is kept. What is counted is all that
this process takes of the processor, kernel included: the engine's own thread (gathering, deciding,
writing down, showing), and the thread that carries words (TLS, sockets, reading what came). What
that reading alone takes is measured apart.
"""

import contextlib
import hashlib
import json
import resource
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "_utils"))

from saltvirt.ha.manager import config, credentials, files
from saltvirt.ha.manager.agent_sender import AgentSender
from saltvirt.ha.manager.definitions import StoredDefinition
from saltvirt.ha.manager.desired_state import DesiredState, DesiredStateStore
from saltvirt.ha.manager.engine import LOSS_S, Engine, EngineContext
from saltvirt.ha.manager.inbox import MasterInbox
from saltvirt.ha.manager.inventory_poller import InventoryPoller
from saltvirt.ha.model import messages
from saltvirt.ha.model.messages import (
    GuestStatus,
    Heartbeat,
    HeartbeatAck,
    HostState,
    LeaderMessage,
)
from saltvirt.ha.model.registry import PLACED, Registry
from saltvirt.ha.model.view import GuestConfig
from saltvirt.ha.transport import frames, tls
from saltvirt.ha.transport.peer_connection import PeerTiming
from saltvirt.ha.transport.peer_network import PeerNetwork
from saltvirt.pki.authority import ca
from saltvirt.pki.authority.store import CertificateStore
from saltvirt.pki.common import certs
from saltvirt.placement import policy
from saltvirt.placement.facts import Guest, Host
from saltvirt.system.tls_listener import CertificateFiles

HOSTS, GUESTS = 100, 2000
SECONDS, SETTLES_S = 30, 300


class Agents:
    """All hosts: each answers the master as its agent would, once a beat."""

    def __init__(self, names, folder, trusted):
        self.names, self.seq = names, 1
        self.known = {}
        self.calls, self.registries, self.digested = {}, {}, ((), "")
        self.talks = {}
        for name in names:
            stems = [f"{folder}/{name}-{purpose}" for purpose in (certs.CLIENT, certs.SERVER)]
            pairs = [CertificateFiles(f"{stem}.crt", f"{stem}.key") for stem in stems]
            own = tls.PeerCredentials(trusted, *pairs)
            self.talks[name] = PeerNetwork(
                own,
                lambda _, kind, body, me=name: self.receive(me, kind, body),
                PeerTiming(1, 30, 120),
            )

    def listen(self):
        return {
            name: talk.listen("127.0.0.1", 0, (), ("salt",)) for name, talk in self.talks.items()
        }

    def receive(self, name, kind, body):
        if kind == frames.CALL:
            told = body["registry"]
            self.calls[name] = LeaderMessage.from_answer({**body, "registry": None}, "salt")
            if told is not None:
                stamp = told["term"], told["version"]
                if stamp not in self.known:
                    self.known = {stamp: Registry.from_answer(told, "salt")}
                self.registries[name] = self.known[stamp]

    def run(self):
        began_s = time.monotonic()
        while True:
            for place, name in enumerate(self.names):
                due_s = began_s + place / len(self.names)
                time.sleep(max(0, due_s - time.monotonic()))
                beat = self.beat(name)
                self.talks[name].send("salt", frames.frame(frames.BEAT, beat.to_answer()))
            self.seq += 1
            began_s = max(began_s + 1, time.monotonic() - 1)  # what was missed is not made up for

    def beat(self, name):
        call = self.calls.get(name) or LeaderMessage("", 0, 0, asks=False)
        registry = self.registries.get(name) or Registry()
        there = {}
        while (guest := registry.guests.get(f"{name}-{len(there)}")) is not None:
            there[f"{name}-{len(there)}"] = GuestStatus(max(1, guest.epoch), messages.RUNNING)
        return Heartbeat(
            name, 1, self.seq, armed=True, watchdog_s=10, storage_silent_s=time.monotonic() % 1,
            guests=there, definitions=self.digest(registry.guests),
            term=call.term, leader=call.master, claim=call.seq, granted_s=time.monotonic() % 1,
            stored_term=registry.term, stored=registry.version,
            applied=min(registry.version, call.committed),
        )  # fmt: skip

    def digest(self, guests):
        """Each has been told all definitions."""
        if self.digested[0] is not guests:
            told = {name: hashlib.sha256(xml(name).encode()).hexdigest() for name in guests}
            self.digested = guests, messages.digest(told)
        return self.digested[1]


def xml(name):
    """A guest's definition, as large as they are."""
    disks = "".join(
        f"<disk type='file'><source file='/srv/{name}-{n:0400}'/></disk>" for n in range(8)
    )
    return f"<domain><name>{name}</name><uuid>{name}</uuid><devices>{disks}</devices></domain>"


def certificates(folder, names, opts):
    """Of all, by one key. Returns the authority's certificate."""
    own = credentials.ensure(opts, "salt")
    authority, key = ca.read(CertificateStore(opts["pki_dir"]), "libvirt"), certs.new_key()
    for name in names:
        for purpose in (certs.CLIENT, certs.SERVER):
            wanted = certs.Leaf(certs.subject(name), (name,), purpose, 9)
            signer = (authority.cert, authority.key)
            cert = certs.leaf(key.public_key(), wanted, signer, certs.utcnow())
            (folder / f"{name}-{purpose}.crt").write_bytes(certs.cert_pem(cert))
            (folder / f"{name}-{purpose}.key").write_bytes(certs.key_pem(key))
    return own


def wanted(names, guests):
    """The guests as a person gave them, as many on each host."""
    each = guests // len(names)
    size = Guest("", vcpus=2, memory_kib=4 * 1024**2)
    found = {f"{host}-{n}": GuestConfig(f"{host}-{n}", host) for host in names for n in range(each)}
    return DesiredState(guests=found, sizes=dict.fromkeys(found, size))


class NoFences:
    levels, results = {}, {}

    def begin(self, fence):
        raise AssertionError(f"it fences {fence}")

    def take_finished(self):
        return []


@contextlib.contextmanager
def engine(names, guests, folder):
    """The engine, and what its agents answer it, until the end of the block."""
    opts = {"id": "salt_master", "cachedir": str(folder / "cache"),
            "pki_dir": str(folder / "pki"), "virt": {"hosts": "hv*"}}  # fmt: skip
    (folder / "pki").mkdir()
    own = certificates(folder, names, opts)
    argv = [sys.executable, "-m", "tests.bench.ha_cost", "agents", str(folder), own.ca, *names]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, cwd=ROOT) as agents:
        ports = json.loads(agents.stdout.readline())
        opts["virt"]["ha"] = {
            # on a busy machine, too, nothing happens
            **dict.fromkeys(("suspect_s", "feed_lease_s", "lead_lease_s"), 60),
            "members": {name: {"address": "127.0.0.1", "port": ports[name]} for name in names},
        }
        wishes = DesiredStateStore(opts).change("bench", lambda _: wanted(names, guests))
        for name in wishes.guests:
            digest = hashlib.sha256(xml(name).encode()).hexdigest()
            path = files.folder(opts) / "definitions" / f"{name}.json"
            files.write_volatile(path, StoredDefinition(name, digest, xml(name)))
        found = config.of_master(opts)
        room = [Host(name, 64, 512 * 1024**2, types=("kvm",), arch="x86_64") for name in names]
        rooms = InventoryPoller(lambda _: room, names, time.monotonic)
        rooms.poll()
        talker = AgentSender(found, own)
        one = Engine(opts, found, policy.of_master(opts),
                     EngineContext(talker, NoFences(), rooms, lambda tag, data: None))  # fmt: skip
        talker.begin(one.inbox.receive)
        try:
            yield one
        finally:
            talker.end()
            agents.kill()


class Spent:
    """What the processor did for this process, and for one of its threads."""

    def __init__(self):
        used = resource.getrusage(resource.RUSAGE_SELF)
        self.at_s, self.all_s = time.monotonic(), used.ru_utime + used.ru_stime
        self.own_s = time.thread_time()


def measured(one, seconds):
    """(Spent before, Spent after) so many beats of the engine, in which nothing happens."""
    spent = []

    def run():
        began_s = time.monotonic()
        for number in range(seconds + 1):
            time.sleep(max(0, began_s + number - time.monotonic()))
            spent.append(Spent())
            one.beat()

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return spent[0], spent[-1]


def settles(one, guests):
    """Until every guest is known, and nothing is decided any more."""
    end_s = time.monotonic() + SETTLES_S
    while time.monotonic() < end_s:
        one.beat()
        time.sleep(1)
        placed = [g for g in one.registry.guests.values() if g.state == PLACED]
        if len(placed) == guests and one.registry.version == one.state.committed:
            think_of_all(one)
            return
    raise SystemExit(f"after {SETTLES_S} s {len(placed)} guests are placed")


def think_of_all(one):
    """What each host's loss would mean is known: after this it is thought of now and then."""
    view = one.view(one.context.clock())
    for number in range(len(one.config.members)):
        one._simulate_losses(view, one.context.clock() + number * LOSS_S)
    one._simulated_s = one.context.clock()


def reading_changes(names):
    """What it takes to read what each host says in one beat when nothing happens, without TLS."""
    beat = Heartbeat(names[0], 1, 1, armed=True, storage_silent_s=0.1, granted_s=0.1)
    first = frames.frame(frames.BEAT, beat.to_answer())
    later = replace(beat, seq=2, claim=2, storage_silent_s=0.2, granted_s=0.2)
    data = frames.frame(frames.BEAT, later.to_answer()).encode_since(first)[frames.HEAD.size :]
    inbox = MasterInbox(names[:1], time.monotonic)
    inbox.receive(names[0], frames.BEAT, first.body)
    began_s = time.thread_time()
    for _ in names:
        inbox.receive(names[0], *frames.parse(data, names[0], first.body))
    return time.thread_time() - began_s


def reading_all(names, each):
    """What it would take to read all that each host knows, of one beat of all."""
    there = {f"{names[0]}-{n}": GuestStatus(1, messages.RUNNING) for n in range(each)}
    others = names[1:]
    beat = Heartbeat(
        names[0], 1, 1, armed=True, guests=there, acks={one: HeartbeatAck(1,
        10**6) for one in others},
        silent_s={one: time.monotonic() % 1 for one in others},
        host_states={one: HostState(1, 10**6, True, 10) for one in others},
    )  # fmt: skip
    data = frames.frame(frames.BEAT, beat.to_answer()).data[frames.HEAD.size :]
    began_s = time.thread_time()
    for _ in names:
        Heartbeat.from_answer(frames.parse(data, names[0])[1], names[0])
    return time.thread_time() - began_s


def main(words):
    if words[:1] == ["agents"]:
        agents = Agents(words[3:], words[1], words[2])
        print(json.dumps(agents.listen()), flush=True)
        agents.run()
    hosts, guests = [int(word) for word in words] if len(words) == 2 else (HOSTS, GUESTS)
    names = [f"hv{number:03}" for number in range(hosts)]
    with tempfile.TemporaryDirectory() as folder, engine(names, guests, Path(folder)) as one:
        settles(one, guests)
        measured(one, 5)
        version = one.registry.version
        before, after = measured(one, SECONDS)
        assert one.registry.version == version and one.state.leading_s is not None
        whole_s = reading_all(names, guests // hosts)
        changes_s = reading_changes(names)
    took_s = after.at_s - before.at_s
    every, own = after.all_s - before.all_s, after.own_s - before.own_s
    print(f"{hosts} hosts, {guests} guests, {took_s:.0f} s in which nothing happens: "
          f"{100 * every / took_s:.2f} % of a core; the engine {100 * own / took_s:.2f} %, "
          f"the rest, what carries its words, {100 * (every - own) / took_s:.2f} %, of which "
          f"{100 * changes_s:.2f} % to read them and what is left for TLS and sockets\n"
          f"to read all that each host knows, once a beat, would alone take {100 * whole_s:.2f} %: "
          f"{whole_s * took_s / every:.1f} times as much as all of it takes")  # fmt: skip


if __name__ == "__main__":
    main(sys.argv[1:])
