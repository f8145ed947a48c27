"""``make chaos``: random steps with faults in a lab, until the time is over or an invariant breaks.

    make chaos                      # one seed, of the clock
    make chaos SEED=7 [LENGTH=10]   # that seed again
    make chaos STEPS=file           # steps of a file, as a failure printed them
    make chaos MINUTES=60           # seed after seed

A broken invariant ends the run with the exit code 1: the seed, what broke, and a list of steps that
was made as short as SHRINK (20) minutes allow.
"""

import argparse
import contextlib
import json
import os
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.chaos import act, invariants, shrink, steps, world
from tests.chaos.faults import Faults
from tests.chaos.model import REMOVES, Model
from tests.lab import paths, process
from tests.lab.fixtures import Lab, recipe
from tests.lab.sh import LabError

SETTLE_S = 240
COUNTS_S = 90  # until a started guest has booted, on a machine with nothing else to do
RUNNERS_OWN = ("given-up", "two-hosts")  # findings that a person decides


class Broken(Exception):
    """An invariant does not hold."""

    def __init__(self, where, lines):
        super().__init__("\n".join(lines))
        self.where, self.lines = where, lines


def say(text):
    print(text, flush=True)


class Run:
    """One list of steps. Guests and keys that the lab had before are left alone."""

    def __init__(self, lab, say=say):
        self.lab, self.say, self.model = lab, say, Model()
        self.began = self.since = time.time()
        self.before, self.told, self.answers = None, [], []

    def all(self, given):
        """Runs the steps, and the end. Raises Broken."""
        self.before = self._look()
        for number, step in enumerate(given, 1):
            self._step(number, step)
        self._end(len(given) + 1)

    def _look(self, backups=False):
        known = {g.name: g.floor for g in self.model.of("alive")}
        known |= {f"lun{g.lun}": g.floor for g in self.model.of("alive") if g.lun}
        return world.look(self.lab, int(self.since), known, backups)

    def _step(self, number, step):
        began = time.monotonic()
        self.since = time.time()
        self.say(f"  {number}. " + ", ".join(words(op) for op in step["ops"]))
        self.model.prepare(step["ops"], step["faults"])
        self._blank(step["ops"])
        done = self._act(step)
        self.answers += done
        strays = self._strays(step["ops"])
        self.model.end(done)
        for one in done:
            how = "killed" if one.killed else one.rc
            self.say(f"    {words(one.op)}: {how} in {one.seconds} s: {one.said()}")
        where = f"step {number}"
        self._hold(where, [line for one in done for line in act.wrong_form(one)])
        self._await_minions(where)
        seen = self._look()
        self._hold(where, invariants.after_step(seen, self.model))
        failed = not all(one.ok for one in done)
        if step["faults"] or failed or strays or invariants.quiet(seen):
            self._settle(where, step)
            seen = self._look()
        seen = self._confirmed(where, seen, {g.name for g in self.model.of("alive")})
        self._strict(where, seen, step)
        self.say(f"    held, {time.monotonic() - began:.0f} s")

    def _strays(self, ops):
        """Whether a guest goes whose key its host cannot take along: virt.repair finds it."""
        return any(
            op["via"] != "runner" or self.model.guests[op["name"]].strayed
            for op in ops
            if op["verb"] in REMOVES and op["name"] in self.model.guests
        )

    def _hold(self, where, lines):
        if lines:
            raise Broken(where, lines)

    def _blank(self, ops):
        """A new guest on a LUN finds it empty; not while another has it."""
        for op in ops:
            if op.get("lun") and not any(
                g.lun == op["lun"] and g.name != op["name"]
                for g in self.model.of("alive", "unsure")
            ):
                world.blank(self.lab, op["lun"])

    def _act(self, step):
        def where(name):
            return world.where(self.lab, name)

        with ThreadPoolExecutor() as pool:
            running = list(pool.map(lambda op: act.Running(self.lab, op, where), step["ops"]))
            faults = Faults(self.lab, running, self.say)
            broken = [pool.submit(faults.run, fault) for fault in step["faults"]]
            extra = sum(fault.get("lasts", 0) for fault in step["faults"])
            done = list(pool.map(lambda one: one.wait(extra), running))
            for one in broken:
                one.result()
        return done

    def _await_minions(self, where):
        """Every minion answers again."""
        try:
            self.lab.wait_for_minion(*self.lab.hosts, timeout_s=180)
        except LabError as exc:
            deaf = [host for host in self.lab.hosts if world.is_deaf(self.lab, host, self.since)]
            if not deaf:
                raise Broken(where, [f"wait: {exc}"]) from None
            self.say(f"    named: {', '.join(deaf)}: deaf by Salt's own fault; minion restarted")
            self.lab.restart_minion(*deaf)
            self.lab.wait_for_minion(*self.lab.hosts, timeout_s=180)

    def _settle(self, where, step):
        """What was broken off is ended, as a person would: virt.repair, and again."""
        end, last = time.monotonic() + SETTLE_S, None
        while True:
            done = act.Running(self.lab, {"verb": "repair", "via": "runner"}, None).wait()
            self.answers.append(done)
            self._hold(where, act.wrong_form(done))
            last = self._findings()
            seen = self._look()
            open_ = [one for one in last if one["code"] not in RUNNERS_OWN]
            if not open_ and not invariants.quiet(seen) and not journals(seen):
                break
            if time.monotonic() > end:
                left = [f"{one['name']}: {one['what']}: {one['how']}" for one in last]
                lines = [*left, *invariants.quiet(seen), *journals(seen)]
                raise Broken(where, [f"settle: {line}" for line in lines] + [done.said()])
            time.sleep(3)
        self.told = last
        self._decide(where, last, step)
        if self._sure(where):
            self._settle(where, step)

    def _findings(self):
        argv = ["salt-run", "--out=json", "virt.repair"]
        done = self.lab.exec("master", argv, check=False, timeout=300)
        with contextlib.suppress(ValueError):
            answer = json.loads(done.stdout)
            return find(answer, "findings") or []
        raise Broken("repair", [f"exit: virt.repair said: {done.stdout}{done.stderr}"[-1500:]])

    def _decide(self, where, findings, step):
        """What only a person can: a guest that was given up is removed; one that two hosts run
        after a cut of the network is named, and one of the two goes."""
        for one in findings:
            name = one["name"]
            guest = self.model.guests.get(name)
            if one["code"] == "given-up" and guest and guest.status == "unsure":
                continue  # _sure takes it away
            if one["code"] == "given-up" and guest:
                self.say(f"    named: {one['what']}")
            if one["code"] == "two-hosts":
                if not any(f["kind"] in ("cut", "hang", "slow") for f in step["faults"]):
                    raise Broken(where, [f"place: {name} {one['what']}"])
                self.say(f"    named: {name} {one['what']}; removed")
                world.remove(self.lab, name)
                guest.status = "gone"

    def _sure(self, where):
        """Guests of which it was not known whether they are there: what is there goes, by purge.
        Whether it left a key that is bound to another host, which virt.repair finds."""
        seen, strayed = self._look(), False
        for guest in self.model.of("unsure"):
            there = invariants.places(seen, guest.name)
            if there:
                strayed = strayed or guest.strayed
                done = self._ask("purge", guest.name)
                guest.named += done.out
                if not done.ok:
                    raise Broken(where, [f"again: purge of {guest.name}: {done.said()}"])
            guest.status = "gone"
        return strayed

    def _confirmed(self, where, seen, stay=()):
        """What was kept of guests from before a backup took their place goes, or, where it did not
        come to that, comes back; not of those that stay. What is seen then."""
        kept = [(name, host) for host, one in sorted(invariants.hosts(seen).items())
                for name in one["asides"] if name not in stay]  # fmt: skip
        for name, host in kept:
            done = self._ask("backup_confirm", name, host=host)
            if not done.ok and "is as it was" in done.out:
                done = self._ask("backup_undo", name, host=host)
            if not done.ok:
                raise Broken(where, [f"again: {done.op['verb']} of {name}: {done.said()}"])
        return self._look() if kept else seen

    def _ask(self, verb, name, **more):
        op = {"verb": verb, "name": name, "via": "runner", **more}
        done = act.Running(self.lab, op, None).wait()
        self.answers.append(done)
        self._hold(f"{verb} {name}", act.wrong_form(done))
        return done

    def _strict(self, where, seen, step):
        found = self._settled(seen)
        if found:  # what has just ended may still be on its way out
            time.sleep(5)
            seen = self._look()
            found = self._settled(seen)
        self._hold(where, found)
        for guest in self.model.of("alive"):
            number = invariants.count(seen, guest)
            guest.floor = max(guest.floor, number or 0)

    def _settled(self, seen):
        before = self.before["master"]["keys"]
        known = {*self.lab.hosts, *before["accepted"], *before["pending"]}
        return invariants.settled(seen, self.model, known, world.HELD_CPUS)

    def _end(self, number):
        """Every living guest can be started and counts on; then all go, and nothing is left."""
        self.say(f"  {number}. the end: start all, then purge all")
        self.since = time.time()
        for host in self.lab.hosts:
            op = {"verb": "restore", "host": host, "via": "runner"}
            self.answers.append(act.Running(self.lab, op, None).wait())
            self._hold("the end", act.wrong_form(self.answers[-1]))
        self._settle("the end", {"faults": []})
        alive = self.model.of("alive")
        seen = self._look(backups=True)
        self._hold("the end", invariants.kept(seen))
        seen = self._confirmed("the end", seen)
        self._strict("the end", seen, {"faults": []})
        with ThreadPoolExecutor(max_workers=2) as pool:
            list(pool.map(lambda guest: self._revive(guest, seen), alive))
        numbers = {g.name: g.floor for g in alive}
        began = time.monotonic()
        while alive:
            seen = self._look()
            self._hold("the end", self._settled(seen))
            dead = [g.name for g in alive if (invariants.count(seen, g) or 0) <= numbers[g.name]]
            if not dead:
                break
            slow = invariants.slowness(os.getloadavg()[0], os.cpu_count())
            if time.monotonic() - began > COUNTS_S * slow:
                raise Broken("the end", [f"dead: {name} does not count on" for name in dead])
            time.sleep(3)
        for guest in alive:
            done = self._ask("purge", guest.name)
            guest.named += done.out
            if not done.ok:
                raise Broken("the end", [f"again: purge of {guest.name}: {done.said()}"])
            guest.status = "gone"
        if any(guest.strayed for guest in alive):
            self._settle("the end", {"faults": []})
        self._hold("the end", self._last())

    def _revive(self, guest, seen):
        for one in invariants.places(seen, guest.name).values():
            if one["state"] == "off":
                done = self._ask("start", guest.name)
                if not done.ok:
                    raise Broken("the end", [f"again: start of {guest.name}: {done.said()}"])
            elif one["state"] == "paused":
                host = world.where(self.lab, guest.name)
                self.lab.exec(host, ["virsh", "resume", guest.name], check=False)

    def _last(self):
        for _ in range(3):
            seen = self._look()
            found = self._settled(seen)
            stays = {path for guest in self.model.guests.values() for path in guest.may_stay}
            named = "".join(guest.named for guest in self.model.guests.values())
            found += invariants.same_as_before(seen, self.before, stays, named)
            if not found:
                return []
            time.sleep(5)
        return found

    def keep(self, folder):
        """Writes what a failure needs into a folder: answers, logs, what there is."""
        for number, one in enumerate(self.answers, 1):
            text = f"{one.op}\nrc {one.rc} in {one.seconds} s\n{one.out}\n{one.err}"
            (folder / f"{number:02}-{one.op['verb']}").write_text(text)
        world.keep(self.lab, folder, int(self.began))


