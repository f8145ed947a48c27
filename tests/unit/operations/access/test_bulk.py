"""Which guests a call selects, and what its answers become."""

import time
from types import SimpleNamespace

import pytest

from saltvirt.errors import InvalidInput, NotFound
from saltvirt.operations.access import bulk, runner
from saltvirt.operations.cluster import find
from saltvirt.operations.core import result


def start(name, test=False, host=None):
    """A verb that takes a host for itself."""


def pause(name, test=False):
    """A verb that takes none."""


def ha_move(name, host, state="started"):
    """A verb that needs a host and a state for itself."""


@pytest.mark.parametrize(
    ("function", "args", "kwargs"),
    [
        (start, ("web1",), {}),
        (start, (), {"name": "web1", "host": "hv1"}),
        (start, (7,), {"test": True}),
        (start, (), {}),
        (start, (), {"test": True}),
        (ha_move, ("web1",), {"host": "hv1", "state": "stopped"}),
    ],
)
def test_a_call_for_one_guest_is_not_a_selection(function, args, kwargs):
    assert bulk.selection(function, args, kwargs) is None


@pytest.mark.parametrize(
    ("function", "args", "kwargs", "expected"),
    [
        (start, ("web1,web2",), {}, {"names": ("web1", "web2"), "is_list": True}),
        (start, ("web1,web1",), {}, {"names": ("web1",), "is_list": True}),
        (start, (["web1", 7, "web1"],), {}, {"names": ("web1", "7"), "is_list": True}),
        (start, ("web*",), {"host": "hv1"}, {"names": ("web*",), "host": "hv1", "kwargs": {}}),
        (pause, ("web1",), {"host": "hv1"}, {"names": ("web1",), "host": "hv1", "is_list": False}),
        (start, (), {"state": False, "test": True}, {"names": (), "state": "shutdown"}),
        (start, (), {"label": "web", "at_once": "8"}, {"label": "web", "at_once": 8}),
        (start, ("web*", True), {"confirm": 3}, {"args": (True,), "confirm": 3}),
        (ha_move, ("web*",), {"host": "hv2"}, {"host": None, "kwargs": {"host": "hv2"}}),
    ],
)
def test_several_guests_are_selected(function, args, kwargs, expected):
    chosen = bulk.selection(function, args, kwargs)
    assert {word: getattr(chosen, word) for word in expected} == expected


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((["web1", True],), {}, "name must be a name, a pattern or a list"),
        (("web1,,web2",), {}, "name must be a name, a pattern or a list"),
        ((), {"state": "runing"}, "state must be one of running, paused"),
        (("web*",), {"at_once": 0}, "at_once must be a whole number from 1 to 32"),
        (("web*",), {"confirm": "all"}, "confirm must be a number"),
        ((), {"label": ["web"]}, "label must be a name or a pattern"),
        # as of an unset variable: these are not all guests of the host
        (("",), {"host": "hv1"}, "name is empty"),
        (([],), {"label": "web"}, "name is empty"),
        ((), {"name": None, "state": "running"}, "name is empty"),
    ],
)
def test_what_selects_no_guest_is_refused(args, kwargs, message):
    with pytest.raises(InvalidInput, match=message):
        bulk.selection(start, args, kwargs)


@pytest.mark.parametrize(
    ("names", "name", "expected"),
    [(("web*",), "web1", True), (("web*",), "db1", False), (("web?",), "web10", False),
     (("web1", "db*"), "db9", True), ((), "x", True), (("a[b]",), "a[b]", True)],
)  # fmt: skip
def test_a_name_matches(names, name, expected):
    assert bulk.Selection(names).matches(name) is expected


@pytest.mark.parametrize(
    ("chosen", "text"),
    [
        (bulk.Selection(("web*",)), "web*"),
        (bulk.Selection(("a", "b")), "a,b"),
        (bulk.Selection(("a",)), "[a]"),
        (bulk.Selection(("a",), host="hv1"), "a host=hv1"),
        (bulk.Selection((), state="running"), "state=running"),
    ],
)
def test_the_key_of_the_summary_is_no_name_of_a_guest(chosen, text):
    assert chosen.text == text


