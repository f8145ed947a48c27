"""Timeouts of requests to hosts, with a clock of the test and a bus without Salt."""

import re
from pathlib import Path
from unittest import mock

import pytest

pytest.importorskip("salt")

from salt.exceptions import SaltClientError, SaltReqTimeoutError

from saltvirt import errors, settings
from saltvirt.fleet import answer, client, peers, proof, target
from saltvirt.host.domain import guest_lock
from saltvirt.host.provision import guest_builder
from saltvirt.images import download_slot
from saltvirt.operations.create import init, request, wait
from saltvirt.operations.journal import slots
from saltvirt.system import file_lock, tools

ROOT = Path(__file__).parents[3]

# what fits any question that is asked here
ANSWER = {"cpus": 1, "memory_kib": 1, "name": "web1", "disks": []}
OPTS = {"timeout": 5, "virt": {"hosts": "hv*", "stall_timeout": 100}}


class Host:
    """A minion. after_s: when it answers, None: never. says: whether it tells of its work.

    steps: seconds after which it makes a step of its work; forged: after which somebody else fires
    an event of one; lost: its return reaches no bus; tells: what it says of its last step instead;
    old: its modules do not know the question. away: (from, until), seconds in which it has no
    connection.
    """

    def __init__(
        self, after_s=0.1, says=True, steps=(), lost=False, within_s=0, forged=(), tells=None,
        old=False, away=(0, 0),
    ):  # fmt: skip
        self.after_s, self.says, self.steps, self.lost = after_s, says, steps, lost
        self.within_s, self.forged, self.tells, self.old = within_s, forged, tells, old
        self.began, self.away = 0.0, away

    def is_away(self, now):
        return self.away[0] <= now < self.away[1]

    def working(self, now):
        """What it says of its job."""
        made = [self.began + after_s for after_s in self.steps if self.began + after_s <= now]
        step = {"quiet_s": now - max(made), "within_s": self.within_s} if made else {}
        return {"pid": 7, **(step if self.tells is None else self.tells)}


class Bus:
    """Salt's LocalClient and its event bus, in the time of the test."""

    def __init__(self, hosts):
        self.hosts, self.t = hosts, 0.0
        self.event, self.due, self.tags = self, [], []
        self.done, self.kept, self.published = {}, {}, []

    def now(self):
        return self.t

    def sleep(self, seconds):
        self.t += seconds

    def subscribe(self, tag):
        self.tags.append(tag)

    def unsubscribe(self, tag):
        self.tags.remove(tag)

    def pub(self, names, fun, arg, tgt_type, jid, listen):
        assert tgt_type == "list"
        if fun == proof.FUNCTION:
            fun = arg[0]["fun"]
        self.published.append((fun, names))
        for name in names:
            host = self.hosts[name]
            if host is None:  # gone
                continue
            if fun == "test.ping":
                self._returns(0.1, jid, name, True)
            elif fun == client.WORKING:
                if host.is_away(self.t):
                    continue
                if host.old:
                    self._returns(0.1, jid, name, f"'{fun}' is not available.", 1)
                elif host.says:
                    ended = self.done.get(name)
                    over = ended is not None and self.t >= ended
                    self._returns(0.1, jid, name, {} if over else host.working(self.t))
            else:
                self._work(host, name, fun, jid)

    def _work(self, host, name, fun, jid):
        ends = None if host.after_s is None else self.t + host.after_s
        self.done[name], host.pass_start = ends, self.t
        if ends is not None and not host.lost:
            self._returns(host.after_s, jid, name, ANSWER)
        if host.lost == "bus":
            self.kept.setdefault(jid, {})[name] = {"ret": ANSWER, "retcode": 0, "success": True}
        for after_s in host.forged:
            said = {"id": name, "cmd": "_minion_event", "data": {"within_s": 3000}}
            self.due.append((self.t + after_s, "salt/virt/web1/init/copy", said))

    def _returns(self, after_s, jid, name, data, retcode=0):
        said = {"id": name, "return": data, "retcode": retcode, "success": not retcode}
        self.due.append((self.t + after_s, f"salt/job/{jid}/ret/{name}", said))

    def get_event(self, wait, tag, full, match_type="startswith"):
        matches = re.compile(tag if match_type == "regex" else re.escape(tag)).match
        fits = [e for e in self.due if e[0] <= self.t + wait and matches(e[1])]
        if not fits:
            self.t += wait
            return None
        first = min(fits, key=lambda e: e[0])
        self.due.remove(first)
        self.t = max(self.t, first[0])
        return {"tag": first[1], "data": first[2]}

    def get_cache_returns(self, jid):
        return self.kept.get(jid, {})