def find(data, key):
    """The value of a key, wherever it is in plain data."""
    if isinstance(data, dict):
        if key in data:
            return data[key]
        for value in data.values():
            found = find(value, key)
            if found is not None:
                return found
    return None


def journals(seen):
    """Migrations and arrivals that are written down somewhere."""
    return [
        f"journal: {path} on {host}" for host, one in sorted(invariants.hosts(seen).items())
        for path in one["files"]
        if path.startswith(("/var/lib/salt-virt/migrations/", "/var/lib/salt-virt/arrivals/"))
        and path.endswith(".json")
    ]  # fmt: skip


def words(op):
    """An operation in words."""
    about = [op["verb"], *op.get("names", []), op.get("name"), op.get("new"), op.get("snapshot")]
    about += [op.get("disk"), op.get("target"), op.get("host")]
    how = "" if op.get("via", "runner") == "runner" else f" ({op['via']})"
    return " ".join(str(word) for word in about if word) + how


class Labs:
    """The lab of a run: brought up once, and anew when it is dirty."""

    def __init__(self):
        self.keep = os.environ.get("SALTVIRT_LAB_KEEP") == "1"
        name = paths.instance_name() if self.keep else f"chaos-{os.getpid()}"
        self.lab, self.clean = Lab(name), False

    def get(self):
        if self.keep and not self.clean and self._has_guests():
            raise LabError(f"there are guests in the lab {self.lab.name} already")
        if not self.clean and not self._kept():
            say("a lab of three hosts comes up")
            self.lab.up(3, recipe(), owner=None if self.keep else os.getpid(), shared=True)
            world.prepare(self.lab, say)
        self.clean = True
        return self.lab

    def _has_guests(self):
        command = ["virsh", "list", "--all", "--name"]
        hosts = self.lab.hosts if self.lab.running() else ()
        return any(self.lab.exec(host, command).stdout.strip() for host in hosts)

    def _kept(self):
        if not self.keep or not self.lab.running():
            return False
        test = "test -e /etc/salt/minion.d/chaos.conf"
        return self.lab.exec("hv1", test, check=False).returncode == 0

    def dirty(self, before):
        """After a failure: cleaned past our code, or, where that does not do, taken down. before:
        what the machines had before the first step."""
        try:
            if before is None:
                raise LabError("nobody knows what was there")
            world.wipe(self.lab)
            left = invariants.same_as_before(world.look(self.lab, int(time.time()), {}), before)
        except (LabError, OSError) as exc:
            left = [str(exc)]
        if left:
            say(f"  the lab is not clean ({left[0]}): a new one")
            self.clean = False
            self.lab.down()

    def close(self):
        if not self.keep:
            self.lab.down()


