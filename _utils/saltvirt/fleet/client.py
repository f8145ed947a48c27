"""One question to many hosts, answers as they come.

Salt's own client waits for every accepted minion that matches, also for those that
are gone, until its time-out. This one knows who is connected: a host that is not is
reported as down as soon as the others have answered, and costs no waiting.
"""

import contextlib
import pwd
import time

import salt.client
import salt.utils.args
import salt.utils.jid
import salt.utils.user
from salt.exceptions import SaltClientError, SaltReqTimeoutError

import saltvirt
from saltvirt import errors
from saltvirt.fleet import answer, syndic, target

# after the last connected host, those that the master thinks disconnected get this
GRACE_S = 0.3
# a silent host is asked whether it still works at the job; it answers within this or is lost
PROBE_S = 5
# but a busy host is slow to say so: with a long job, and while it has its connection, it is lost
# only when there was no sign of it for so long
SILENT_S = 90
# a job that its host has ended is lost when its return has not come after so long
RETURNS_S = 3
# how many time-outs a host may take that says it still works
PATIENCE = 3


def _with_user(opts):
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
    Use as a context manager: it holds a connection to the master's event bus.
    """

    def __init__(self, opts):
        saltvirt.check()
        self.opts = opts
        self._client = None
        self._below = None

    def __enter__(self):
        return self

    def __exit__(self, *exc_info):
        if self._client is not None:
            self._client.destroy()
            self._client = None

    @property
    def client(self):
        if self._client is None:
            self._client = salt.client.get_local_client(mopts=_with_user(self.opts))
        return self._client

    def hosts(self, only=None):
        """Ids of the hypervisors, sorted; with ``only`` that one, checked to be known.

        Raises NotFound when there is none, or ``only`` is none of them.
        """
        known = self._known()
        if only and only not in known:
            names = ", ".join(known) or "none at all"
            raise errors.NotFound(f"{only!r} is not a hypervisor of this master; known: {names}")
        if not known:
            raise errors.NotFound(
                "no hypervisor: no accepted minion matches virt:hosts in the master's configuration"
            )
        return [only] if only else known

    def _known(self):
        """The hypervisors of this master, and on a master of masters those below its syndics."""
        known = target.hosts(self.opts)
        if not self.opts.get("order_masters"):
            return known
        if self._below is None:
            self._below = syndic.answering(self.client, self.opts, target.expression(self.opts))
        return sorted({*known, *self._below})

    def ask(self, hosts, fun, kwarg=None, *, timeout_s=None, long=False, watch=None):
        """Calls ``fun`` on the hosts; yields an Answer per host, each as it arrives.

        kwarg: dict of keyword arguments. Nothing is passed by position (positions shift
        between versions) and nothing is parsed as YAML on the way.
        timeout_s: how long a connected host may be silent; default the master's ``timeout``.
        A host that is silent longer is asked whether it still works at the job. If it
        does, it is waited for: three times timeout_s in all, or with ``long`` without end. With
        ``long`` a busy host that keeps its connection may also be slow to say so.
        watch: (prefix of event tags, callable of tag and data) for events meanwhile.
        Raises ConnectionFailed when the master itself does not answer.
        """
        hosts = list(hosts)
        if not hosts:
            return
        job = _Job(self, hosts, watch)
        job.publish(fun, kwarg or {})
        yield from job.answers(timeout_s or self.opts["timeout"], long)

    def gather(self, hosts, fun, kwarg=None, **options):
        """Like :meth:`ask`, all at once: a dict of host to Answer, sorted by host."""
        found = {a.host: a for a in self.ask(hosts, fun, kwarg, **options)}
        return dict(sorted(found.items()))

    def one(self, host, fun, kwarg=None, *, long=True, **options):
        """What ``fun`` returned on that host. Raises as Answer.get does."""
        return self.gather([host], fun, kwarg, long=long, **options)[host].get()

    def tell(self, tag, data):
        """Fires an event on the master's bus."""
        self.client.event.fire_event(data, tag)