@pytest.fixture
def cloud(monkeypatch):
    """A function of hosts, and the names of those that the master sees, that makes a Fleet."""

    def make(seen=None, all_known=False, **hosts):
        there = set(hosts) if seen is None else set(seen)
        bus = Bus(hosts)

        def connected(_opts, ids=None):
            away = {name for name, host in hosts.items() if host and host.is_away(bus.t)}
            return (there & set(ids or hosts)) - away

        monkeypatch.setattr(target, "connected", connected)
        monkeypatch.setattr(peers, "all_known", lambda opts: all_known)
        monkeypatch.setattr(client.Fleet, "verify", lambda self, host, jid, fun, event: event)
        fleet = client.Fleet(OPTS, now=bus.now)
        fleet._client, fleet.bus = bus, bus
        return fleet

    return make


def ask(fleet, fun="virt.inventory", **options):
    """{host: (kind, seconds until then)}."""
    began, found = fleet.bus.t, {}
    for one in fleet.ask(sorted(fleet.bus.hosts), fun, **options):
        found[one.host] = (one.kind, fleet.bus.t - began)
    return found


@pytest.mark.parametrize("fails", ["test.ping", "virt.inventory", client.WORKING])
def test_nothing_is_listened_for_once_a_question_is_over(cloud, monkeypatch, fails):
    """Nor when the master takes a job no more: in a process that lives long, what would come is
    kept for ever."""
    fleet = cloud(seen=[], hv1=Host(after_s=30))
    ask(fleet, watch=("salt/virt/web1/", lambda tag, data: None))
    assert fleet.bus.tags == []
    publish = fleet.bus.pub

    def pub(names, fun, arg, **how):
        if fails in (fun, *(one["fun"] for one in arg if isinstance(one, dict))):
            raise SaltClientError("no master")
        publish(names, fun, arg, **how)

    monkeypatch.setattr(fleet.bus, "pub", pub)
    fleet.answered.clear()
    with pytest.raises(errors.ConnectionFailed, match="the Salt master does not answer"):
        ask(fleet, watch=("salt/virt/web1/", lambda tag, data: None))
    assert fleet.bus.tags == []


def test_a_host_behind_nat_is_heard_though_the_master_sees_no_connection(cloud):
    found = ask(cloud(seen=["hv1"], hv1=Host(), hv2=Host(after_s=2)))
    assert {host: kind for host, (kind, _) in found.items()} == {"hv1": None, "hv2": None}


def test_a_slow_host_behind_nat_is_waited_for_as_any_other(cloud):
    assert ask(cloud(seen=[], hv1=Host(after_s=12)))["hv1"][0] is None


def test_a_dead_host_costs_one_time_out_and_then_next_to_nothing(cloud):
    fleet = cloud(seen=["hv1"], hv1=Host(), hv2=None)
    kind, took_s = ask(fleet)["hv2"]
    assert kind == "down"
    assert 5 <= took_s < 6
    kind, took_s = ask(fleet)["hv2"]
    assert kind == "down"
    assert took_s < 1
    fleet.bus.hosts["hv2"] = Host()
    fleet.bus.t += client.GONE_S
    assert ask(fleet)["hv2"][0] is None


