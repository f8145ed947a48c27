"""The log of what verbs have changed."""

import datetime
import json
from concurrent.futures import ThreadPoolExecutor

import pytest

pytest.importorskip("salt")

from saltvirt import errors
from saltvirt.operations.access import activity, runner
from saltvirt.operations.core import result
from saltvirt.operations.inspect import activity as listed
from saltvirt.operations.inspect import log_filter
from saltvirt.operations.inspect.activity import listing
from saltvirt.operations.journal import activity_log
from saltvirt.operations.journal.activity_log import LogEntry
from saltvirt.rights import confidential, verbs


@runner.reporting
def start(name, test=False, error=None, secret=None):
    """A verb about a guest."""
    if error:
        raise error
    if secret:
        return result.done(name, f"{name} waits for {confidential.sensitive(secret)}")
    if test:
        return result.planned(name, "would be started")
    return result.done(name, f"{name} runs", host="hv1")


@runner.reporting
def evacuate(host):
    """A verb about a host."""
    return result.failed(host, "2 stay")


@runner.reporting
def rename(name, new, error=None):
    """A verb that gives another name, which is the subject of its answer."""
    if error:
        raise error
    return result.done(new, "renamed", host="hv1")


@runner.reporting
def clone(name, new):
    """A verb that makes another guest, the subject of its answer."""
    return result.done(new, "cloned", host="hv1")


@runner.reporting
def put(name, cmd):
    """A verb whose comment is not for the log."""
    return result.done(name, f"{cmd} printed the password")


@runner.reporting
def query():
    """A verb that changes nothing."""
    return {"hv1": {"result": True}}


@runner.reporting
def purge(name):
    """A verb that removes a guest."""
    return result.done(name, "removed")


@runner.reporting
def deployed(guests):
    """A verb about a deployment: its guests are in the changes."""
    changes = {name: {"old": None, "new": "hv1"} for name in guests}
    changes["web7"] = {"old": "hv2", "new": None}
    changes["web6"] = {"backup": {"old": None, "new": {"hours": 24}}}
    return result.done("default", "deployed", changes=changes)


@runner.reporting
def backup_restore(name, new=None, in_place=False):
    """A verb that makes a guest from a backup, which may be of another guest."""
    return result.done(new or name, "restored", host="hv1", changes={"backup": "b1"})


@pytest.fixture
def opts(tmp_path, monkeypatch):
    found = {"cachedir": str(tmp_path), "__cli": "salt-run", "user": "root"}
    monkeypatch.setitem(globals(), "__opts__", found)
    monkeypatch.setenv("SUDO_USER", "anna")
    return found


def entries(opts, name=None, limit=50, current_guest=False):
    return listing(opts, name, limit, current_guest)["log"]["entries"]


def test_a_change_is_recorded_with_its_user_and_result(opts):
    assert listing(opts, None, 5, False)["log"]["table"][1:] == []
    start("web1")
    start("web2", error=errors.OperationFailed("its disk is\nlocked"))
    evacuate("hv1")
    rename("web1", "web9")
    found = entries(opts)
    assert [(e["verb"], e["guest"], e["host"], e["result"]) for e in found] == [
        ("start", "web1", "hv1", True), ("start", "web2", None, False),
        ("evacuate", None, "hv1", False), ("rename", "web1", "hv1", True),
    ]  # fmt: skip
    assert {e["user"] for e in found} == {"anna"}
    assert found[1]["comment"] == "its disk is locked"
    assert [e["verb"] for e in entries(opts, "web1")] == ["start", "rename"]
    assert [e["verb"] for e in entries(opts, "web9")] == ["rename"]
    assert [e["verb"] for e in entries(opts, "hv1")] == ["evacuate"]
    assert len(entries(opts, "web*")) == 3
    assert entries(opts, limit=1) == found[-1:]


