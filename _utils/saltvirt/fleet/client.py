"""One question to many hosts, answers as they come; and an end to each wait.

A job that was published may be at work on a host that the master does not see: behind NAT, or
since its address changed. So that the master sees no connection decides nothing: such a host is
asked by ``test.ping``, before a job that changes something is published to it, and beside one
that only reads; it is waited for, unless the master can account for all connections it has.
docs/runner.md, "How long it waits", has all the limits.

A host's answer is believed when it is signed with its key, see fleet.proof; of one below a syndic
the key is not here. Events of its steps are shown, and nothing more: any minion can make them up.
How long ago its last step was, the host is asked.
"""

from __future__ import annotations

import contextlib
import logging
import pwd
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, cast

import salt.client
import salt.utils.args
import salt.utils.event
import salt.utils.jid
import salt.utils.user
from salt.exceptions import SaltClientError, SaltException, SaltReqTimeoutError

import saltvirt
from saltvirt import errors, settings
from saltvirt.fleet import answer, peers, proof, shape, syndic, target
from saltvirt.fleet.keys import KeyStore

# (prefix of event tags, what is called with tag and data), and what is called when it is quiet
Watch = tuple[str, Callable[[str, dict[str, Any]], None]]
StallNotice = tuple[float, float, Callable[[], None]]

log = logging.getLogger(__name__)

# a host that surely has no connection, or has just let a whole time-out pass, gets this much
GRACE_S = 0.3
GONE_S = 60
# one that gave no sign of life for a whole wait, and is asked beside others within GONE_S again
HUNG_S = 2
# a silent host is asked whether it still works at the job; it answers within this or is lost
PROBE_S = 5
# but a busy host is slow to say so, and a minion that was restarted, or cut off, comes back: with
# a long job a host is lost only when there was no sign of it for so long
SILENT_S = 90
# of a job that its host has ended, the return is looked for where the master writes it down after
# so long; and it is lost after so long
LATE_S, RETURNS_S = 3, 30
# how many time-outs a host may take that says it still works
PATIENCE = 3
# a host has so long to sign its answer to the probe, when somebody else gave one in its name
UNSIGNED_S = 2
# answers to the probe that are looked at before the job itself is looked at again
_AT_A_TIME = 100
# a long job is given up when there was no progress for so long: virt:stall_timeout
STALL_S = 900
# what a step of a host may ask for at most
LONGEST_STEP_S = 3600
# and whatever the host says, a long job is given up after so long: virt:job_timeout
JOB_S = 86400
# what a host is asked about a job of it, and a guest's minion
WORKING, GUEST_WORKING = "virt.working", "saltutil.find_job"


def _with_user(opts: dict[str, Any]) -> dict[str, Any]:
    """The options with a user of this machine, whose key the client reads.

    In what a reactor begins Salt has put the word ``Reactor`` in its place.
    """
    user = opts.get("user") or "root"
    try:
        pwd.getpwnam(user)
    except KeyError:
        user = salt.utils.user.get_user()
    return {**opts, "user": user}