def attempt(labs, given, say=say, kept=None):
    """None, or the Broken of these steps; the lab is cleaned then. kept: the prefix of a new folder
    for what a failure needs."""
    run = Run(labs.get(), say)
    try:
        run.all(given)
    except (Broken, LabError) as exc:
        if kept:
            with contextlib.suppress(LabError):
                folder = Path(tempfile.mkdtemp(prefix=kept))
                run.keep(folder)
                say(f"  what was answered and logged: {folder}")
        if os.environ.get("CHAOS_STAY") != "1":
            labs.dirty(run.before)
        return exc if isinstance(exc, Broken) else Broken("the lab", [f"lab: {exc}"])
    return None


def shrunk(labs, given, broken, minutes):
    """The steps made short: the same kind of invariant must break."""
    kinds = {line.partition(":")[0] for line in broken.lines}
    end = time.monotonic() + minutes * 60
    number = broken.where.removeprefix("step ")
    if number.isdigit():
        given = given[: int(number)]

    def fails(fewer):
        if time.monotonic() > end:
            raise StopIteration
        found = attempt(labs, fewer, lambda text: None)
        return found is not None and bool(
            kinds & {line.partition(":")[0] for line in found.lines}
        )  # fmt: skip

    return shrink.shrink(given, fails, say)


