"""One walk: a new guest and a sequence of verbs, each followed by all checks."""

import json
import shlex

from tests.life import check, world
from tests.life.model import Guest
from tests.life.verbs import VERBS

JOB_S = 1200


class Broken(Exception):
    """Something does not hold after a verb. lines: each fault in a line."""

    def __init__(self, lines):
        super().__init__("\n".join(lines))
        self.lines = lines


class Failed(Broken):
    """A command that had to succeed did not."""


class Walk:
    """The verbs of one guest. number: makes names unique and chooses between variants."""

    Failed = Failed

    def __init__(self, lab, combination, number, say):
        self.lab, self.combination, self.number, self.say = lab, combination, number, say
        self.count, self.names, self.commands = 0, 0, []
        self.guest, self.pending, self.before = None, False, None

    def run(self, verbs):
        """Make a guest, let the verbs follow, and remove it. Raises Broken."""
        self.before = world.look(self.lab)
        self.begin(self.new_name())
        self.verify()
        for name in verbs:
            self.count += 1
            self.number += 1
            self.log(f"# {name}")
            VERBS[name](self)
            self.verify()
        self.runner("virt.purge", self.guest.name, force=True)
        none = Guest("", *self.combination, "none", detached=self.guest.detached)
        wrong = check.hosts(self._look(system=True), none)
        self.hold([line for line in wrong if not line.startswith(" is defined on []")])

    def begin(self, name):
        """Make the walk's guest."""
        detached = self.guest.detached if self.guest else {}
        host = self.lab.hosts[self.number % 2]
        self.guest = Guest(name, *self.combination, host, detached=detached)
        words, named = self.init_words(name)
        self.runner(*words, **named)

    def init_words(self, name):
        """The words and arguments of virt.init for the walk's combination."""
        guest = Guest(name, *self.combination, self.guest.host)
        named = {
            "seed": False, "host": guest.host, "machine": guest.machine,
            "disks": guest.disk_list(), "interfaces": guest.interface_list(),
        }  # fmt: skip
        if guest.storage == "overlay":
            named["enable_qcow"] = True
        if guest.firmware == "uefi":
            named["boot"] = {"efi": True}
        return ("virt.init", name, guest.cpus, guest.memory_mib, "salt://small.qcow2"), named

    def new_name(self):
        """A name that no guest of this walk had."""
        self.names += 1
        return f"life{self.number % 1000}-{self.names}"

    def log(self, line):
        """Note a line of what is typed, for who wants to type it again."""
        self.commands.append(line)

    def runner(self, function, *words, timeout=JOB_S, **named):
        """Type `salt-run`; Failed if it does not succeed."""
        return self._typed(["salt-run", function], words, named, timeout)

    def module(self, function, *words, on=None, **named):
        """Type `salt HOST` for the guest's host; its answer. Failed if it does not succeed."""
        host = on or self.guest.host
        done = self._typed(["salt", "--out=json", "--static", host, function], words, named, JOB_S)
        try:
            answer = json.loads(done.stdout)[host]
        except (ValueError, KeyError):
            raise Failed([f"{function} on {host}: {done.stdout}{done.stderr}"]) from None
        if isinstance(answer, str):
            raise Failed([f"{function} on {host}: {answer}"])
        return answer

    def _typed(self, argv, words, named, timeout):
        argv = [*argv, *(_word(word) for word in words)]
        argv += [f"{key}={_word(value)}" for key, value in named.items()]
        self.log(shlex.join(argv))
        done = self.lab.typed(argv, timeout=timeout)
        if done.returncode:
            text = (done.stdout + done.stderr).strip()[-1500:]
            raise Failed([f"{shlex.join(argv)}: exit code {done.returncode}: {text}"])
        if "Traceback (most recent call last)" in done.stdout + done.stderr:
            raise Broken([f"{shlex.join(argv)}: {(done.stdout + done.stderr)[-1500:]}"])
        return done

    def may_refuse(self, condition, function, *words, on=None, **named):
        """Type a command that may be refused if the condition holds. Returns whether it was: then
        all must be as before."""
        try:
            if on:
                self.module(function, *words, on=on, **named)
            else:
                self.runner(function, *words, **named)
        except Failed:
            if not condition:
                raise
            self.log("# refused")
            return True
        return False

    def restart_later(self):
        """Note that the guest needs a new start for what was changed."""
        self.pending = self.guest.running

    def locate(self):
        """Look which host has the guest now."""
        seen = world.look(self.lab)
        homes = [host for host in seen if self.guest.name in seen[host]["domains"]]
        self.hold([] if len(homes) == 1 else [f"{self.guest.name} is on {homes}"])
        self.guest.host = homes[0]

    def files(self):
        """The paths of the files of the guest's disks, without those of its snapshots alone."""
        return set(self._look()[self.guest.host]["domains"][self.guest.name]["disks"])

    def macs(self):
        """The MACs of the guest's interfaces, in order."""
        return self._look()[self.guest.host]["domains"][self.guest.name]["macs"]

    def detached_files(self, disk):
        """The paths of the files that a detached disk of the guest has left on its host."""
        present = self._look()[self.guest.host]["files"]
        stem = f"/{self.guest.name}_{disk}"
        return [path for path in self.guest.detached if stem in path and path in present]

    def exists(self, name):
        """Whether any host has a guest of that name."""
        return any(name in has["domains"] for has in world.look(self.lab).values())

    def kill_emulator(self):
        """Kill the guest's QEMU."""
        self.log(f"# kill -9 QEMU of {self.guest.name}")
        self.lab.kill(self.guest.host, f"guest={self.guest.name},")
        host, name = self.guest.host, self.guest.name
        self.lab.wait(
            lambda: "shut off" in self.lab.exec(host, ["virsh", "domstate", name]).stdout,
            f"{name} is off",
        )

    def kill_job(self, host):
        """Kill the minion's processes that are at work at a job."""
        script = "pkill -9 -f 'salt-minion.*[P]rocessPayload|[M]inion._thread_return'"
        self.lab.exec(host, script, check=False)

    def hold(self, lines):
        """Raise Broken if there is a fault."""
        if lines:
            raise Broken(lines)

    def _look(self, system=False):
        return world.look(self.lab, system)

    def verify(self):
        """All that must hold after each verb; the guest runs afterwards."""
        seen = self._look(system=True)
        self.hold(check.hosts(seen, self.guest) + check.same_system(seen, self.before))
        if self.pending and self.guest.running:
            self.runner("virt.force_off", self.guest.name)
            self.guest.running = False
        self.pending = False
        state = seen[self.guest.host]["domains"][self.guest.name]["state"]
        if not self.guest.running or state == "shut off":
            self.runner("virt.start", self.guest.name)
            self.guest.running = True
        self.verify_answer(seen[self.guest.host]["domains"][self.guest.name])
        self._verify_repeated()

    def verify_answer(self, domain=None):
        """The guest answers, with its records, and takes another one. domain: what its host has."""
        domain = domain or self._look()[self.guest.host]["domains"][self.guest.name]
        answer = world.probe(self.lab, domain["macs"])
        self.hold(check.answers(self.guest, domain, answer))
        number = self.number * 1000 + self.count * 10 + len(self.guest.records["system"]) % 10
        self.guest.write(number)
        answer = world.probe(self.lab, domain["macs"], number)
        self.hold(check.answers(self.guest, domain, answer))

    def _verify_repeated(self):
        """The same update and the same state change nothing."""
        name, definition = self.guest.name, self.guest.definition()
        answer = self.module("virt.update", name, **definition)
        wrong = check.unchanged("virt.update", answer)
        states = self.module("state.single", "virt.running", name, **definition)
        for state in states.values():
            if state["result"] is not True:
                wrong.append(f"virt.running again: {state['comment']}")
            wrong += check.unchanged("virt.running", state)
        self.hold(wrong)


def _word(value):
    return value if isinstance(value, str) else json.dumps(value)