def test_labels_that_are_set_are_no_selection():
    def label(name, labels=None, test=False):
        """A verb that replaces labels."""

    assert bulk.selection(label, ("web1",), {"label": "prod"}) is None
    assert bulk.selection(label, ("web*",), {"host": "hv1"}).host == "hv1"


def test_a_test_is_one_by_its_position_too():
    for args, kwargs in (((True,), {}), ((), {"test": "true"})):
        assert bulk._is_test(start, bulk.Selection(("web*",), args=args, kwargs=kwargs))
    assert not bulk._is_test(start, bulk.Selection(("web*",)))


def test_no_further_guest_is_begun_after_an_interrupt():
    begun = []

    def call(args, _kwargs):
        begun.append(args)
        if len(begun) == 2:
            raise KeyboardInterrupt  # in the main thread it comes from the wait for this result
        time.sleep(0.02)
        return {}

    targets = [bulk.Target(f"web{number}", "hv1") for number in range(50)]
    with pytest.raises(KeyboardInterrupt):
        bulk._call_each(bulk.Selection(("web*",), at_once=1), targets, call)
    assert len(begun) < 50


@pytest.mark.parametrize(("host", "missing"), [
    ("hv1", {}), ("hv[12]", {"hv2": "no answer"}), (None, {"hv2": "no answer"}),
])  # fmt: skip
def test_only_silent_hosts_that_are_selected_count(monkeypatch, tmp_path, host, missing):
    places = find.Locations({"web1": {"hv1": "running"}}, {"hv2": "no answer"})
    monkeypatch.setattr(find, "locations", lambda _fleet: places)
    fleet = SimpleNamespace(opts={"cachedir": str(tmp_path)})
    targets, found = bulk.resolve(fleet, bulk.Selection((), host=host), None)
    assert (targets, found) == ([bulk.Target("web1", "hv1")], missing)


@pytest.mark.parametrize(("chosen", "error"), [
    (bulk.Selection(("web2",)), None),  # the verb looks for it
    (bulk.Selection(("web2",), state="paused"), "that answered (hv2: no answer)"),
    (bulk.Selection(("web2", "web1"), host="hv1"), "that answered (hv2: no answer)"),
])  # fmt: skip
def test_a_named_guest_of_a_silent_host_is_not_changed_unchecked(
    monkeypatch, tmp_path, chosen, error
):
    places = find.Locations({"web1": {"hv1": "paused"}}, {"hv2": "no answer"})
    monkeypatch.setattr(find, "locations", lambda _fleet: places)
    targets, _ = bulk.resolve(SimpleNamespace(opts={"cachedir": str(tmp_path)}), chosen, None)
    unseen = targets[-1]
    assert unseen.name == "web2"
    assert unseen.error == error or unseen.error.endswith(error)


def test_a_guest_named_as_the_exit_code_has_a_key_of_its_own():
    targets = [bulk.Target("retcode", "hv1"), bulk.Target("web1", "hv1")]
    answers = {"web1": result.done("web1", "runs")}
    for error, retcode in ((None, None), ("cannot be a guest's name", 1)):
        answers["retcode"] = result.failed("retcode", error) if error else result.done("x", "runs")
        data = bulk._merged(bulk.Selection(("*",)), targets, answers, {}, False)
        assert data.get("retcode") == retcode
        assert data["[retcode]"]["comment"] == (error or "runs")
        assert [row[0] for row in data["*"]["table"][1:]] == ["retcode", "web1"]


def test_a_name_that_yaml_reads_as_a_number_is_to_be_quoted():
    with pytest.raises(NotFound, match=r"no guest '8' on any .*; YAML reads 010 as .* name='\"010"):
        find.Locations().host_of("8")
    with pytest.raises(NotFound, match=r"no guest 'web1' on any hypervisor$"):
        find.Locations().host_of("web1")
    for value in (1.0, True):
        answer = runner.reporting(start)(value)["data"]
        [failed] = [entry for word, entry in answer.items() if word != "retcode"]
        assert failed["comment"].endswith("quote it twice, as in name='\"1.0\"'")
