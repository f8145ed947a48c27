"""The last known location of a guest: one host is asked first, and only its own answer is believed.
tests/counted.py defines what counts as a job."""

import os
import re
import stat

import pytest

pytest.importorskip("salt")

from saltvirt import errors
from saltvirt.fleet import target
from saltvirt.fleet.answer import FAILED, Answer, silent
from saltvirt.fleet.keys import KeyStore
from saltvirt.operations.cluster import find
from saltvirt.operations.create.eject import Eject
from saltvirt.operations.guest.lifecycle import Lifecycle
from saltvirt.operations.guest.purge import Purge
from saltvirt.operations.journal import location_cache
from saltvirt.operations.move import migrate
from saltvirt.system import atomic_file
from tests.counted import Cloud

WEB1 = {"vcpus": 1, "memory_kib": 1 << 20, "state": "running"}
OFF = {**WEB1, "state": "shutdown"}
# what does no harm to another guest of the name: one host is asked
ONE = {"force_off": "shutdown", "pause": "paused", "shutdown": "shutdown", "reset": "running"}


def cloud_with(tmp_path, hint="hv003", **guests):
    """A Cloud of twenty hosts. guests: host to the facts of its web1."""
    cloud = Cloud(tmp_path, 20, {host: {"web1": facts} for host, facts in guests.items()})
    if hint:
        location_cache.store(cloud.opts, "web1", hint)
    return cloud


def asked(cloud):
    """All hosts that were asked anything."""
    return {host for _, hosts in cloud.published for host in hosts}


# -- the hint itself ----------------------------------------------------------------------


def test_what_was_kept_is_told_and_only_for_that_guest(tmp_path, monkeypatch):
    opts = {"cachedir": str(tmp_path)}
    assert location_cache.load(opts, "web1") is None
    location_cache.store(opts, "web1", "hv1")
    location_cache.store(opts, "web1", "hv2")
    assert (location_cache.load(opts, "web1"), location_cache.load(opts, "web2")) == ("hv2", None)
    monkeypatch.setattr(location_cache, "FILES", 1)
    location_cache.store(opts, "web1", "hv1")
    location_cache.store(opts, "web2", "hv2")
    assert (location_cache.load(opts, "web1"), location_cache.load(opts, "web2")) == (None, "hv2")
    assert {path.name[0] for path in (tmp_path / "virt/seen").iterdir()} != {"."}


def test_what_is_forgotten_is_that_guests_own_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(location_cache, "FILES", 1)
    opts = {"cachedir": str(tmp_path)}
    location_cache.store(opts, "web1", "hv1")
    location_cache.forget(opts, "web2")
    assert location_cache.load(opts, "web1") == "hv1"
    location_cache.forget(opts, "web1")
    location_cache.forget(opts, "web1")
    assert list((tmp_path / "virt/seen").iterdir()) == []


def test_there_are_never_more_files_than_so_many(tmp_path, monkeypatch):
    monkeypatch.setattr(location_cache, "FILES", 7)
    opts = {"cachedir": str(tmp_path)}
    for number in range(50):
        location_cache.store(opts, f"web{number}", "hv1")
    assert len(os.listdir(tmp_path / "virt/seen")) == 7


@pytest.mark.parametrize(
    "damaged",
    [b"", b"{", b"7", b"[1, 2]", b'["web1"]', b'["web1", 7]', b'{"web1": "hv1", "1": "hv1"}',
     b"\xff\xfe", b"[" * 4000, b'["web2", "hv1"]'],
)  # fmt: skip
def test_a_damaged_hint_is_none_and_is_replaced(tmp_path, damaged):
    opts = {"cachedir": str(tmp_path)}
    location_cache.store(opts, "web1", "hv1")
    [path] = (tmp_path / "virt/seen").iterdir()
    path.write_bytes(damaged)
    assert location_cache.load(opts, "web1") is None
    location_cache.store(opts, "web1", "hv2")
    assert location_cache.load(opts, "web1") == "hv2"


def test_what_is_known_already_is_not_written_again_and_nobody_else_reads_it(tmp_path):
    opts = {"cachedir": str(tmp_path)}
    location_cache.store(opts, "web1", "hv1")
    folder = tmp_path / "virt/seen"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    [path] = folder.iterdir()
    os.utime(path, ns=(1, 1))
    location_cache.store(opts, "web1", "hv1")
    assert path.stat().st_mtime_ns == 1