class Fleet:
    """The hosts of this master.

    opts: the master's configuration (the runner's ``__opts__``).
    Use as a context manager: it holds a connection to the master's event bus. like: one of another
    thread; what either finds of hosts' connections, both know.
    """

    def __init__(
        self,
        opts: dict[str, Any],
        now: Callable[[], float] = time.monotonic,
        like: Fleet | None = None,
    ) -> None:
        saltvirt.check()
        self.opts = opts
        self.now = now
        self._client: Any = None
        self._below: set[str] | None = None
        # hosts whose connection the master does not see: who answered all the same, and who let
        # a whole time-out pass, with when that was
        self.answered: set[str] = like.answered if like else set()
        self.unreachable_s: dict[str, float] = like.unreachable_s if like else {}
        # hosts that have a connection and gave no sign of life for a whole wait, with when
        self.hung: dict[str, float] = like.hung if like else {}
        self._keys: dict[str, str | None] = {}
        self._bus: _Bus = like._bus if like else _Bus(opts)
        self._is_first = like is None

    def __enter__(self) -> Fleet:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.disconnect()

    def disconnect(self) -> None:
        """Lets go of the connection to the master's event bus, until it is used again: what comes
        meanwhile is not kept for it."""
        if self._is_first:
            self._bus.disconnect()
        if self._client is not None:
            self._client.destroy()
            self._client = None

    @property
    def client(self) -> Any:
        if self._client is None:
            self._client = salt.client.get_local_client(mopts=_with_user(self.opts))
        return self._client

    def hosts(self, only: str | None = None) -> list[str]:
        """Ids of the hypervisors, sorted; with ``only`` that one, checked to be known.

        Raises NotFound when there is none, or ``only`` is none of them.
        """
        hypervisors = self._hypervisors()
        only = None if only == "" else only
        if only is not None and only not in hypervisors:
            names = ", ".join(hypervisors) or "none at all"
            raise errors.NotFound(f"{only!r} is not a hypervisor of this master; known: {names}")
        if not hypervisors:
            raise errors.NotFound(f"no hypervisor: {target.no_host_reason(self.opts)}")
        return hypervisors if only is None else [only]

    def _hypervisors(self) -> list[str]:
        """The hypervisors of this master, and on a master of masters those below its syndics."""
        hypervisors = target.hosts(self.opts)
        if not self.opts.get("order_masters"):
            return hypervisors
        if self._below is None:
            self._below = syndic.known_hosts(self.client, self.opts, target.expression(self.opts))
        return sorted({*hypervisors, *self._below})

    def direct_hosts(self) -> list[str]:
        """Those of the hypervisors that have this master, and not one below it; sorted. Raises
        NotFound when there is none."""
        return [host for host in self.hosts() if not syndic.below(self.opts, host)]

    def ask(
        self,
        hosts: Iterable[str],
        fun: str,
        kwarg: dict[str, Any] | None = None,
        *,
        timeout_s: float | None = None,
        long: bool = False,
        patient: bool = False,
        watch: Watch | None = None,
        on_stall: StallNotice | None = None,
        signed: bool = True,
        each: list[dict[str, Any]] | None = None,
    ) -> Iterator[answer.Answer]:
        """Calls ``fun`` on the hosts; yields an Answer per host, each as it arrives.

        kwarg: dict of keyword arguments. Nothing is passed by position (positions shift
        between versions) and nothing is parsed as YAML on the way.
        timeout_s: how long a host may be silent; default the master's ``timeout``. A host that
        is silent longer is asked whether it still works at the job. If it does, it is waited
        for: three times timeout_s in all.
        patient: in that time a host may also be too busy to say so.
        long: the job may take as long as it wants, while there is progress: it is given up
        ``virt:stall_timeout`` seconds after the last step that the host tells of when it is asked,
        and ``virt:job_timeout`` seconds after its begin whatever it tells. A host that the master
        does not see gets it when it answered a ping, so that what is said to be ``down`` never
        was told to do anything.
        watch: (prefix of event tags, callable of tag and data) for events meanwhile.
        on_stall: (seconds, seconds, callable): called once when there was no progress for so long,
        or
        when it is at work for so long.
        signed: the hosts sign what they answer; guests' minions do not.
        each: arguments of several calls, in place of kwarg: one job has them all, one after the
        other, and answer.several reads what it answers.
        Raises ConnectionFailed when the master itself does not answer.
        """
        hosts = list(hosts)
        timeout_s = timeout_s or self.opts["timeout"]
        if long:
            absent = self._absent(hosts, timeout_s)
            yield from absent.values()
            hosts = [host for host in hosts if host not in absent]
        if not hosts:
            return
        job = _Job(self, hosts, watch, on_stall, signed)
        job.publish(fun, kwarg or {}, each)
        limits = self._limit("stall_timeout", STALL_S), self._limit("job_timeout", JOB_S)
        yield from job.answers(_Patience(timeout_s, long, patient, *limits))

    def verify(self, host: str, jid: str, fun: str, event: dict[str, Any]) -> dict[str, Any] | None:
        """The return of a host, as its answer has it; None when it is not proven to be its.

        event: what came as that, ``return`` and all.
        """
        if host not in self._keys:
            self._keys[host] = KeyStore(self.opts).of_host(host)
        key = self._keys[host]
        if key is None and not self.opts.get("order_masters"):
            return None
        return proof.verify(host, jid, fun, event.get("return"), key)

    def connected(self, hosts: Iterable[str]) -> set[str]:
        """Those of the hosts whose connection the master sees, as a set."""
        visible = target.connected(self.opts, hosts)
        if self.opts.get("order_masters"):
            # of a minion below a syndic nobody here knows: it is asked, never declared down
            visible |= set(hosts) - set(target.accepted(self.opts))
        return visible

    def _absent(self, hosts: list[str], timeout_s: float) -> dict[str, answer.Answer]:
        """Host to its Answer, of those that the master does not see and that answer no ping."""
        reachable = self.connected(hosts) | self.answered
        unseen = [host for host in hosts if host not in reachable]
        pings = self.ask(unseen, "test.ping", timeout_s=timeout_s)
        absent = (answer.DOWN, answer.SILENT, answer.BAD)
        return {ping.host: answer.down(ping.host, ping) for ping in pings if ping.kind in absent}

    def _limit(self, word: str, default: int) -> int:
        return settings.integer(settings.of_master(self.opts), word, default)

    def gather(
        self, hosts: Iterable[str], fun: str, kwarg: dict[str, Any] | None = None, **options: Any
    ) -> dict[str, answer.Answer]:
        """Like :meth:`ask`, all at once: a dict of host to Answer, sorted by host."""
        answers = {a.host: a for a in self.ask(hosts, fun, kwarg, **options)}
        return dict(sorted(answers.items()))

    def call(
        self,
        host: str,
        fun: str,
        kwarg: dict[str, Any] | None = None,
        *,
        long: bool = True,
        **options: Any,
    ) -> Any:
        """What ``fun`` returned on that host. Raises as Answer.get does."""
        return self.gather([host], fun, kwarg, long=long, **options)[host].get()

    def each(
        self, host: str, fun: str, calls: list[dict[str, Any]], **options: Any
    ) -> list[answer.Answer]:
        """What ``fun`` said there to each of the calls, which one job has, in this order.

        calls: keyword arguments of each. options: as :meth:`ask` has them. What becomes of the job
        becomes of each call whose answer did not come.
        """
        [job_answer] = self.ask([host], fun, long=True, each=calls, **options)
        return answer.split_answers(job_answer, fun, calls)

    def fire_event(self, tag: str, data: dict[str, Any]) -> None:
        """Fires an event on the master's bus. What is told of ends as it would without: a master
        that has stopped has no bus."""
        try:
            self._bus.fire(tag, data)
        except (OSError, SaltException) as exc:
            log.warning("the event %s was not sent: %s", tag, exc)