def test_a_hung_host_costs_one_wait_and_then_two_seconds(cloud):
    fleet = cloud(hv1=Host(), hv2=Host(after_s=None, says=False))
    kind, took_s = ask(fleet)["hv2"]
    assert kind == "no answer"
    assert 10 <= took_s < 11
    (again,) = [one for one in fleet.ask(["hv1", "hv2"], "virt.inventory") if one.host == "hv2"]
    assert again.kind == "no answer"
    assert again.error == "no answer in 12 s"
    assert 12 < fleet.bus.t < 13
    fleet.bus.hosts["hv2"] = Host(after_s=1)
    assert ask(fleet)["hv2"][0] is None, "it is well again"
    fleet.bus.hosts["hv2"] = Host(after_s=4)
    assert ask(fleet)["hv2"][0] is None, "and waited for as any other"


def test_a_hung_host_that_says_meanwhile_that_it_works_is_waited_for_as_any_other(cloud):
    fleet = cloud(hv1=Host(), hv2=Host(after_s=None, says=False))
    ask(fleet)
    fleet.bus.hosts.update(hv1=Host(after_s=12), hv2=Host(after_s=14))
    assert {host: kind for host, (kind, _) in ask(fleet).items()} == {"hv1": None, "hv2": None}


def test_a_hung_host_is_waited_for_again_where_it_alone_is_asked_or_time_has_passed(cloud):
    fleet = cloud(hv1=Host(), hv2=Host(after_s=None, says=False))
    ask(fleet)
    fleet.bus.hosts["hv2"] = Host(after_s=4)
    (alone,) = fleet.ask(["hv2"], "virt.inventory")
    assert alone.kind is None
    fleet.bus.hosts["hv2"] = Host(after_s=None, says=False)
    ask(fleet)
    fleet.bus.hosts["hv2"] = Host(after_s=4)
    fleet.bus.t += client.GONE_S - 10
    assert ask(fleet)["hv2"][0] is None


@pytest.mark.parametrize("how", [{"patient": True}, {"long": True}])
def test_a_hung_host_is_waited_for_again_by_who_has_patience(cloud, how):
    fleet = cloud(hv1=Host(), hv2=Host(after_s=None, says=False))
    ask(fleet)
    fleet.bus.hosts["hv2"] = Host(after_s=4)
    assert ask(fleet, **how)["hv2"][0] is None


def test_a_slow_host_does_not_end_the_wait_for_others_nor_is_it_hung(cloud):
    fleet = cloud(hv1=Host(after_s=4), hv2=Host(after_s=None, says=False), hv3=Host(after_s=None))
    found = ask(fleet)
    assert found["hv3"][0] == "no answer"
    assert set(fleet.hung) == {"hv2"}, "hv3 is at work and says so"
    fleet.bus.hosts.pop("hv3")
    found = ask(fleet)
    assert found["hv1"][0] is None
    assert 4 <= found["hv2"][1] < 5


def test_a_dead_host_costs_nothing_when_all_connections_are_known(cloud):
    kind, took_s = ask(cloud(seen=["hv1"], all_known=True, hv1=Host(), hv2=None))["hv2"]
    assert kind == "down"
    assert took_s < 1


def test_the_connections_of_the_publish_port_are_counted_by_address(tmp_path, monkeypatch):
    tables = [tmp_path / "tcp", tmp_path / "tcp6"]
    head = "  sl  local_address rem_address   st tx_queue\n"
    line = "   0: {}:{} {}:D431 {} 00000000:00000000\n"
    hv1, mapped = "0B004D0A", "0000000000000000FFFF00000C004D0A"
    tables[0].write_text(
        head + line.format("01004D0A", "1199", hv1, "01") * 2
        + line.format("01004D0A", "119A", hv1, "01")  # another port
        + line.format("01004D0A", "1199", "0D004D0A", "06")  # it ends
        + line.format("0100007F", "1199", "0100007F", "01")
    )  # fmt: skip
    tables[1].write_text(head + line.format(mapped, "1199", mapped, "01"))
    found = peers.connections(4505, tables)
    assert found == {"10.77.0.11": 2, "10.77.0.12": 1, peers.LOCAL: 1}
    seen = {("hv1", "10.77.0.11"), ("hv3", "10.77.0.11"), ("hv2", "10.77.0.12"), ("m", "10.77.0.1")}

    class Minions:
        def __init__(self, opts):
            pass

        def connected_ids(self, show_ip):
            return seen

    monkeypatch.setattr(peers.salt.utils.minions, "CkMinions", Minions)
    monkeypatch.setattr(peers.salt.utils.network, "ip_addrs", lambda: ["10.77.0.1"])
    assert peers.all_known({"publish_port": 4505}, tables)
    seen.discard(("hv3", "10.77.0.11"))
    assert not peers.all_known({"publish_port": 4505}, tables), "two come from hv1's address"
    assert not peers.all_known({"publish_port": 4505}, [tmp_path / "none"])