def test_who_stops_the_runner_while_it_writes_is_heard(tmp_path, monkeypatch):
    def stopped(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(atomic_file, "stage", stopped)
    with pytest.raises(KeyboardInterrupt):
        location_cache.store({"cachedir": str(tmp_path)}, "web1", "hv1")


def test_where_nothing_can_be_written_nothing_is_kept(tmp_path):
    (tmp_path / "virt").write_text("in the way")
    opts = {"cachedir": str(tmp_path)}
    location_cache.store(opts, "web1", "hv1")
    assert location_cache.load(opts, "web1") is None
    (tmp_path / "virt").unlink()
    folder = tmp_path / "virt/seen"
    location_cache.store(opts, "web1", "hv1")
    [path] = folder.iterdir()
    path.unlink()
    path.mkdir()
    location_cache.store(opts, "web1", "hv1")
    assert location_cache.load(opts, "web1") is None
    assert [*folder.iterdir()] == [path]


@pytest.mark.parametrize("state", ["running", "paused"])
def test_of_an_active_guest_the_host_says_it_where_it_was_last_seen(tmp_path, state):
    cloud = cloud_with(tmp_path, hv003={**WEB1, "state": state})
    assert find.last_seen(cloud, "web1") == ("hv003", state)
    assert cloud.published == [("virt.vm_state", ["hv003"])]


def test_who_looks_for_a_guest_keeps_where_it_is(tmp_path):
    cloud = cloud_with(tmp_path, hint=None, hv003=WEB1)
    assert find.locate(cloud, "web1") == ("hv003", "running")
    assert location_cache.load(cloud.opts, "web1") == "hv003"


# -- what one host is asked ---------------------------------------------------------------


def test_all_about_a_running_guest_is_one_job_to_one_host(tmp_path):
    cloud = cloud_with(tmp_path, hv003=WEB1)
    host, found = find.info(cloud, "web1")
    assert (host, found.state) == ("hv003", "running")
    assert cloud.published == [("virt.guest_details", ["hv003"])]
    assert not cloud.unhurried


@pytest.mark.parametrize(
    ("hint", "asked_first"),
    [(None, []), ("hv003", [("virt.guest_details", ["hv003"])]), ("hv099", []), ("hv005", [])],
)
def test_all_about_a_guest_that_is_not_where_it_was_seen(tmp_path, hint, asked_first):
    cloud = cloud_with(tmp_path, hint, hv007=WEB1)
    cloud.dead.add("hv005")
    host, found = find.info(cloud, "web1")
    assert (host, found.to_answer() | WEB1) == ("hv007", found.to_answer())
    every = ("virt.vm_state", cloud.names)
    assert cloud.published == [*asked_first, every, ("virt.guest_details", ["hv007"])]
    assert not cloud.unhurried


@pytest.mark.parametrize(
    "said", [{}, None, {"web2": WEB1}, {"web1": OFF}, {"web1": {}}, silent("hv003", 15)]
)
def test_all_about_a_guest_is_not_what_a_host_says_of_others(tmp_path, said):
    cloud = cloud_with(tmp_path, hv003=WEB1)
    kept, answers = cloud.virt_guest_details, [said]
    cloud.virt_guest_details = lambda host, vm_: answers.pop() if answers else kept(host, vm_)
    host, found = find.info(cloud, "web1")
    assert (host, found.to_answer() | WEB1) == ("hv003", found.to_answer())
    assert [fun for fun, _ in cloud.published] == [
        "virt.guest_details", "virt.vm_state", "virt.guest_details"
    ]  # fmt: skip


@pytest.mark.parametrize("verb", ONE)
def test_what_does_no_harm_asks_no_other_host(tmp_path, verb):
    cloud = cloud_with(tmp_path, hv003=WEB1)
    done = Lifecycle(cloud, "web1", verb).run()
    assert (done.details["host"], done.details["state"]) == ("hv003", ONE[verb])
    assert cloud.published == [("virt.power", ["hv003"])]


def test_what_it_was_and_what_it_is_are_that_hosts_own_words(tmp_path):
    cloud = cloud_with(tmp_path, hv003=WEB1)
    done = Lifecycle(cloud, "web1", "pause").run()
    assert done.comment == "web1 on hv003 was paused"
    assert done.changes == {"state": {"old": "running", "new": "paused"}}
    again = Lifecycle(cloud, "web1", "pause").run()
    assert (again.comment, again.changes) == ("web1 on hv003 is paused already", {})
    refusal = "web1 on hv003 is paused and cannot be shut down; virt.resume web1 resumes it"
    with pytest.raises(errors.InvalidInput, match=refusal):
        Lifecycle(cloud, "web1", "shutdown").run()
    assert Lifecycle(cloud, "web1", "reset").check().details == {"host": "hv003", "state": "paused"}


def test_a_host_is_asked_for_no_longer_than_it_may_take(tmp_path):
    cloud, options = cloud_with(tmp_path, hv003=WEB1), []
    gather = cloud.gather
    cloud.gather = lambda *asked, **more: options.append(more) or gather(*asked, **more)
    Lifecycle(cloud, "web1", "pause").run()
    cloud.guests["hv003"]["web1"]["state"] = "running"
    cloud.opts["timeout"] = 50
    Lifecycle(cloud, "web1", "shutdown", wait_s=60).run()
    assert [(more["timeout_s"], more["patient"]) for more in options] == [(20, True), (110, True)]


def test_what_the_host_is_asked(tmp_path):
    cloud, heard = cloud_with(tmp_path, hv003=WEB1), []
    cloud.first = lambda host, fun, kwarg: heard.append(kwarg)
    Lifecycle(cloud, "web1", "shutdown", wait_s=60).run()
    cloud.guests["hv003"]["web1"]["state"] = "running"
    Lifecycle(cloud, "web1", "force_off").run()
    assert heard == [
        {"name": "web1", "verb": "shutdown", "states": ["running"], "timeout": 60,
         "last_seen": True},
        {"name": "web1", "verb": "stop", "last_seen": True,
         "states": ["running", "paused", "pmsuspended", "crashed"]},
    ]  # fmt: skip


@pytest.mark.parametrize("verb", ["start", "resume"])
def test_what_lets_it_write_to_its_disks_asks_all(tmp_path, verb):
    cloud = cloud_with(tmp_path, hv003={**WEB1, "state": "paused"} if verb == "resume" else OFF)
    assert Lifecycle(cloud, "web1", verb).run().details["state"] == "running"
    assert cloud.published[0] == ("virt.vm_state", cloud.names)


def test_a_purge_asks_all_and_refuses_two(tmp_path):
    cloud = cloud_with(tmp_path, hv003=WEB1, hv007=OFF)
    with pytest.raises(errors.OperationFailed, match=r"more than one host: hv003.*hv007"):
        Purge(cloud, "web1").run()
    assert cloud.guests["hv003"]
    assert cloud.guests["hv007"]


@pytest.mark.parametrize("hint", [None, "hv003", "hv007"])
def test_a_volume_is_taken_where_the_guest_is(tmp_path, monkeypatch, hint):
    monkeypatch.setattr(KeyStore, "guest_ids", lambda _keys: {"web1"})
    monkeypatch.setattr(target, "reported", lambda _opts, _name: True)
    cloud = cloud_with(tmp_path, hint, hv007=WEB1)
    done = Eject(cloud, "web1").run()
    assert (done.details, done.changes) == ({"host": "hv007"}, {"ejected": True})
    more = [("virt.seed_eject", [hint])] if hint else []
    if hint != "hv007":
        more += [("virt.vm_state", cloud.names), ("virt.seed_eject", ["hv007"])]
    assert cloud.published == more
    assert location_cache.load(cloud.opts, "web1") == "hv007"


def test_where_taking_it_fails_all_are_asked(tmp_path, monkeypatch):
    monkeypatch.setattr(KeyStore, "guest_ids", lambda _keys: {"web1"})
    monkeypatch.setattr(target, "reported", lambda _opts, _name: True)
    cloud, heard = cloud_with(tmp_path, hv003=WEB1), []
    cloud.first = lambda host, fun, kwarg: heard.append((fun, kwarg))
    cloud.virt_seed_eject = lambda _host, **_asked: Answer("hv003", error="busy", kind=FAILED)
    with pytest.raises(errors.OperationFailed, match="hv003: busy"):
        Eject(cloud, "web1").run()
    asked = [kwarg for fun, kwarg in heard if fun == "virt.seed_eject"]
    assert asked == [{"name": "web1", "last_seen": True}, {"name": "web1"}]


# -- a hint that is wrong -----------------------------------------------------------------


@pytest.mark.parametrize("verb", ONE)
@pytest.mark.parametrize("hint", [None, "hv003", "hv099", "../x"])
def test_a_wrong_hint_costs_one_question_and_is_put_right(tmp_path, verb, hint):
    cloud = cloud_with(tmp_path, hint, hv007=WEB1)
    done = Lifecycle(cloud, "web1", verb).run()
    assert (done.details["host"], done.details["state"]) == ("hv007", ONE[verb])
    more = [("virt.power", ["hv003"])] if hint == "hv003" else []
    assert cloud.published == [
        *more, ("virt.vm_state", cloud.names), ("virt.power", ["hv007"]),
    ]  # fmt: skip
    assert location_cache.load(cloud.opts, "web1") == "hv007"
    cloud.published.clear()
    assert find.last_seen(cloud, "web1") in (("hv007", ONE[verb]), None)
    assert asked(cloud) == {"hv007"}


@pytest.mark.parametrize("verb", ["force_off", "shutdown", "pause"])
def test_what_is_off_where_it_was_last_seen_may_run_elsewhere(tmp_path, verb):
    """``virsh migrate`` leaves a definition that is off: it must not answer for the guest."""
    cloud = cloud_with(tmp_path, hv003=OFF, hv007=WEB1)
    with pytest.raises(errors.OperationFailed, match="more than one host"):
        Lifecycle(cloud, "web1", verb).run()
    with pytest.raises(errors.OperationFailed, match="more than one host"):
        find.info(cloud, "web1")
    assert cloud.guests["hv007"]["web1"]["state"] == "running"


@pytest.mark.parametrize("elsewhere", [True, False])
def test_a_host_without_a_connection_is_never_taken_for_one_without_the_guest(tmp_path, elsewhere):
    cloud = cloud_with(tmp_path, hv003=WEB1, **({"hv007": WEB1} if elsewhere else {}))
    cloud.dead.add("hv003")
    one = Lifecycle(cloud, "web1", "pause")
    if elsewhere:
        assert one.run().details["host"] == "hv007"
        return
    with pytest.raises(errors.NotFound, match=r"that answered \(hv003: down"):
        one.run()
    assert cloud.guests["hv003"]["web1"]["state"] == "running"


def test_one_that_loses_its_connection_before_it_is_told_was_told_nothing(tmp_path):
    cloud = cloud_with(tmp_path, hv003=WEB1, hv007=WEB1)
    cloud.dead.add("hv003")
    cloud.connected = set
    assert Lifecycle(cloud, "web1", "pause").run().details["host"] == "hv007"
    assert cloud.published[0] == ("virt.power", ["hv003"])


@pytest.mark.parametrize(
    ("said", "kind", "words"),
    [
        (silent("hv003", 60, busy=True), errors.ConnectionFailed, "hv003: no answer in 60 s"),
        (Answer("hv003", error="web1: another operation is in progress on this host", kind=FAILED),
         errors.OperationFailed, "hv003: web1: another operation is in progress on this host"),
        (Answer("hv003", {"after": "paused"}), errors.ConnectionFailed, "hv003: .*before"),
    ],
)  # fmt: skip
def test_one_that_was_told_and_fails_is_believed_and_asked_first_no_more(
    tmp_path, said, kind, words
):
    """It may do it yet: so nothing is done elsewhere by the same call."""
    cloud = cloud_with(tmp_path, hv003=WEB1, hv007=WEB1)
    cloud.virt_power = lambda _host, **_asked: said
    with pytest.raises(kind, match=words):
        Lifecycle(cloud, "web1", "pause").run()
    assert cloud.published == [("virt.power", ["hv003"])]
    assert location_cache.load(cloud.opts, "web1") is None


def test_what_became_of_it_is_what_counts(tmp_path):
    cloud = cloud_with(tmp_path, hv003=WEB1)
    cloud.virt_power = lambda _host, **_asked: {"before": "running", "after": "running"}
    with pytest.raises(errors.OperationFailed, match=r"^web1 on hv003 is running, not shutdown$"):
        Lifecycle(cloud, "web1", "force_off").run()
    with pytest.raises(errors.OperationFailed, match="is running after 35 s, not shutdown"):
        Lifecycle(cloud, "web1", "shutdown", wait_s=35).run()


def test_a_guest_that_leaves_between_two_questions_is_said_to_be_gone(tmp_path):
    cloud = cloud_with(tmp_path, hint=None, hv003=OFF)

    def leaves(_host, fun, _asked):
        if fun == "virt.power":
            cloud.guests["hv003"].clear()

    cloud.first = leaves
    with pytest.raises(errors.NotFound, match="web1 is no longer on hv003: run the command again"):
        Lifecycle(cloud, "web1", "start").run()


def test_one_that_was_started_meanwhile_is_left_alone(tmp_path):
    cloud = cloud_with(tmp_path, hint=None, hv003=OFF)

    def starts(_host, fun, _asked):
        if fun == "virt.power":
            cloud.guests["hv003"]["web1"] = WEB1

    cloud.first = starts
    done = Lifecycle(cloud, "web1", "start").run()
    assert (done.comment, done.changes) == ("web1 on hv003 is running already", {})


def test_a_host_that_is_no_hypervisor_any_more_or_below_a_syndic_is_no_hint(tmp_path):
    cloud = cloud_with(tmp_path, hv003=WEB1)
    assert find.cached_host(cloud, "web1") == "hv003"
    cloud.opts["order_masters"] = True
    assert find.cached_host(cloud, "web1") is None
    cloud.opts["order_masters"] = False
    cloud.names.remove("hv003")
    assert find.cached_host(cloud, "web1") is None


@pytest.mark.parametrize(
    "said",
    [{}, None, {"web2": "running"}, {"web1": "shutdown"}, {"web1": "x"}, silent("hv003", 15)],
)
def test_what_a_host_says_of_others_is_no_answer(tmp_path, said):
    cloud = cloud_with(tmp_path, hv003=WEB1)
    cloud.virt_vm_state = lambda _host, vm_=None: said
    assert find.last_seen(cloud, "web1") is None


# -- on a host that does not respond -----------------------------------------------------------


def test_a_guest_of_a_silent_host_was_last_seen_there(tmp_path):
    cloud = cloud_with(tmp_path, hint=None, hv007=WEB1)
    find.locations(cloud)
    cloud.dead = {"hv007", "hv008"}
    for verb in (
        lambda: Lifecycle(cloud, "web1", "start").run(),
        lambda: find.locate(cloud, "web1"),
        lambda: Purge(cloud, "web1").run(),
        lambda: migrate.locations(cloud).host_of("web1"),
    ):
        with pytest.raises(errors.NotFound) as caught:
            verb()
        assert re.fullmatch(
            r"web1 was last seen on hv007, which does not respond \(since \d{4}-\d\d-\d\d "
            r"\d\d:\d\d UTC\): down: no connection to the master",
            caught.value.text,
        )
    with pytest.raises(errors.NotFound, match="no guest 'web2' on any hypervisor that answered"):
        find.locate(cloud, "web2")


def test_what_a_silent_host_had_is_known_as_of_the_last_time_it_was_heard(tmp_path):
    opts = {"cachedir": str(tmp_path)}
    assert location_cache.unseen_guests(opts, "hv1") == ([], "")
    location_cache.store_host(opts, "hv1", {"b": "running", "a": "shutdown"})
    names, when = location_cache.unseen_guests(opts, "hv1")
    assert (names, len(when)) == (["a", "b"], len("2026-11-27 19:20 UTC"))
    location_cache.store_host(opts, "hv1", {"a": "running"})
    location_cache.store_host(opts, "hv2", {"b": "running"})
    assert location_cache.last_seen(opts, "b", ["hv1", "hv2"])[0] == "hv2"
    assert location_cache.last_seen(opts, "b", ["hv1"]) is None
    path = location_cache._host_path(opts, "hv2")
    os.utime(path, (1, 1))
    assert location_cache.unseen_guests(opts, "hv2")[1] == "1970-01-01 00:00 UTC"
    location_cache.store_host(opts, "hv2", {"b": "running"})
    assert path.stat().st_mtime > 1, "it was heard again"
    path.write_text("[" * 9)
    assert location_cache.unseen_guests(opts, "hv2") == ([], "")
    location_cache.store_host(opts, "hv2", {"x" * (1 << 20): "running"})
    assert path.read_text() == "[" * 9, "no list of guests is so long"
