"""A master of masters finds the hosts below its syndics by asking."""

import ast
import pathlib
import re
import time
from unittest import mock

import pytest

pytest.importorskip("salt")

from saltvirt import errors
from saltvirt.fleet import answer, authorization, client, syndic, target
from saltvirt.fleet.keys import KeyStore
from saltvirt.operations import repair
from saltvirt.operations.cluster import find
from saltvirt.operations.create import cluster_snapshot, request
from saltvirt.operations.guest.purge import Purge
from tests.lab import paths

OPTS = {
    "timeout": 0.3, "syndic_wait": 0.1, "order_masters": True, "virt": {"hosts": "hv*"},
    "pki_dir": "/tmp",
}  # fmt: skip


class Bus:
    """Salt's LocalClient with its event bus: answers that were prepared."""

    def __init__(self, *answers):
        self.answers, self.published = list(answers), []
        self.event = self

    def subscribe(self, tag):
        self.tag = tag

    def unsubscribe(self, tag):
        assert tag == self.tag
        self.tag = None

    def pub(self, tgt, fun, arg, **how):
        self.published.append((tgt, fun, how["tgt_type"]))

    def get_event(self, wait, tag, full):
        return {"data": {"id": self.answers.pop()}} if self.answers else None


@pytest.fixture
def fleet(monkeypatch, tmp_path):
    """A Fleet whose master accepted hv1 only; hv2 is below a syndic."""
    monkeypatch.setattr(target, "hosts", lambda opts, target=None: ["hv1"])
    monkeypatch.setattr(target, "connected", lambda opts, ids=None: set())
    monkeypatch.setattr(target, "accepted", lambda opts: ["hv1", "web1"])
    fleet = client.Fleet({**OPTS, "cachedir": str(tmp_path)})
    fleet._client = Bus("hv1", "hv2")
    return fleet


def test_all_who_answer_are_found(monkeypatch):
    bus = Bus("hv2", "hv1")
    assert syndic.answering(bus, OPTS, "hv*") == {"hv1", "hv2"}
    assert bus.published == [("hv*", "test.ping", "compound")]
    assert bus.tag is None


def test_the_hosts_are_those_of_all_masters_and_they_are_asked_once(fleet):
    assert fleet.hosts() == ["hv1", "hv2"]
    assert fleet.hosts("hv2") == ["hv2"]
    assert len(fleet.client.published) == 1


def test_one_below_a_syndic_is_never_down_only_silent(fleet):
    assert client._Job(fleet, ["hv1", "hv2"], None).unanswered == {"hv1"}


def test_any_other_master_asks_nobody(fleet):
    fleet.opts = {**fleet.opts, "order_masters": False}
    assert fleet.hosts() == ["hv1"]
    assert fleet.client.published == []
    assert client._Job(fleet, ["hv1"], None).unanswered == {"hv1"}


def later(fleet, *answers):
    """Another Fleet of the master: the next operation."""
    found = client.Fleet(fleet.opts)
    found._client = Bus(*answers)
    return found


def test_who_answered_once_is_silent_and_not_unknown(fleet, monkeypatch):
    """So that a name which it may have is in use."""
    assert fleet.hosts() == ["hv1", "hv2"]
    assert later(fleet, "hv1").hosts() == ["hv1", "hv2"]
    assert client._Job(later(fleet, "hv1"), ["hv2"], None).unanswered == set()
    seconds = 31 * 86400
    later_on = mock.Mock(time=lambda: time.time() + seconds, monotonic=time.monotonic)
    monkeypatch.setattr(syndic, "time", later_on)
    assert later(fleet, "hv1").hosts() == ["hv1"]
    assert later(fleet, "hv3").hosts() == ["hv1", "hv3"]
    assert later(fleet, "hv1").hosts() == ["hv1", "hv3"]


def test_who_virt_hosts_does_not_match_any_more_is_none(fleet):
    assert fleet.hosts() == ["hv1", "hv2"]
    fleet.opts["virt"] = {"hosts": "hv1 or hyper*"}
    assert later(fleet, "hv1", "hv2").hosts() == ["hv1"]


@pytest.mark.parametrize("name", ["../hv9", "hv/9", "hv\\9", "hv\0", "", 7, None, ["hv9"]])
def test_what_cannot_be_an_id_is_no_host(fleet, name):
    """Any minion makes one up, and it would be part of paths."""
    fleet._client = Bus(name, "hv2")
    assert fleet.hosts() == ["hv1", "hv2"]