class _Bus:
    """The master's event bus, for those who only tell. Threads share it: one connection is less
    work than one each, and Salt's breaks when two use it at once."""

    def __init__(self, opts: dict[str, Any]) -> None:
        self._opts, self._lock = opts, threading.Lock()
        self._event: Any = None

    def fire(self, tag: str, data: dict[str, Any]) -> None:
        with self._lock:
            if self._event is None:
                self._event = salt.utils.event.get_event(
                    "master", sock_dir=self._opts["sock_dir"], opts=self._opts, listen=False
                )
            self._event.fire_event(data, tag)

    def disconnect(self) -> None:
        """Lets go of the connection until somebody tells something."""
        with self._lock:
            if self._event is not None:
                self._event.destroy()
                self._event = None


@dataclass(frozen=True)
class _Patience:
    """How long a job's hosts are waited for; see Fleet.ask."""

    timeout_s: float
    long: bool
    patient: bool
    stall_s: float
    job_s: float

    @property
    def is_quick(self) -> bool:
        """A question that anybody answers at once."""
        return not (self.long or self.patient)

    @property
    def whole_s(self) -> float:
        """For a job that is not long, in all."""
        return PATIENCE * self.timeout_s

    @property
    def silent_s(self) -> float:
        """How long a host may give no sign that it works."""
        if self.long:
            return SILENT_S
        return self.whole_s if self.patient else 0