def test_what_changes_something_is_told_to_no_host_that_is_said_to_be_down(cloud):
    fleet = cloud(seen=["hv1"], hv1=Host(), hv2=None)
    assert ask(fleet, "virt.init", long=True)["hv2"][0] == "down"
    assert fleet.bus.published == [("test.ping", ["hv2"]), ("virt.init", ["hv1"])]
    with pytest.raises(errors.ConnectionFailed, match="hv3: down"):
        cloud(seen=[], hv3=None).call("hv3", "virt.init")


def test_what_changes_something_is_told_to_who_answers_a_ping(cloud):
    found = ask(cloud(seen=[], hv1=Host(after_s=40)), "virt.init", long=True)
    assert found["hv1"][0] is None


def test_a_question_ends_while_the_host_says_that_it_works(cloud):
    fleet = cloud(hv1=Host(after_s=None), hv2=Host())
    found = list(fleet.ask(["hv1", "hv2"], "virt.inventory"))
    assert [one.host for one in found] == ["hv2", "hv1"]
    assert 15 <= fleet.bus.t < 17
    assert found[1].kind == "no answer"
    assert "its minion works at the job" in found[1].error


def test_patience_is_for_who_is_too_busy_to_say_so_and_ends(cloud):
    assert ask(cloud(hv1=Host(after_s=13, says=False)), patient=True)["hv1"][0] is None
    assert ask(cloud(hv1=Host(after_s=13, says=False)))["hv1"][0] == "no answer"
    kind, took_s = ask(cloud(hv1=Host(after_s=None, says=False)), patient=True)["hv1"]
    assert kind == "no answer"
    assert took_s < 17


WATCH = ("salt/virt/web1/init/", lambda tag, data: None)


def test_a_long_job_without_progress_is_given_up(cloud):
    kind, took_s = ask(cloud(hv1=Host(after_s=None)), "virt.init", long=True, watch=WATCH)["hv1"]
    assert kind == "no answer"
    assert 100 <= took_s < 107
    with pytest.raises(errors.ConnectionFailed, match=r"100 s \(virt:stall_timeout\)"):
        cloud(hv1=Host(after_s=None)).call("hv1", "virt.init")


def test_a_host_that_is_not_synced_yet_is_not_silent(cloud):
    """It signs that it does not know the question: it is there, and its job may go on."""
    found = ask(cloud(hv1=Host(after_s=95, old=True)), "virt.init", long=True, watch=WATCH)
    assert found["hv1"][0] is None
    kind, took_s = ask(
        cloud(hv1=Host(after_s=None, old=True)), "virt.init", long=True, watch=WATCH
    )["hv1"]
    assert kind == "no answer"
    assert 100 <= took_s < 107


def test_a_long_job_may_take_as_long_as_it_wants_while_it_goes_on(cloud):
    steps = range(0, 1000, 90)
    found = ask(cloud(hv1=Host(after_s=1050, steps=steps)), "virt.init", long=True, watch=WATCH)
    assert found["hv1"][0] is None
    stuck = ask(cloud(hv1=Host(after_s=None, steps=steps)), "virt.init", long=True, watch=WATCH)
    kind, took_s = stuck["hv1"]
    assert kind == "no answer"
    assert 1090 <= took_s < 1100


