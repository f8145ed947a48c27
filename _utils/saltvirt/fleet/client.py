"""Send requests to many hosts, and yield their answers as they arrive, with limits for each wait.

A published job may run on a host that the master does not see, because the host is behind NAT or
its address has changed. A missing connection therefore proves nothing: the master pings such a host
before it publishes a job that changes something, and while it publishes one that only reads. It
waits for the host unless it can account for all its connections. runner.md, "How long it
waits", lists all limits.

An answer is trusted if it is signed with the host's key; see fleet.proof. The keys of hosts below a
syndic are not available. Events about steps are only displayed, because any minion can forge them:
the master asks the host when it made its last step.
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

# (prefix of event tags, callback for tag and data); (seconds, seconds, callback without progress)
Watch = tuple[str, Callable[[str, dict[str, Any]], None]]
StallNotice = tuple[float, float, Callable[[], None]]

log = logging.getLogger(__name__)

# the time for a host that surely has no connection, or has just exceeded a timeout
GRACE_S = 0.3
GONE_S = 60
# the time for a host without a sign of life in the last wait, if it is asked again within GONE_S
HUNG_S = 2
# a silent host is asked whether it still works at the job; it must answer within this time
PROBE_S = 5
# a busy host answers slowly, and a minion that was restarted or disconnected returns: a host with a
# long job is lost only without any sign of life for this time
SILENT_S = 90
# after a host has finished the job: when its return is searched in the master's job cache, and when
# the return is considered lost
LATE_S, RETURNS_S = 3, 30
# the number of timeouts for a host that reports that it works at the job
PATIENCE = 3
# the time for a host to sign its answer to the probe, after an unsigned answer in its name
UNSIGNED_S = 2
# the number of answers to the probe that are read before the job itself is checked again
_AT_A_TIME = 100
# the timeout of a long job without progress: virt:stall_timeout
STALL_S = 900
# the maximum time that a host can request for a step
LONGEST_STEP_S = 3600
# the timeout of a long job, regardless of progress: virt:job_timeout
JOB_S = 86400
# the functions that report whether a job runs, on a host and on the minion of a guest
WORKING, GUEST_WORKING = "virt.working", "saltutil.find_job"


def _with_user(opts: dict[str, Any]) -> dict[str, Any]:
    """Return the options with an existing user, whose key the client reads.

    In processes that a reactor starts, Salt sets the user to ``Reactor``.
    """
    user = opts.get("user") or "root"
    try:
        pwd.getpwnam(user)
    except KeyError:
        user = salt.utils.user.get_user()
    return {**opts, "user": user}


class Fleet:
    """The hosts of this master.

    opts: the master's configuration (the runner's ``__opts__``). Use it as a context manager: it
    has a connection to the master's event bus. like: the Fleet of another thread, with which it
    shares what is known about the connections of hosts.
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
        # hosts without a visible connection: those that answered nevertheless, and those that
        # exceeded a timeout, with its time
        self.answered: set[str] = like.answered if like else set()
        self.unreachable_s: dict[str, float] = like.unreachable_s if like else {}
        # hosts with a connection but without a sign of life in a whole wait, with its time
        self.hung: dict[str, float] = like.hung if like else {}
        self._keys: dict[str, str | None] = {}
        self._bus: _Bus = like._bus if like else _Bus(opts)
        self._is_first = like is None

    def __enter__(self) -> Fleet:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.disconnect()

    def disconnect(self) -> None:
        """Close the connection to the master's event bus until the next use.

        Events in the meantime are not received.
        """
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
        """Return the ids of the hypervisors, sorted; with ``only`` that one if it is known.

        Raises NotFound if there is no hypervisor, or ``only`` is not one of them.
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
        """Return the hypervisors of this master, including those below its syndics."""
        hypervisors = target.hosts(self.opts)
        if not self.opts.get("order_masters"):
            return hypervisors
        if self._below is None:
            self._below = syndic.known_hosts(self.client, self.opts, target.expression(self.opts))
        return sorted({*hypervisors, *self._below})

    def direct_hosts(self) -> list[str]:
        """Return the hypervisors of this master that are not below a syndic, sorted.

        Raises NotFound if there is no hypervisor.
        """
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
        """Call ``fun`` on the hosts. Yield the Answer of each host as it arrives.

        kwarg: keyword arguments. Nothing is passed by position (positions shift between versions),
        and nothing is parsed as YAML on the way.
        timeout_s: how long a host may be silent; default: the master's ``timeout``. A silent host
        is asked whether it still works at the job. If it does, the limit is three times timeout_s.
        patient: the same limit for a host that is too busy to report that it works.
        long: wait while the job makes progress. The limits are ``virt:stall_timeout`` seconds after
        the last step that the host reports, and ``virt:job_timeout`` seconds after the start. A
        host without a visible connection gets the job only after it has answered a ping: a host
        that is reported as ``down`` was never asked to do anything.
        watch: (prefix of event tags, callback for tag and data) for events in the meantime.
        on_stall: (seconds, seconds, callback): called once after the first time without progress,
        or after the second time in total.
        signed: the answers are signed by the hosts; the minions of guests do not sign.
        each: the arguments of several calls instead of kwarg, which one job carries out one after
        the other; answer.split_answers reads the result.
        Raises ConnectionFailed if the master itself does not answer.
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
        """Return the verified return of a host, or None if the signature is not valid.

        event: the event with the ``return``.
        """
        if host not in self._keys:
            self._keys[host] = KeyStore(self.opts).of_host(host)
        key = self._keys[host]
        if key is None and not self.opts.get("order_masters"):
            return None
        return proof.verify(host, jid, fun, event.get("return"), key)

    def connected(self, hosts: Iterable[str]) -> set[str]:
        """Return the hosts with a visible connection to the master."""
        visible = target.connected(self.opts, hosts)
        if self.opts.get("order_masters"):
            # the connections of minions below a syndic are unknown: they are never declared down
            visible |= set(hosts) - set(target.accepted(self.opts))
        return visible

    def _absent(self, hosts: list[str], timeout_s: float) -> dict[str, answer.Answer]:
        """Return the Answers for hosts without a visible connection that answer no ping."""
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
        """Return the Answers of :meth:`ask` as a dict, sorted by host."""
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
        """Return the data of ``fun`` on a host. Raises as Answer.get does."""
        return self.gather([host], fun, kwarg, long=long, **options)[host].get()

    def each(
        self, host: str, fun: str, calls: list[dict[str, Any]], **options: Any
    ) -> list[answer.Answer]:
        """Return the Answers of a host to several calls in one job, in the order of the calls.

        calls: the keyword arguments of each call. options: as for :meth:`ask`. If an answer is
        missing, the call has the error of the job.
        """
        [job_answer] = self.ask([host], fun, long=True, each=calls, **options)
        return answer.split_answers(job_answer, fun, len(calls))

    def fire_event(self, tag: str, data: dict[str, Any]) -> None:
        """Fire an event on the master's bus.

        Failures are only logged: a stopped master has no bus.
        """
        try:
            self._bus.fire(tag, data)
        except (OSError, SaltException) as exc:
            log.warning("the event %s was not sent: %s", tag, exc)