def _unsubscribe(fleet: Fleet, tag: str) -> None:
    with contextlib.suppress(ValueError):  # 3006 raises when it is not subscribed
        fleet.client.event.unsubscribe(tag)


class _Job:
    """A published job and the hosts that have not answered yet."""

    def __init__(
        self,
        fleet: Fleet,
        hosts: list[str],
        watch: Watch | None,
        on_stall: StallNotice | None = None,
        signed: bool = True,
    ) -> None:
        self.fleet = fleet
        self.now = fleet.now
        self.signed = signed
        self.waiting = set(hosts)
        self.connected = fleet.connected(hosts)
        self.unanswered = self.waiting - self.connected - fleet.answered
        hung = {host for host, since_s in dict(fleet.hung).items() if self.now() - since_s < GONE_S}
        self.hung = hung if self.waiting - hung else set()
        self.watch_prefix = watch[0] if watch else ""
        self.watcher = watch[1] if watch else None
        self.quiet_s, self.max_s = on_stall[:2] if on_stall else (0.0, 0.0)
        self.stall_callback = on_stall[2] if on_stall else None
        self.jid = salt.utils.jid.gen_jid(fleet.opts)
        self.tags = [f"salt/job/{self.jid}/ret/"]
        self.fun, self.ping = "", ""
        self.kwarg: dict[str, Any] | None = None
        self.each: list[dict[str, Any]] | None = None
        self.unproven: set[str] = set()
        self.checked: set[str] = set()
        self.probe: _Probe | None = None
        self.late, self.all_known = False, cast("bool | None", None)
        self.started = self.now()
        # when each host last made a step by its own word, and how long it said that it may take
        self.moved = dict.fromkeys(hosts, self.started)
        self.granted_s: dict[str, float] = {}

    def publish(
        self, fun: str, kwarg: dict[str, Any], each: list[dict[str, Any]] | None = None
    ) -> None:
        self.fun, self.kwarg, self.each = fun, kwarg, each
        if self.unanswered and fun != "test.ping":
            self.ping = salt.utils.jid.gen_jid(self.fleet.opts)
            self.tags.append(f"salt/job/{self.ping}/ret/")
        for tag in self._subscriptions():
            self.fleet.client.event.subscribe(tag)
        try:
            self.send(fun, kwarg, self.jid, each=each)
            if self.ping:
                self.send("test.ping", None, self.ping, self.unanswered)
        except BaseException:
            self._unsubscribe_all()
            raise

    def _subscriptions(self) -> list[str]:
        """What the tags begin with that are listened for."""
        return [*self.tags, *filter(None, [self.watch_prefix])]

    def _unsubscribe_all(self) -> None:
        for tag in self._subscriptions():
            _unsubscribe(self.fleet, tag)

    def send(
        self,
        fun: str,
        kwarg: dict[str, Any] | None,
        jid: str,
        hosts: set[str] | None = None,
        each: list[dict[str, Any]] | None = None,
    ) -> None:
        """Publishes to the hosts; default: to those that have not answered."""
        if each is not None:
            fun, kwarg = proof.EACH, {"fun": fun, "each": each}
        elif self.signed:
            fun, kwarg = proof.FUNCTION, {"fun": fun, "kwarg": kwarg or {}}
        arg = salt.utils.args.condition_input([], kwarg) if kwarg else []
        try:
            self.fleet.client.pub(
                sorted(hosts or self.waiting), fun, arg, tgt_type="list", jid=jid, listen=True
            )
        except (SaltClientError, SaltReqTimeoutError) as exc:
            reason = str(exc) or "is its process running? systemctl status salt-master"
            raise errors.ConnectionFailed(f"the Salt master does not answer: {reason}") from exc

    def answers(self, patience: _Patience) -> Iterator[answer.Answer]:
        try:
            while self.waiting:
                yield from self._next(0.2)
                yield from self._give_up(patience)
        finally:
            if self.probe:
                self.probe.end()
            self._unsubscribe_all()

    def _next(self, wait_s: float) -> Iterator[answer.Answer]:
        """The next return within that time, if one comes; feeds the watcher."""
        tags = "|".join(self._subscriptions())
        event = self.fleet.client.event.get_event(
            wait=wait_s, tag=f"({tags})", match_type="regex", full=True
        )
        if event is None:
            return
        tag, data = event["tag"], event["data"]
        host = data.get("id")
        if not isinstance(host, str):  # a minion makes up what it fires
            return
        if self.watch_prefix and tag.startswith(self.watch_prefix):
            returned = data.get("data")
            if data.get("cmd") == "_minion_event" and isinstance(returned, dict):  # not our own
                self._watched(tag, returned)
            return
        if host not in self.waiting:
            return
        if tag.startswith(self.tags[0]):
            yield from self._accept(host, data)
        elif self.verify(host, self.ping, "test.ping", data) is None:
            self.unproven.add(host)

    def _watched(self, tag: str, returned: dict[str, Any]) -> None:
        """Shows a step. Any minion may have sent it, so nothing in it breaks the operation."""
        try:
            if self.watcher:
                self.watcher(shape.clean(tag), shape.step(returned))
        except Exception as exc:
            log.warning("cannot show the step %r: %s", tag, exc)

    def _accept(self, host: str, event: dict[str, Any]) -> Iterator[answer.Answer]:
        """The host's Answer. One that is not proven to be its own is not taken: the true one may
        come yet, and is waited for while the host says, signed, that it works at the job."""
        returned = self.verify(host, self.jid, self.fun, event)
        if returned is None:
            self.unproven.add(host)
            return
        self.waiting.discard(host)
        expected_fun = self.fun if self.each is None else None
        yield answer.from_return(host, returned, expected_fun, self.kwarg)

    def verify(self, host: str, jid: str, fun: str, event: dict[str, Any]) -> dict[str, Any] | None:
        """What the host says, whether the master sees it or not; None when that is not proven."""
        returned = self.fleet.verify(host, jid, fun, event) if self.signed else event
        if returned is not None:
            self.fleet.unreachable_s.pop(host, None)
            self.fleet.hung.pop(host, None)
            self.unanswered.discard(host)
            if host not in self.connected:
                self.fleet.answered.add(host)
        return returned

    def at_work(self, host: str, working: dict[str, Any]) -> None:
        """What the host says of its last step: how long ago, and how long that one may take."""
        quiet_s, within_s = (shape.seconds(working.get(w)) for w in ("quiet_s", "within_s"))
        if quiet_s is not None and self.now() - quiet_s > self.moved[host]:
            self.moved[host], self.granted_s[host] = self.now() - quiet_s, within_s or 0

    def _quiet_s(self, host: str) -> float:
        """For how many seconds there was no progress, beyond what its step may take."""
        granted_s = min(LONGEST_STEP_S, self.granted_s.get(host, 0))
        return self.now() - self.moved[host] - granted_s

    def _give_up(self, patience: _Patience) -> Iterator[answer.Answer]:
        waited_s = self.now() - self.started
        yield from self._without_connection(patience.timeout_s, waited_s)
        if patience.is_quick and waited_s > HUNG_S:
            yield from self._hung_still()
        if self.stall_callback and (waited_s > self.max_s or self._any_quiet()):
            notify, self.stall_callback = self.stall_callback, None
            notify()
        late = waited_s > patience.timeout_s
        if self.waiting and (late or self.unproven & self.waiting):
            probe = self._ask_the_silent(patience, late)
            nobodys = self.unproven & probe.unsigned() & self.waiting
            yield from self._end(nobodys, answer.unproven)
        if self.waiting and late and self.probe:
            yield from self._stored_returns(self.probe)
            yield from self._lost(self.probe.lost(), waited_s, self.probe)
            if patience.long:
                stalled = {h for h in self.waiting if self._quiet_s(h) > patience.stall_s}
                yield from self._end(stalled, lambda h: answer.stalled(h, patience.stall_s))
                overdue = self.waiting if waited_s > patience.job_s else set()
                yield from self._end(overdue, lambda h: answer.endless(h, patience.job_s))
            elif waited_s > patience.whole_s:
                yield from self._lost(self.waiting, waited_s, self.probe)

    def _hung_still(self) -> Iterator[answer.Answer]:
        """All that are waited for, when of none of them there was a sign of life since."""
        since = {
            host: since_s for host, since_s in dict(self.fleet.hung).items() if host in self.hung
        }
        if self.waiting <= since.keys():
            now = self.now()
            yield from self._end(self.waiting, lambda host: answer.silent(host, now - since[host]))

    def _any_quiet(self) -> bool:
        return any(self.now() - self.moved[host] > self.quiet_s for host in self.waiting)

    def _ask_the_silent(self, patience: _Patience, late: bool) -> _Probe:
        """late: the time-out is over, and who does not answer this question is given up."""
        if self.probe is None or late > self.late:
            if self.probe:
                self.probe.end()
            self.probe, self.late = _Probe(self, patience.silent_s, patience.long), late
        self.probe.listen()
        return self.probe

    def _without_connection(self, timeout_s: float, waited_s: float) -> Iterator[answer.Answer]:
        """Those that the master does not see, and of which nothing was heard in the time."""
        hosts, now = self.waiting & self.unanswered, self.now()
        if waited_s > timeout_s:
            expired = hosts
            self.fleet.unreachable_s.update((host, now) for host in expired)
        elif hosts and hosts == self.waiting and waited_s > GRACE_S:
            expired = self._surely_gone(hosts, now)
        else:
            return
        yield from self._end(expired & self.unproven, answer.unproven)
        yield from self._end(expired & self.waiting, answer.down)

    def _surely_gone(self, hosts: set[str], now: float) -> set[str]:
        if self.all_known is None:
            self.all_known = peers.all_known(self.fleet.opts)
        if self.all_known:
            return hosts
        return {h for h in hosts if now - self.fleet.unreachable_s.get(h, now - GONE_S) < GONE_S}

    def _lost(self, hosts: set[str], waited_s: float, probe: _Probe) -> Iterator[answer.Answer]:
        for host in sorted(hosts):
            self.waiting.discard(host)
            if host in probe.finished:
                yield answer.lost(host)
                continue
            if host not in probe.last_sign_s:
                self.fleet.hung[host] = self.started
            yield answer.silent(host, waited_s, busy=host in probe.alive)

    def _end(
        self, hosts: set[str], make_answer: Callable[[str], answer.Answer]
    ) -> Iterator[answer.Answer]:
        for host in sorted(hosts):
            self.waiting.discard(host)
            yield make_answer(host)

    def _stored_returns(self, probe: _Probe) -> Iterator[answer.Answer]:
        """Answers that the master has written down, and its event bus did not bring."""
        late = probe.finished_for(LATE_S) - self.checked
        self.checked |= late
        try:
            returns = self.fleet.client.get_cache_returns(self.jid) if late else {}
        except Exception as exc:  # of whatever keeps the jobs of this master
            log.warning("cannot read the returns of job %s: %s", self.jid, exc)
            return
        for host in sorted(late & set(returns)):
            yield from self._accept(host, {**returns[host], "return": returns[host].get("ret")})