def test_a_step_may_say_that_it_is_long_but_not_for_ever(cloud):
    slow = Host(after_s=1500, steps=[1], within_s=1800)
    assert ask(cloud(hv1=slow), "virt.init", long=True, watch=WATCH)["hv1"][0] is None
    liar = Host(after_s=None, steps=[1], within_s=1e12)
    took_s = ask(cloud(hv1=liar), "virt.init", long=True, watch=WATCH)["hv1"][1]
    assert took_s < client.LONGEST_STEP_S + 110


@pytest.mark.parametrize("fun", ["virt.init", "virt.migrate"])
def test_a_forged_event_lengthens_no_wait(cloud, fun):
    """Salt takes an event with the tag and the id of another minion from each of them."""
    noise = range(0, 4000, 5)
    told = []
    fleet = cloud(hv1=Host(after_s=None, forged=noise))
    quiet = (30, 1e9, lambda: told.append(fleet.bus.t))
    kind, took_s = ask(fleet, fun, long=True, watch=WATCH, on_stall=quiet)["hv1"]
    assert kind == "no answer"
    assert 100 <= took_s < 107
    assert 30 <= told[0] < 36
    dead = cloud(hv1=Host(after_s=None, says=False, forged=noise))
    assert ask(dead, fun, long=True, watch=WATCH)["hv1"][1] < client.SILENT_S + 10


def test_a_host_that_says_for_ever_that_it_goes_on_is_given_up(cloud, monkeypatch):
    """By virt:job_timeout; its place among the deployments it has given back long before."""
    monkeypatch.setitem(OPTS, "virt", {**OPTS["virt"], "job_timeout": 5000})
    for tells in ({"quiet_s": 0, "within_s": 0}, {"quiet_s": 0, "within_s": 1e12}):
        told = []
        fleet = cloud(hv1=Host(after_s=None, tells=tells))
        quiet = (
            30,
            slots.max_hold_s(OPTS),
            lambda told=told, fleet=fleet: told.append(fleet.bus.t),
        )
        [found] = fleet.ask(["hv1"], "virt.init", long=True, on_stall=quiet)
        assert (found.kind, 5000 <= fleet.bus.t < 5010) == ("no answer", True)
        assert (
            found.error
            == "at work for 5000 s (virt:job_timeout): the master no longer waits for it"
        )
        assert len(told) == 1
        assert file_lock.QUEUE_TIMEOUT_S / 2 <= told[0] < file_lock.QUEUE_TIMEOUT_S / 2 + 10


@pytest.mark.parametrize(
    "tells",
    [
        {"quiet_s": -5000, "within_s": 0}, {"quiet_s": float("nan"), "within_s": 0},
        {"quiet_s": True}, {"quiet_s": "0"}, {"quiet_s": None}, {"quiet_s": [0]},
        {"quiet_s": 5000, "within_s": 3000},
    ],
)  # fmt: skip
def test_nonsense_about_a_step_is_no_step(cloud, tells):
    kind, took_s = ask(cloud(hv1=Host(after_s=None, tells=tells)), "virt.init", long=True)["hv1"]
    assert kind == "no answer"
    assert 100 <= took_s < 107


def test_who_waits_is_told_once_that_there_is_no_progress(cloud):
    told = []
    fleet = cloud(hv1=Host(after_s=80))
    ask(fleet, "virt.init", long=True, on_stall=(30, 1e9, lambda: told.append(fleet.bus.t)))
    assert len(told) == 1
    assert 30 <= told[0] < 36


def test_a_return_that_the_bus_did_not_bring_is_read_where_the_master_keeps_it(cloud):
    fleet = cloud(hv1=Host(after_s=1, lost="bus"))
    (found,) = fleet.ask(["hv1"], "virt.init", long=True)
    assert found.data == ANSWER
    assert fleet.bus.t < 15