def test_entries_are_chosen_by_time_user_and_verb(opts, monkeypatch):
    def recorded(stamp, user, verb):
        entry = LogEntry(stamp, 0, user, verb, "web1", "hv1", True, "")
        activity_log.append(opts, [entry])

    def seen(**chosen):
        words = {"since": None, "before": None, "user": None, "verb": None, **chosen}
        log = listing(opts, None, 50, False, log_filter.parse(**words))["log"]
        return [entry["verb"] for entry in log["entries"]]

    monkeypatch.setattr(log_filter.time, "time", lambda: 1795953600.0)  # 2026-11-29T12:00Z
    recorded("2026-11-27T23:59:59Z", "anna", "init")
    recorded("2026-11-28T10:00:30Z", "bob", "migrate")
    recorded("2026-11-29T11:30:00Z", "anna", "migrate_abort")
    assert seen(since="1h") == seen(since="30m") == seen(since=" 45 m ") == ["migrate_abort"]
    assert seen(since="1d") == ["migrate_abort"]
    assert seen(since="1w") == seen(since="2026-11-27") == ["init", "migrate", "migrate_abort"]
    assert seen(since="2026-11-28T10:00", before="2026-11-29") == ["migrate"]
    assert seen(before=datetime.date(2026, 11, 28)) == seen(before="2026-11-28T10:00") == ["init"]
    assert seen(since="2026-11-28 12:00:30+02:00", before="1d") == ["migrate"]
    assert seen(user="anna") == ["init", "migrate_abort"]
    assert seen(verb="virt.migrate*", user="b*") == ["migrate"]
    recent = log_filter.parse("1m", None, None, None)
    title = listing(opts, "web1", 50, False, recent)["log"]["title"]
    assert title.startswith("this master has recorded no such change of web1; events of libvirt")


def test_a_year_before_1000_is_earlier_than_all_entries():
    chosen = log_filter.parse("0999-12-31", "2026-01-01", None, None)
    assert chosen.since == "0999-12-31T00:00:00Z"


def test_the_log_finds_a_guest_whose_name_is_a_pattern(opts):
    for name in ("web[1]", "web1"):
        entry = LogEntry("2026-11-29T12:00:00Z", 1, "ann", "start", name, "hv1", True, "")
        activity_log.append(opts, [entry])
    names = [entry["guest"] for entry in listing(opts, "web[1]", 50, False)["log"]["entries"]]
    assert names == ["web[1]", "web1"]
    [entry] = listing(opts, "web[1]", 50, True)["log"]["entries"]
    assert entry["guest"] == "web[1]"


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ({"since": "yesterday"}, r"since 'yesterday' is not an age \(30m, "),
        ({"since": "5"}, "since '5' is not an age"),
        ({"before": "2026-13-01"}, "before '2026-13-01'"),
        ({"since": "1h", "before": "2h"}, "is not earlier than before"),
        ({"user": True}, "user must be a name"),
        ({"verb": ""}, "verb must be a name"),
        ({"since": []}, r"since \[\] is not"),
    ],
)
def test_a_mistyped_time_or_user_is_refused(words, why):
    with pytest.raises(errors.InvalidInput, match=why):
        log_filter.parse(**{"since": None, "before": None, "user": None, "verb": None, **words})


def test_what_changed_nothing_is_not_recorded(opts):
    query()
    start("web1", test=True)
    start("web1", nonsense=1)
    for error in (errors.NotFound("no guest"), errors.Denied("no"), errors.InvalidInput("no")):
        start("web1", error=error)
    assert entries(opts) == []


@runner.reporting
def init(name, **kwargs):
    """A verb that finds nothing to do."""
    return result.done(name, "it exists")


@runner.reporting
def repair(apply=False):
    """A verb that shows what it would do by default."""
    return result.done("repair", "nothing to repair")


@runner.reporting
def maintenance(host, state=None, reason=None):
    """A verb that shows a state by default."""
    return result.done(host, "not in maintenance")


def test_a_test_without_anything_to_do_is_not_recorded_as_done(opts):
    init("web1", test=True)
    init("web1", test="True")
    repair()
    maintenance("hv1")
    assert entries(opts) == []
    init("web1", test=False)
    repair(apply=True)
    maintenance("hv1", state="off")
    assert [e["verb"] for e in entries(opts)] == ["init", "repair", "maintenance"]