class _Bus:
    """The master's event bus, for sending only.

    Threads share it: Salt's connection breaks if two threads use it at the same time.
    """

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
        """Close the connection until the next event."""
        with self._lock:
            if self._event is not None:
                self._event.destroy()
                self._event = None


@dataclass(frozen=True)
class _Patience:
    """The limits for the wait for a job's hosts; see Fleet.ask."""

    timeout_s: float
    long: bool
    patient: bool
    stall_s: float
    job_s: float

    @property
    def is_quick(self) -> bool:
        """Whether every host should answer immediately."""
        return not (self.long or self.patient)

    @property
    def whole_s(self) -> float:
        """The total limit of a job that is not long."""
        return PATIENCE * self.timeout_s

    @property
    def silent_s(self) -> float:
        """How long a host may be without a sign that it works."""
        if self.long:
            return SILENT_S
        return self.whole_s if self.patient else 0


def _unsubscribe(fleet: Fleet, tag: str) -> None:
    with contextlib.suppress(ValueError):  # 3006 raises if it is not subscribed
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
        self.unproven: set[str] = set()
        self.checked: set[str] = set()
        self.probe: _Probe | None = None
        self.late, self.all_known = False, cast("bool | None", None)
        self.started = self.now()
        # the time of each host's last reported step, and the time that the step may take
        self.moved = dict.fromkeys(hosts, self.started)
        self.granted_s: dict[str, float] = {}

    def publish(
        self, fun: str, kwarg: dict[str, Any], each: list[dict[str, Any]] | None = None
    ) -> None:
        self.fun = fun
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
        """Return the prefixes of the event tags to receive."""
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
        """Publish to the hosts; default: to those that have not answered."""
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
        """Yield the next return within the time, if one arrives, and pass events to the watcher."""
        tags = "|".join(self._subscriptions())
        event = self.fleet.client.event.get_event(
            wait=wait_s, tag=f"({tags})", match_type="regex", full=True
        )
        if event is None:
            return
        tag, data = event["tag"], event["data"]
        host = data.get("id")
        if not isinstance(host, str):  # any minion can forge an event
            return
        if self.watch_prefix and tag.startswith(self.watch_prefix):
            returned = data.get("data")
            if data.get("cmd") == "_minion_event" and isinstance(
                returned, dict
            ):  # not an event of this master
                self._watched(tag, returned)
            return
        if host not in self.waiting:
            return
        if tag.startswith(self.tags[0]):
            yield from self._accept(host, data)
        elif self.verify(host, self.ping, "test.ping", data) is None:
            self.unproven.add(host)

    def _watched(self, tag: str, returned: dict[str, Any]) -> None:
        """Show a step. Any minion may have sent it, so its content must not break the operation."""
        try:
            if self.watcher:
                self.watcher(shape.clean(tag), shape.step(returned))
        except Exception as exc:
            log.warning("cannot show the step %r: %s", tag, exc)

    def _accept(self, host: str, event: dict[str, Any]) -> Iterator[answer.Answer]:
        """Yield the host's Answer if its signature is valid.

        Otherwise the real answer may still arrive: the master waits for it while the host reports,
        signed, that it works at the job.
        """
        returned = self.verify(host, self.jid, self.fun, event)
        if returned is None:
            self.unproven.add(host)
            return
        self.waiting.discard(host)
        yield answer.from_return(host, returned)

    def verify(self, host: str, jid: str, fun: str, event: dict[str, Any]) -> dict[str, Any] | None:
        """Return the verified return of a host, visible or not; None if it is not valid."""
        returned = self.fleet.verify(host, jid, fun, event) if self.signed else event
        if returned is not None:
            self.fleet.unreachable_s.pop(host, None)
            self.fleet.hung.pop(host, None)
            self.unanswered.discard(host)
            if host not in self.connected:
                self.fleet.answered.add(host)
        return returned

    def at_work(self, host: str, working: dict[str, Any]) -> None:
        """Record the age of the host's last step, and the time that the step may take."""
        quiet_s, within_s = (shape.seconds(working.get(w)) for w in ("quiet_s", "within_s"))
        if quiet_s is not None and self.now() - quiet_s > self.moved[host]:
            self.moved[host], self.granted_s[host] = self.now() - quiet_s, within_s or 0

    def _quiet_s(self, host: str) -> float:
        """Return the seconds without progress, beyond the time that the step may take."""
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
        """End all waiting hosts if none of them has given a sign of life since the last wait."""
        since = {
            host: since_s for host, since_s in dict(self.fleet.hung).items() if host in self.hung
        }
        if self.waiting <= since.keys():
            now = self.now()
            yield from self._end(self.waiting, lambda host: answer.silent(host, now - since[host]))

    def _any_quiet(self) -> bool:
        return any(self.now() - self.moved[host] > self.quiet_s for host in self.waiting)

    def _ask_the_silent(self, patience: _Patience, late: bool) -> _Probe:
        """Probe the silent hosts. late: the timeout has passed: hosts must answer this probe."""
        if self.probe is None or late > self.late:
            if self.probe:
                self.probe.end()
            self.probe, self.late = _Probe(self, patience.silent_s, patience.long), late
        self.probe.listen()
        return self.probe

    def _without_connection(self, timeout_s: float, waited_s: float) -> Iterator[answer.Answer]:
        """End the hosts without a visible connection that have not answered in time."""
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
        """Yield answers in the master's job cache that did not arrive on its event bus."""
        late = probe.finished_for(LATE_S) - self.checked
        self.checked |= late
        try:
            returns = self.fleet.client.get_cache_returns(self.jid) if late else {}
        except Exception as exc:  # depends on the master's job cache
            log.warning("cannot read the returns of job %s: %s", self.jid, exc)
            return
        for host in sorted(late & set(returns)):
            yield from self._accept(host, {**returns[host], "return": returns[host].get("ret")})