def report(seed, broken, given):
    say(f"BROKEN{f' by seed {seed}' if seed is not None else ''}, at {broken.where}:")
    for line in broken.lines:
        say(f"  {line}")
    say("steps:")
    say(steps.dumps(given))


def one(labs, seed, given, minutes):
    """Runs a list; True when all held."""
    began = time.monotonic()
    say(f"seed {seed}: {len(given)} steps" if seed is not None else f"{len(given)} steps")
    broken = attempt(labs, given, kept=f"salt-virt-chaos-{'steps' if seed is None else seed}-")
    if broken is None:
        say(f"held: {f'seed {seed}, ' if seed is not None else ''}{time.monotonic() - began:.0f} s")
        return True
    report(seed, broken, given)
    if minutes:
        say(f"shrinking, for {minutes:g} minutes at most")
        short = shrunk(labs, given, broken, minutes)
        Path("chaos-steps.json").write_text(steps.dumps(short))
        say("shrunk, also in chaos-steps.json (make chaos STEPS=chaos-steps.json):")
        say(steps.dumps(short))
    return False


def arguments():
    top = argparse.ArgumentParser(prog="make chaos", description=__doc__)
    top.add_argument("--seed", type=int)
    top.add_argument("--steps", type=Path)
    top.add_argument("--minutes", type=float)
    top.add_argument("--length", type=int, default=10)
    top.add_argument("--shrink", type=float, default=20)
    top.add_argument("--go-on", action="store_true", help="the next seed after one that failed")
    return top.parse_args()


def main():
    given = arguments()
    process.die_with_parent()
    labs = Labs()
    try:
        if given.steps:
            return 0 if one(labs, None, steps.loads(given.steps.read_text()), 0) else 1
        began, seed, bad, held = time.monotonic(), given.seed, [], []
        if seed is None:
            seed = int(time.time()) % 100000
        while True:
            good = one(labs, seed, steps.draw(seed, given.length), given.shrink)
            (held if good else bad).append(seed)
            over = (time.monotonic() - began) / 60 >= (given.minutes or 0)
            if over or (bad and not given.go_on):
                break
            seed += 1
        say(f"chaos: {len(held)} seeds held ({', '.join(map(str, held))}), "
            f"{len(bad)} broke{' (' + ', '.join(map(str, bad)) + ')' if bad else ''}, "
            f"{(time.monotonic() - began) / 60:.0f} min")  # fmt: skip
        return 1 if bad else 0
    finally:
        labs.close()


if __name__ == "__main__":
    sys.exit(main())