def test_what_a_command_printed_is_not_recorded(opts):
    put("web1", "cat /etc/secret")
    [entry] = entries(opts)
    assert (entry["verb"], entry["comment"]) == ("put", "")
    assert "secret" not in json.dumps(entry)


def test_every_verb_that_is_said_to_change_nothing_exists():
    assert verbs.RULES.keys() >= activity.QUERIES
    assert verbs.RULES.keys() >= activity.PRIVATE


def test_a_limited_user_sees_only_the_present_guest_of_the_name(opts):
    def seen(name, limit=50):
        return [e["verb"] for e in entries(opts, name, limit, current_guest=True)]

    for verb in (start, purge, start):
        verb("web1")
    assert [e["verb"] for e in entries(opts, "web1")] == ["start", "purge", "start"]
    assert seen("web1") == ["start"]
    rename("web1", "web9")  # the next web1 is another guest
    assert (seen("web1"), seen("web9")) == ([], ["rename"])
    start("web1")
    rename("web9", "web1")
    start("web1")
    assert (seen("web1"), seen("web1", 1)) == (["rename", "start"], ["start"])
    rename("db1", "web1", error=errors.OperationFailed("the name is in use"))
    assert seen("web1") == ["rename", "start"]
    clone("web1", "web8")
    assert (seen("web8"), seen("web1")) == ([], ["rename", "start", "clone"])
    evacuate("hv1")
    assert (len(entries(opts, "hv1")), seen("hv1")) == (1, [])
    # the guest of another user of this name was removed by other means
    start("web5")
    deployed(["web5"])
    assert (seen("web5"), seen("web7"), seen("web6")) == (["deployed"], [], [])
    backup_restore("web5", in_place=True)
    assert seen("web5") == ["deployed", "backup_restore"]
    backup_restore("web5")
    assert seen("web5") == ["backup_restore"]
    backup_restore("web5", new="web4")
    assert (seen("web4"), seen("web5")) == ([], ["backup_restore", "backup_restore"])
    [entry] = entries(opts, "web7")
    assert (entry["host"], entry["comment"]) == ("hv2", "removed by the deployment default")


def test_a_limited_user_sees_no_deployment_in_the_log_of_a_guest_of_its_name(opts):
    """Its comment names the guests of others."""
    start("default")
    deployed(["web5"])
    assert [e["verb"] for e in entries(opts, "default", 50, current_guest=True)] == ["start"]
    deployed(["default"])
    [entry] = entries(opts, "default", 50, current_guest=True)
    assert entry["comment"] == "created by the deployment default"
    assert all(verb in verbs.RULES for verb in listed._OF_NO_GUEST)


def test_a_limited_user_sees_no_other_guest_in_the_comment_of_an_operator(opts):
    start("web1", secret="db1")
    [entry] = entries(opts, "web1")
    assert entry["comment"] == "web1 waits for db1"
    [shown] = entries(opts, "web1", current_guest=True)
    assert shown == {**entry, "comment": "web1 waits for somebody"}


def test_a_log_that_cannot_be_written_stops_no_verb(opts, tmp_path):
    (tmp_path / "virt").write_text("in the way")
    assert start("web1")["data"]["web1"]["result"] is True
    assert entries(opts) == []


def test_the_size_is_limited_and_a_damaged_line_costs_one_entry(opts, tmp_path, monkeypatch):
    monkeypatch.setattr(activity_log, "MAX_BYTES", 4000)
    with ThreadPoolExecutor(4) as pool:
        [*pool.map(start, (f"web{number}" for number in range(100)))]
    folder = tmp_path / "virt/log"
    files = [path for path in folder.iterdir() if path.name != ".lock"]
    assert sorted(path.name for path in files) == ["activity", "activity.1"]
    assert all(path.stat().st_size <= 4000 for path in files)
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in files)
    before = len(entries(opts))
    assert 20 < before < 60
    with open(folder / "activity", "ab") as file:
        file.write(b'{"time": "2026-')
    start("last")
    assert entries(opts)[-1]["guest"] == "last"


@pytest.mark.parametrize("limit", [0, -1, "x", 10_001])
def test_limit(opts, limit):
    with pytest.raises(errors.InvalidInput, match="limit"):
        listing(opts, None, limit, False)