def test_where_the_master_cannot_read_what_it_wrote_down_the_return_is_lost_in_time(cloud, caplog):
    fleet = cloud(hv1=Host(after_s=8, lost="bus"))

    def broken(_jid):
        raise OSError("the database is locked")

    fleet.bus.get_cache_returns = broken
    assert ask(fleet)["hv1"][0] == answer.LOST
    assert "the database is locked" in caplog.text


@pytest.mark.parametrize("kind", [SaltClientError, SaltReqTimeoutError])
@pytest.mark.parametrize(("said", "why"), [("no answer", "no answer$"), ("", "is its process ru")])
def test_a_master_that_takes_no_job_is_said(cloud, kind, said, why):
    fleet = cloud(hv1=Host())

    def refuse(*_asked, **_options):
        raise kind(said)

    fleet.bus.pub = refuse
    with pytest.raises(errors.ConnectionFailed, match=f"the Salt master does not answer: {why}"):
        ask(fleet)


@pytest.mark.parametrize("away_s", [8, 60])
def test_a_host_whose_connection_breaks_during_a_long_job_is_waited_for(cloud, away_s):
    """Its minion is restarted, or the line is cut; the job goes on, and it is asked again."""
    host = Host(after_s=1800, away=(300, 300 + away_s), steps=range(1, 1800, 10))
    kind, took_s = ask(cloud(hv1=host), "virt.x", long=True)["hv1"]
    assert kind is None
    assert took_s >= 1800


def test_a_host_whose_connection_does_not_come_back_is_lost_in_time(cloud):
    host = Host(after_s=None, away=(300, 99999), steps=range(1, 1800, 10))
    kind, took_s = ask(cloud(hv1=host), "virt.x", long=True)["hv1"]
    assert kind == answer.SILENT
    assert 300 + client.SILENT_S - 10 < took_s < 300 + client.SILENT_S + 30


def test_a_patient_question_ends_with_the_connection(cloud):
    host = Host(after_s=None, away=(2, 99999))
    assert ask(cloud(hv1=host), patient=True)["hv1"][1] < 15


def test_a_job_that_ended_without_a_return_is_lost_but_not_at_once(cloud):
    kind, took_s = ask(cloud(hv1=Host(after_s=1, lost=True)), "virt.init", long=True)["hv1"]
    assert kind == "lost"
    assert client.RETURNS_S < took_s < client.RETURNS_S + 15


def test_a_finished_host_is_settled_while_another_works_on(cloud):
    fleet = cloud(hv1=Host(after_s=1, lost=True), hv2=Host(after_s=90))
    found = ask(fleet, "virt.x", long=True)
    assert found["hv1"][0] == "lost"
    assert found["hv1"][1] < 60
    assert found["hv2"][0] is None


def test_no_tag_is_listened_to_after_the_job(cloud):
    fleet = cloud(hv1=Host(after_s=60), hv2=None, seen=["hv1"])
    ask(fleet, "virt.x", long=True)
    ask(fleet)
    assert fleet.bus.tags == []


def test_a_new_guest_behind_nat_is_asked_though_the_master_sees_no_connection(cloud, monkeypatch):
    fleet = cloud(seen=[], web1=None)
    monkeypatch.setattr(wait, "time", fleet.bus)
    with pytest.raises(errors.OperationFailed, match="did not answer within 60 s"):
        wait.wait_for_answer(fleet, "hv1", "web1", "minion", 60)
    pings = [fun for fun, names in fleet.bus.published]
    assert len(pings) in (3, 4), "one that still starts is seldom asked"
    fleet.bus.hosts["web1"] = Host()
    assert wait.wait_for_answer(fleet, "hv1", "web1", "minion", 60) < 1


def rows():
    """The table of the manual: (what, how long, setting) of each line."""
    text = (ROOT / "docs/how-to/runner.md").read_text(encoding="utf-8")
    section = text.split("## How long it waits", 1)[1].split("\n## ", 1)[0]
    return [line.strip("|").split("|") for line in section.splitlines() if line.startswith("| ")][
        1:
    ]