class _Probe:
    """A query to silent hosts: a host that works at the job is alive, another has finished it."""

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
        """Stop receiving answers."""
        if self.tag:
            _unsubscribe(self.job.fleet, self.tag)
            self.tag = ""

    def listen(self) -> None:
        """Read the answers that have arrived, up to a limit, so that forged events cannot block."""
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
            elif returned.get("retcode"):  # it cannot answer, for example before a sync
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
        """Return the hosts whose only answers, including those to this probe, are not signed."""
        timed_out = self.job.now() - self.sent > UNSIGNED_S
        return self.unproven - self.alive - set(self.finished) if timed_out else set()

    def finished_for(self, since_s: float) -> set[str]:
        """Return the hosts that finished the job before that time, and whose return is missing."""
        now = self.job.now()
        return {
            h for h, finished_s in self.finished.items() if now - finished_s > since_s
        } & self.job.waiting

    def lost(self) -> set[str]:
        """Return the hosts that will not answer; probe again while others work."""
        lost = self.finished_for(RETURNS_S)
        if self.job.now() - self.sent > PROBE_S:
            lost |= self._unresponsive(self.job.waiting - self.alive - set(self.finished))
            if self.job.waiting - lost - set(self.finished):
                self._send()
        return lost

    def _unresponsive(self, silent: set[str]) -> set[str]:
        """Return the silent hosts whose limit has passed."""
        if not self.silent_s or not silent:
            return silent
        # unless the job is long, a host whose visible connection has disappeared is not waited for
        disconnected = (
            set() if self.long else (silent & self.job.connected) - self.job.fleet.connected(silent)
        )
        now, started = self.job.now(), self.job.started
        return disconnected | {
            h for h in silent if now - self.last_sign_s.get(h, started) > self.silent_s
        }
