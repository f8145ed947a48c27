"""The lab as pytest fixtures: `lab`, shared by all integration tests, and `fresh_lab`, one's own.

Environment: SALTVIRT_LAB_KEEP=1 uses the lab that is up (SALTVIRT_LAB, or "lab"),
brings it up if it is not, and leaves it; SALTVIRT_LAB_DEBIAN and SALTVIRT_LAB_SALT
choose what it is made of.
"""

import json
import os
import time
from typing import NamedTuple

import pytest

from tests.lab import packages, paths, storage, sync
from tests.lab.cloud import Cloud
from tests.lab.recipe import Recipe
from tests.lab.sh import LabError


class Result(NamedTuple):
    """How a program ended: its exit code and what it printed."""

    rc: int
    stdout: str
    stderr: str


class Lab(Cloud):
    """A cloud, with the ways in which tests use it."""

    @property
    def hosts(self):
        """The names of the hypervisors."""
        return self.names()[1:]

    def salt(self, target, fun, *args, timeout=None, **kwargs):
        """Run `salt target fun …` on the master; {minion: its answer}."""
        argv = ["salt", "--out=json", "--static", *(["-t", timeout] if timeout else [])]
        done = self.typed([*argv, target, fun, *words(args, kwargs)])
        return parsed(done)

    def call(self, host, fun, *args, timeout=None, **kwargs):
        """What one minion answers to a function; LabError when it does not."""
        answers = self.salt(host, fun, *args, timeout=timeout, **kwargs)
        if host not in answers:
            raise LabError(f"{host} did not answer {fun}: {answers}")
        return answers[host]

    def run(self, fun, *args, timeout=600, **kwargs):
        """Run `salt-run fun …` on the master as a user does; its Result."""
        argv = ["salt-run", fun, *words(args, kwargs)]
        done = self.typed(argv, timeout=timeout)
        return Result(done.returncode, done.stdout, done.stderr)

    def run_json(self, fun, *args, **kwargs):
        """What a runner's function returns."""
        argv = ["salt-run", "--out=json", fun, *words(args, kwargs)]
        return parsed(self.typed(argv))

    def sync(self, tree=paths.REPOSITORY):
        """Publish a tree to the lab and sync it everywhere."""
        return sync.sync(self, tree)

    def synced(self):
        """The same with this tree; whatever is called next has the new modules. A minion answers
        to a sync before it has looked for them again."""
        self.sync()
        self.salt("hv*", "saltutil.refresh_modules", **{"async": False})

    def cut(self, host):
        """Pull a machine's network cable."""
        self.network.link(host, "down")

    def heal(self, host):
        """Plug a machine's network cable in again."""
        self.network.link(host, "up")

    def power_off(self, host):
        """Take a machine's power away: no shutdown, everything in it is gone at once."""
        self.machine(host).kill()

    def power_on(self, host):
        """Boot a machine that is off, with the disk it had, and wait for its minion."""
        machine = self.machine(host)
        machine.boot()
        machine.wait()
        self.wait_for_minion(host)

    def kill(self, host, pattern):
        """kill -9 the processes in a machine whose command line matches; LabError if none."""
        done = self.exec(host, ["pkill", "-9", "-f", "--", pattern], check=False)
        if done.returncode:
            raise LabError(f"no process matches {pattern!r} on {host}")

    def wait(self, ready, what, timeout_s=120, every_s=0.5):
        """Wait until ``ready()`` is true and return that; LabError names `what` if not, after
        several times the time: others may have the CPU."""
        end = time.monotonic() + 5 * timeout_s
        while True:
            answer = ready()
            if answer:
                return answer
            if time.monotonic() > end:
                raise LabError(f"not within {5 * timeout_s} s: {what}")
            time.sleep(every_s)

    def wait_for_minion(self, *names, timeout_s=900):
        """Wait until these minions answer test.ping; the master itself may be starting."""
        if self.typed(["pings", timeout_s, *names], timeout=timeout_s + 60).returncode:
            raise LabError(f"no test.ping from {', '.join(names)} in {timeout_s} s")

    def restart_minion(self, *hosts):
        """Restart minions at once and wait for them.

        They are killed: Salt takes nine seconds to end a minion that is asked to.
        """
        for host in hosts:
            self.exec(host, "pkill -9 -f -- '[b]in/salt-minion'; systemctl restart salt-minion")
        self.wait_for_minion(*hosts)

    def restart_master(self):
        """Restart the master and wait for its hypervisors."""
        self.exec("master", "systemctl restart salt-master")
        self.reconnected()

    def reconnected(self):
        """Wait for the hypervisors of a master that was started again.

        A minion may hear nothing for ever then, by a fault of Salt's (tests/chaos/world.py,
        is_deaf): it is restarted.
        """
        try:
            self.wait_for_minion(*self.hosts, timeout_s=180)
        except LabError:
            self.restart_minion(*self.hosts)