def test_ids_that_are_made_up_without_end_fill_no_disk(fleet, monkeypatch):
    monkeypatch.setattr(syndic, "MAX_HOSTS", 2)
    for number in range(2, 7):
        clock = mock.Mock(time=lambda now=1000.0 + number: now, monotonic=time.monotonic)
        monkeypatch.setattr(syndic, "time", clock)
        later(fleet, "hv1", f"hv{number}").hosts()
    assert later(fleet, "hv1").hosts() == ["hv1", "hv5", "hv6"]


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"hv2": "x"}', '{"hv2": {}}'])
def test_a_record_that_cannot_be_read_is_none(fleet, text):
    path = pathlib.Path(fleet.opts["cachedir"], "virt", "below")
    path.parent.mkdir()
    path.write_text(text)
    assert fleet.hosts() == ["hv1", "hv2"]
    assert later(fleet, "hv1").hosts() == ["hv1", "hv2"]


def test_those_of_this_master_have_its_keys_and_certificates(fleet):
    assert fleet.direct_hosts() == ["hv1"]
    assert [host for host in fleet.hosts() if syndic.below(fleet.opts, host)] == ["hv2"]
    fleet.opts["order_masters"] = False
    assert not syndic.below(fleet.opts, "hv2")


def test_a_guest_that_is_nowhere_may_be_where_nobody_is_known(fleet, monkeypatch):
    monkeypatch.setattr(fleet, "ask", lambda *_, **_o: [answer.Answer("hv1", {"a": "running"})])
    with pytest.raises(
        errors.NotFound, match="hosts below a syndic that does not answer are unknown"
    ):
        find.locate(fleet, "web1")
    assert find.locate(fleet, "a") == ("hv1", "running")
    fleet.opts["order_masters"] = False
    with pytest.raises(errors.NotFound, match=r"no guest 'web1' on any hypervisor$"):
        find.locate(fleet, "web1")


def test_no_permission_is_given_to_a_host_that_has_another_master(fleet):
    with pytest.raises(errors.Unsupported, match="hv2 is below a syndic and submits the key"):
        authorization.refuse_others(fleet.opts, "hv2", "web1")
    authorization.refuse_others(fleet.opts, "hv1", "web1")


@pytest.mark.parametrize(
    ("arguments", "others"),
    [
        ({"seed": True}, {"hv2"}), ({}, {"hv2"}), ({"seed": False}, set()),
        ({"seed": False, "user_data": "x"}, {"hv2"}),
    ],
)  # fmt: skip
def test_a_guest_with_a_key_goes_to_hosts_of_this_master(fleet, arguments, others):
    wanted = request.InitRequest("web1", 1, 64, "/a", arguments=arguments)
    found = cluster_snapshot.foreign_key_hosts(fleet, wanted, ["hv1", "hv2"])
    assert found == dict.fromkeys(others, ("syndic", mock.ANY))


def test_a_key_without_a_guest_is_deleted_by_a_person_alone(fleet, monkeypatch):
    """The guest may be below a syndic that is silent."""
    monkeypatch.setattr(KeyStore, "guest_ids", lambda _self: ["web1"])
    monkeypatch.setattr(KeyStore, "host_of", lambda _self, name: "hv1")
    for masters in (True, False):
        fleet.opts["order_masters"] = masters
        [one] = repair._keys(fleet, {}, ["hv1"])
        assert (one.repair is None) is masters
        assert (one.remedy == "key deleted") is not masters
        assert "for a guest of hv1; every host" in one.evidence
        assert list(repair._keys(fleet, {"web1": {"hv1": "running"}}, ["hv1"])) == []
    monkeypatch.setattr(KeyStore, "host_of", lambda _self, name: "")
    [one] = repair._keys(fleet, {}, ["hv1"])
    assert "for a guest of a host not recorded; every host" in one.evidence


@pytest.mark.parametrize("status", [None, "accepted"])
def test_the_key_of_a_guest_below_a_syndic_is_its_own_masters(fleet, monkeypatch, status):
    monkeypatch.setattr(KeyStore, "status", lambda _self, name: status)
    goes, why = Purge(fleet, "web1")._key("hv2", "")
    assert (goes, "the syndic's master has the key" in why) == (False, True)


VERB = re.compile(r"`(\w+)`")


def verbs_of_the_manual():
    text = (paths.REPOSITORY / "docs" / "how-to/runner.md").read_text(encoding="utf-8")
    table = text.partition("### Over a syndic")[2].partition("## Events")[0]
    rows = [line.split("|") for line in table.splitlines() if line.startswith("| `")]
    return [verb for row in rows for verb in VERB.findall(row[1])]


def test_the_manual_says_of_each_verb_what_it_does_over_a_syndic():
    verbs = set()
    for path in (paths.REPOSITORY / "_runners").glob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        verbs.update(n.name for n in tree.body if isinstance(n, ast.FunctionDef))
    told = verbs_of_the_manual()
    assert sorted(told) == sorted(name for name in verbs if not name.startswith("_"))