def test_each_setting_of_the_manual_is_read_by_the_code():
    code = "".join(path.read_text("utf-8") for path in (ROOT / "_utils").rglob("*.py"))
    named = {word for row in rows() for word in re.findall(r"`virt:([a-z_:]+)`", row[2])}
    assert {"stall_timeout", "queue_timeout", "connection:timeout"} <= named
    for word in named:
        assert f'"{word}"' in code or f'get("{word.rpartition(":")[2]}")' in code, word


def test_the_limits_of_the_manual_are_those_of_the_code():
    said = {
        re.search(r"`(virt:[a-z_:]+)`", row[2])[1]: row[1] for row in rows() if "virt:" in row[2]
    }
    for setting, seconds in {
        "virt:stall_timeout": client.STALL_S, "virt:job_timeout": client.JOB_S,
        "virt:queue_timeout": file_lock.QUEUE_TIMEOUT_S,
        "virt:connection:timeout": settings.TIMEOUT_S,
    }.items():  # fmt: skip
        assert f" {seconds:,} s" in said[setting]
    text = "\n".join(row[1] for row in rows())
    assert f" {slots.QUIET_S} s" in text
    assert f" {client.SILENT_S} s" in text
    assert f"{client.HUNG_S} s and until" in text
    assert f" {client.RETURNS_S} s" in text
    assert f"after {client.LATE_S} s" in text
    assert f" {tools.TIMEOUT_S} s" in text
    assert f" {download_slot._STALL_TIMEOUT_S:,} s" in text
    assert f" {guest_lock.WAIT_S} s" in text
    assert f" {guest_builder.SEEDING_S:,} s" in text
    assert f" {file_lock.TIMEOUT_S} s" in text


def test_a_new_guest_is_there_when_the_master_knows_its_minion_not_when_somebody_says_so(
    cloud, monkeypatch
):
    fleet, reported = cloud(seen=["web1"], web1=Host()), []
    fleet.opts = {**OPTS, "minion_data_cache": True}
    monkeypatch.setattr(wait, "time", fleet.bus)
    monkeypatch.setattr(target, "reported", lambda _opts, name: name in reported)
    with pytest.raises(errors.OperationFailed, match="did not answer within 60 s"):
        wait.wait_for_answer(fleet, "hv1", "web1", "minion", 60)
    reported.append("web1")
    assert wait.wait_for_answer(fleet, "hv1", "web1", "minion", 60) < 5


@pytest.mark.parametrize("there", [True, False])
def test_what_tells_a_guest_who_it_is_goes_only_when_its_minion_is_proven(monkeypatch, there):
    fleet, asked = mock.Mock(opts=OPTS), []
    fleet.call.side_effect = lambda _host, fun, *_more, **_options: asked.append(fun)
    monkeypatch.setattr(init.wait, "wait_for_answer", lambda *_asked: 1)
    monkeypatch.setattr(target, "reported", lambda _opts, _name: there)
    wanted = request.InitRequest("web1", 1, 64, "/a", wait_for="minion")
    mock_init = mock.Mock(fleet=fleet, wanted=wanted)
    init.Init.wait(mock_init, "hv1", "minion")
    assert asked == ["virt.seed_eject"] * there


def test_a_host_that_is_silent_tells_no_address_and_is_asked_again():
    said = [answer.silent("hv1", 5), answer.Answer("hv1", {"web1": {"m": {"addresses": ["x"]}}})]
    fleet = mock.Mock()
    fleet.gather.side_effect = lambda *_asked, **_how: {"hv1": said.pop(0)}
    assert wait._address(fleet, "hv1", "web1", "address") is False
    assert wait._address(fleet, "hv1", "web1", "address") is True
    said.append(answer.Answer("hv1", error="no guest 'web1' on hv1", kind=answer.FAILED))
    with pytest.raises(errors.OperationFailed, match="hv1: no guest 'web1'"):
        wait._address(fleet, "hv1", "web1", "address")