def words(args, kwargs):
    """Arguments as Salt's command line takes them."""
    named = [f"{key}={word(value)}" for key, value in kwargs.items()]
    return [*(word(value) for value in args), *named]


def word(value):
    """One argument: a text as it is, everything else as JSON, which is YAML."""
    return value if isinstance(value, str) else json.dumps(value)


def parsed(done):
    """The JSON that a program printed last, whatever it printed before."""
    text = done.stdout
    for start in [i for i, c in enumerate(text) if c in "[{" and (i == 0 or text[i - 1] == "\n")]:
        try:
            return json.loads(text[start:])
        except ValueError:
            continue
    try:
        return json.loads(text)
    except ValueError as exc:
        raise LabError(f"no JSON in {text!r}; {done.stderr!r}") from exc


def recipe():
    """What the tests' labs are made of."""
    return Recipe(
        os.environ.get("SALTVIRT_LAB_DEBIAN", "12"), os.environ.get("SALTVIRT_LAB_SALT", "3008")
    )


def skip_without_lab():
    """Skip, with the reason, where no lab can be."""
    reason = packages.why_not()
    if reason:
        pytest.skip(reason)


@pytest.fixture(scope="package")
def lab():
    """The lab of tests/integration: a master and two hypervisors, synced with this tree. It goes
    down before other tests begin: a lab that does nothing takes one fiftieth of a core."""
    skip_without_lab()
    keep = os.environ.get("SALTVIRT_LAB_KEEP") == "1"
    cloud = Lab(paths.instance_name() if keep else f"test-{os.getpid()}")
    if not (keep and cloud.running()):
        cloud.up(2, recipe(), owner=None if keep else os.getpid())
    cloud.synced()
    yield cloud
    if not keep:
        cloud.down()


def own_lab(request, count=2, **how):
    """Yield a lab that only the tests of one module use; `how` goes to Cloud.up. count: of its
    hypervisors."""
    skip_without_lab()
    module = request.module.__name__.rpartition(".")[2].removeprefix("test_")
    cloud = Lab(f"{module.replace('_', '-')[:12].strip('-')}-{os.getpid()}")
    cloud.up(count, recipe(), owner=os.getpid(), **how)
    yield cloud
    cloud.down()


@pytest.fixture(scope="module")
def fresh_lab(request):
    """A lab of this module's own, as `lab up 2` leaves it: nothing is synced yet."""
    yield from own_lab(request)


@pytest.fixture(scope="module")
def bare_lab(request):
    """Like fresh_lab, but the hypervisors have no br0: eth0 has their address."""
    yield from own_lab(request, bare=True)


@pytest.fixture(scope="module")
def mixed_lab(request):
    """Like fresh_lab, but hv2 has Debian's other release."""
    yield from own_lab(request, mixed=True)


@pytest.fixture(scope="module")
def power_lab(request):
    """Like fresh_lab, but each hypervisor has a BMC and a watchdog."""
    yield from own_lab(request, with_power=True)


@pytest.fixture(scope="module")
def ha_lab(request):
    """Three hypervisors with BMCs and watchdogs, whose master serves storage; synced."""
    for cloud in own_lab(request, count=3, with_power=True, shared=True):
        storage.serve(cloud)
        cloud.synced()
        yield cloud


@pytest.fixture(scope="module")
def empty_lab(request):
    """Like bare_lab, but the machines have no libvirt, and an apt repository that has it."""
    yield from own_lab(request, empty=True)


@pytest.fixture(scope="module")
def shared_lab(request):
    """A lab whose master serves storage over the network, see storage.py; synced."""
    for cloud in own_lab(request, shared=True):
        storage.serve(cloud)
        cloud.synced()
        yield cloud