class _Job:
    """A published job and the hosts that have not answered yet."""

    def __init__(self, fleet, hosts, watch):
        self.fleet = fleet
        self.waiting = set(hosts)
        self.connected = target.connected(fleet.opts, hosts)
        if fleet.opts.get("order_masters"):
            # of a minion below a syndic nobody here knows: it is asked, never declared down
            self.connected |= self.waiting - set(target.accepted(fleet.opts))
        # the master tells who is connected by addresses; behind NAT it sees nobody
        self.sees = bool(self.connected or target.connected(fleet.opts))
        self.watch_prefix, self.watcher = watch or (None, None)
        self.jid = salt.utils.jid.gen_jid(fleet.opts)
        self.probe = None
        self.started = time.monotonic()

    def publish(self, fun, kwarg):
        event = self.fleet.client.event
        event.subscribe(f"salt/job/{self.jid}/ret/")
        if self.watch_prefix:
            event.subscribe(self.watch_prefix)
        self.send(fun, kwarg, self.jid)

    def send(self, fun, kwarg, jid):
        """Publishes to the hosts that have not answered."""
        arg = salt.utils.args.condition_input([], kwarg) if kwarg else []
        try:
            self.fleet.client.pub(
                sorted(self.waiting), fun, arg, tgt_type="list", jid=jid, listen=True
            )
        except (SaltClientError, SaltReqTimeoutError) as exc:
            raise errors.ConnectionFailed(f"the Salt master does not answer: {exc}") from exc

    def answers(self, timeout_s, long):
        try:
            while self.waiting:
                yield from self._next(0.2)
                yield from self._given_up(timeout_s, long)
        finally:
            with contextlib.suppress(ValueError):  # 3006 raises when it is not subscribed
                self.fleet.client.event.unsubscribe(f"salt/job/{self.jid}/ret/")

    def _next(self, wait_s):
        """The next return within that time, if one comes; feeds the watcher."""
        tags = f"salt/job/{self.jid}/ret/"
        if self.watch_prefix:
            tags = f"({tags}|{self.watch_prefix})"
        event = self.fleet.client.event.get_event(
            wait=wait_s, tag=tags, match_type="regex", full=True
        )
        if event is None:
            return
        tag, data = event["tag"], event["data"]
        if self.watch_prefix and tag.startswith(self.watch_prefix):
            if data.get("cmd") == "_minion_event":  # not our own events
                self.watcher(tag, data.get("data") or {})
        elif data.get("id") in self.waiting:
            self.waiting.discard(data["id"])
            yield answer.from_return(data["id"], data)

    def _given_up(self, timeout_s, long):
        now = time.monotonic()
        waited_s = now - self.started
        lost = self.waiting - self.connected
        grace_s = GRACE_S if self.sees else timeout_s
        if lost == self.waiting and waited_s > grace_s:
            yield from self._lost(lost, waited_s)
        if self.waiting and waited_s > timeout_s:
            if self.probe is None:
                self.probe = _Probe(self, SILENT_S if long else 0)
            patience = long or waited_s < PATIENCE * timeout_s
            yield from self._lost(self.probe.lost() if patience else self.waiting, waited_s)

    def _lost(self, hosts, waited_s):
        for host in sorted(hosts):
            self.waiting.discard(host)
            if self.probe and host in self.probe.ended:
                yield answer.lost(host)
            elif host in self.connected:
                yield answer.silent(host, waited_s)
            else:
                yield answer.down(host)


class _Probe:
    """``saltutil.find_job`` to the silent: who answers is alive, who says "not here" is done."""

    def __init__(self, job, silent_s):
        self.job = job
        self.silent_s = silent_s
        self.seen = {}
        self.ended = set()
        self._send()

    def _send(self):
        self.alive = set()
        self.finished = {}
        self.jid = salt.utils.jid.gen_jid(self.job.fleet.opts)
        self.sent = time.monotonic()
        self.job.fleet.client.event.subscribe(f"salt/job/{self.jid}/ret/")
        self.job.send("saltutil.find_job", {"jid": self.job.jid}, self.jid)

    def _listen(self):
        while True:
            event = self.job.fleet.client.event.get_event(
                wait=0.05, tag=f"salt/job/{self.jid}/ret/", full=True
            )
            if event is None:
                return
            host = event["data"].get("id")
            if event["data"].get("return"):
                self.alive.add(host)
                self.seen[host] = time.monotonic()
            else:
                self.finished[host] = time.monotonic()

    def lost(self):
        """The hosts that will not answer any more; asks again while others work on."""
        self._listen()
        now = time.monotonic()
        over = now - self.sent > PROBE_S
        # a finished job's return can still be on its way: a busy master takes it late
        lost = {h for h, t in self.finished.items() if now - t > RETURNS_S} & self.job.waiting
        self.ended |= lost
        if over:
            lost |= self._gone(self.job.waiting - self.alive - set(self.finished), now)
            if self.job.waiting - lost - set(self.finished):
                self._send()
        return lost

    def _gone(self, silent, now):
        """Those of the silent that are not waited for any more."""
        if not self.silent_s or not silent:
            return silent
        there = target.connected(self.job.fleet.opts, silent) if self.job.sees else silent
        started = self.job.started
        return {
            host
            for host in silent
            if host not in there or now - self.seen.get(host, started) > self.silent_s
        }