class _Probe:
    """WORKING to the silent: who is at the job is alive, who says "not here" is done."""

    def __init__(self, job: _Job, silent_s: float, long: bool) -> None:
        self.job = job
        self.silent_s, self.long = silent_s, long
        self.fun = WORKING if job.signed else GUEST_WORKING
        self.last_sign_s: dict[str, float] = {}
        self.finished: dict[str, float] = {}
        self.unproven: set[str] = set()
        self.tag = ""
        self._send()

    def _send(self) -> None:
        self.end()
        self.alive: set[str] = set()
        self.jid = salt.utils.jid.gen_jid(self.job.fleet.opts)
        self.sent, self.tag = self.job.now(), f"salt/job/{self.jid}/ret/"
        self.job.fleet.client.event.subscribe(self.tag)
        try:
            self.job.send(self.fun, {"jid": self.job.jid}, self.jid)
        except BaseException:
            self.end()
            raise

    def end(self) -> None:
        """Listens to no answer any more."""
        if self.tag:
            _unsubscribe(self.job.fleet, self.tag)
            self.tag = ""

    def listen(self) -> None:
        """Takes the answers that have come; so many at a time that nobody's events keep it here."""
        for _ in range(len(self.job.waiting) + _AT_A_TIME):
            event = self.job.fleet.client.event.get_event(wait=0.05, tag=self.tag, full=True)
            if event is None:
                return
            host, now = event["data"].get("id"), self.job.now()
            if not isinstance(host, str) or host not in self.job.waiting:
                continue
            returned = self.job.verify(host, self.jid, self.fun, event["data"])
            if returned is None:
                self.unproven.add(host)
            elif returned.get("retcode"):  # it cannot tell, such as one that is not synced yet
                log.warning("%s: %s: %s", host, self.fun, returned.get("return"))
                self.alive.add(host)
                self.last_sign_s[host] = now
            elif isinstance(returned.get("return"), dict) and returned["return"]:
                self.alive.add(host)
                self.last_sign_s[host] = now
                self.job.at_work(host, returned["return"])
            else:
                self.finished.setdefault(host, now)

    def unsigned(self) -> set[str]:
        """Those whose only answers, also to this question, are not signed by them."""
        timed_out = self.job.now() - self.sent > UNSIGNED_S
        return self.unproven - self.alive - set(self.finished) if timed_out else set()

    def finished_for(self, since_s: float) -> set[str]:
        """Those that ended the job so long ago, and whose return has not come."""
        now = self.job.now()
        return {
            h for h, finished_s in self.finished.items() if now - finished_s > since_s
        } & self.job.waiting

    def lost(self) -> set[str]:
        """The hosts that will not answer any more; asks again while others work on."""
        lost = self.finished_for(RETURNS_S)
        if self.job.now() - self.sent > PROBE_S:
            lost |= self._unresponsive(self.job.waiting - self.alive - set(self.finished))
            if self.job.waiting - lost - set(self.finished):
                self._send()
        return lost

    def _unresponsive(self, silent: set[str]) -> set[str]:
        """Those of the silent that are not waited for any more."""
        if not self.silent_s or not silent:
            return silent
        # where no long job goes on without it, a connection that the master saw, and that is gone,
        # says that there is nobody to wait for
        disconnected = (
            set() if self.long else (silent & self.job.connected) - self.job.fleet.connected(silent)
        )
        now, started = self.job.now(), self.job.started
        return disconnected | {
            h for h in silent if now - self.last_sign_s.get(h, started) > self.silent_s
        }
