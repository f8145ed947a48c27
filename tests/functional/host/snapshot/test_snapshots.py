"""Snapshots with libvirt's test driver; tests/integration has real disks."""

import pytest

libvirt = pytest.importorskip("libvirt")
pytest.importorskip("salt")

from salt.exceptions import CommandExecutionError

from saltvirt import errors
from saltvirt.host.snapshot import reader
from saltvirt.operations.guest import snapshots
from saltvirt.operations.guest.snapshots import DeleteSnapshots, RevertToSnapshot, TakeSnapshot
from saltvirt.snapshot.calls import REVERT_SNAPSHOT
from tests.functional.cloud import Fleet

NOT_LIVE = "while test has snapshots it cannot migrate live"


@pytest.fixture
def dom(conn):
    """The test driver's guest, running and without snapshots, whatever ran before."""
    found = conn.lookupByName("test")
    for snapshot in found.listAllSnapshots():
        snapshot.delete()
    if not found.isActive():
        found.create()
    return found


@pytest.fixture
def chain(virt, dom):
    """Three snapshots, each on top of the one before: a, b, c."""
    for name in "abc":
        virt["virt.snapshot"]("test", name)
    return dom


def names(dom):
    return sorted(snapshot.getName() for snapshot in dom.listAllSnapshots())


def current(dom):
    return dom.snapshotCurrent().getName()


def test_a_guest_without_any(virt, dom):
    assert virt["virt.list_snapshots"]() == {"test": "N/A"}
    with pytest.raises(CommandExecutionError, match="test has no snapshots"):
        virt["virt.revert_snapshot"]("test")


def test_a_test_of_going_back_only_says_where_to(virt, chain):
    for cleanup, deleted in ((False, "N/A"), (True, ["c", "b"])):
        told = virt["virt.revert_snapshot"]("test", "a", cleanup, test=True)
        [note] = told["notes"]
        assert "the clock of test shows the time of the snapshot (it has no guest" in note
        assert told == {"reverted": "a", "deleted": deleted, "notes": [note]}
        assert (names(chain), current(chain)) == (["a", "b", "c"], "c")
    assert virt["virt.revert_snapshot"]("test", "a", True) == told


def test_create_and_list(virt, dom):
    assert virt["virt.snapshot"]("test", "a", description="first") == {"name": "a"}
    assert virt["virt.snapshot"]("test", "a", suffix="x") == {"name": "a-x"}
    assert names(dom) == ["a", "a-x"]
    first, second = virt["virt.list_snapshots"]("test")["test"]
    assert (first["name"], first["description"], first["parent"]) == ("a", "first", None)
    assert (second["name"], second["parent"], second["external"]) == ("a-x", "a", False)
    assert (first["current"], second["current"], first["running"]) == (False, True, True)
    assert len(first["created"]) == len("2026-01-01 00:00:00")


def test_what_the_balloon_has_taken_needs_no_room(conn, dom):
    """It is in no snapshot: QEMU writes no page of it."""
    _, most, now, *_ = dom.info()
    assert now < most
    assert reader.guest(conn, dom).memory_kib == now


def test_a_driver_without_checkpoints_has_snapshots_all_the_same(virt, dom, monkeypatch):
    def unknown(*_):
        exc = libvirt.libvirtError("this function is not supported by the connection driver")
        exc.err = (libvirt.VIR_ERR_NO_SUPPORT, 0, str(exc), 2, "", None, None, 0, 0)
        raise exc

    monkeypatch.setattr(libvirt.virDomain, "listAllCheckpoints", unknown)
    dom.destroy()
    assert virt["virt.snapshot"]("test", "a") == {"name": "a"}
    assert virt["virt.revert_snapshot"]("test", "a")["reverted"] == "a"


@pytest.mark.parametrize("thaws", [True, False])
def test_an_agent_that_is_late_leaves_nothing_frozen(virt, dom, monkeypatch, thaws):
    """libvirt thaws only after its agent has answered that it froze."""
    from saltvirt.host.snapshot import quiesce

    did = []

    class Late(libvirt.libvirtError):
        def get_error_code(self):
            return libvirt.VIR_ERR_AGENT_UNRESPONSIVE

    def late(_dom, _text, flags):
        assert flags & libvirt.VIR_DOMAIN_SNAPSHOT_CREATE_QUIESCE
        raise Late("the agent is late")

    def thaw(_dom):
        did.append("thaw")
        if len(did) < 3 or not thaws:
            raise Late("still late")
        return 1

    monkeypatch.setattr(quiesce, "_THAW_TIMEOUT_S", 60 if thaws else 0)
    monkeypatch.setattr(quiesce, "_RETRY_S", 0)
    monkeypatch.setattr(libvirt.virDomain, "snapshotCreateXML", late)
    monkeypatch.setattr(libvirt.virDomain, "fsThaw", thaw)
    patience = lambda _dom, seconds, _flags: did.append(seconds)  # noqa: E731
    monkeypatch.setattr(libvirt.virDomain, "agentSetResponseTimeout", patience)
    words = "late$" if thaws else "late; the file systems of test may still be frozen: run 'virsh"
    with pytest.raises(CommandExecutionError, match=words):
        virt["virt.snapshot"]("test", "q", quiesce=True)
    assert did == ([30, "thaw", "thaw"] if thaws else [30, "thaw"])


def test_the_name_is_made_from_guest_and_time(virt, dom):
    made = virt["virt.snapshot"]("test", suffix="salt")["name"]
    assert names(dom) == [made]
    assert made.startswith("test-2")
    assert made.endswith("-salt")


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda virt: virt["virt.snapshot"]("test", "TEST"), "invalid name of a snapshot: TEST"),
        (
            lambda virt: virt["virt.snapshot"]("test", "q", disk_only=False, quiesce=True),
            "disk_only",
        ),
        (lambda virt: virt["virt.snapshot"]("test", "a"), "already exists"),
        (lambda virt: virt["virt.snapshot"]("test", "ä" * 101), "longer than 200 bytes"),
        (lambda virt: virt["virt.snapshot"]("nosuch"), "no guest 'nosuch'"),
        (lambda virt: virt["virt.list_snapshots"]("nosuch"), "nosuch"),
        (lambda virt: virt["virt.delete_snapshots"]("test"), "all=True"),
        (lambda virt: virt["virt.delete_snapshots"]("test", "a", "z"), "no snapshot z"),
        (lambda virt: virt["virt.delete_snapshots"]("test", "a", al=True), "unknown argument: al"),
        (lambda virt: virt["virt.delete_snapshots"]("test", all="False"), "specify the snapshots"),
        (lambda virt: virt["virt.delete_snapshots"]("test", all="all"), "all 'all' is not true"),
        (lambda virt: virt["virt.revert_snapshot"]("test", "a", "x"), "cleanup 'x' is not true"),
        (lambda virt: virt["virt.revert_snapshot"]("test", "z"), "no snapshot z; it has c, b, a"),
    ],
)
def test_refusals_change_nothing(virt, chain, call, error):
    with pytest.raises(CommandExecutionError, match=error):
        call(virt)
    assert names(chain) == ["a", "b", "c"]
    assert current(chain) == "c"


def test_delete_one_keeps_those_on_top(virt, chain):
    found = virt["virt.delete_snapshots"]("test", "b")
    assert names(chain) == ["a", "c"]
    assert list(found["deleted"]) == ["b"]
    assert [s["name"] for s in found["available"]["test"]] == ["a", "c"]


def test_a_flag_that_is_the_text_false_is_no_permission(virt, chain):
    virt["virt.delete_snapshots"]("test", "b", children="False")
    assert names(chain) == ["a", "c"]
    assert virt["virt.revert_snapshot"]("test", "a", cleanup="no")["deleted"] == "N/A"
    assert names(chain) == ["a", "c"]


def test_delete_with_children(virt, chain):
    found = virt["virt.delete_snapshots"]("test", "b", children=True)
    assert names(chain) == ["a"]
    assert sorted(found["deleted"]) == ["b", "c"]


def test_delete_all(virt, chain):
    found = virt["virt.delete_snapshots"]("test", all=True)
    assert names(chain) == []
    assert found["available"] == {"test": "N/A"}
    assert sorted(found["deleted"]) == ["a", "b", "c"]


def test_revert_goes_to_the_one_before(virt, chain):
    found = virt["virt.revert_snapshot"]("test")
    [note] = found.pop("notes")
    assert note.startswith("the clock of test shows the time of the snapshot (it has no guest")
    assert found == {"reverted": "b", "deleted": "N/A"}
    assert current(chain) == "b"
    assert names(chain) == ["a", "b", "c"]


def test_revert_by_name_with_cleanup(virt, chain):
    found = virt["virt.revert_snapshot"]("test", "a", cleanup=True)
    assert (found["reverted"], sorted(found["deleted"])) == ("a", ["b", "c"])
    assert names(chain) == ["a"]


def test_revert_to_the_only_and_current_one(virt, dom):
    virt["virt.snapshot"]("test", "only")
    dom.destroy()
    assert virt["virt.revert_snapshot"]("test", "only")["reverted"] == "only"
    assert dom.isActive()
    with pytest.raises(CommandExecutionError, match="no snapshot before the current one"):
        virt["virt.revert_snapshot"]("test")


@pytest.fixture
def runner(virt, chain, tmp_path):
    """The runner's hosts: one, whose guest ``test`` has the snapshots a, b and c."""
    return Fleet(virt, tmp_path)


@pytest.mark.parametrize(
    ("kind", "given", "comment", "changes"),
    [
        (
            TakeSnapshot,
            ["d"],
            f"a snapshot of test on hv1 would be taken; {NOT_LIVE}",
            {"snapshot": "d"},
        ),
        (RevertToSnapshot, [], "test on hv1 would be reverted to b", {"reverted": "b"}),
        (RevertToSnapshot, ["a"], "test on hv1 would be reverted to a", {"reverted": "a"}),
        (DeleteSnapshots, [["b"]], "b of test on hv1 would be deleted", {"deleted": ["b"]}),
        (
            DeleteSnapshots,
            [["b"], True],
            "b, c of test on hv1 would be deleted",
            {"deleted": ["b", "c"]},
        ),
        (
            DeleteSnapshots,
            [None],
            "a, b, c of test on hv1 would be deleted",
            {"deleted": ["a", "b", "c"]},
        ),
    ],
)
def test_the_runner_says_what_it_would_do_and_then_does_that(
    runner, chain, kind, given, comment, changes
):
    found = kind(runner, "test", *given).check()
    said, clock, _ = found.comment.partition("the clock of test shows the time of the snapshot")
    assert (said.rstrip(":;. "), found.changes, found.reasons) == (comment, changes, ())
    assert bool(clock) is (kind is RevertToSnapshot), "it has no guest agent"
    assert (names(chain), current(chain)) == (["a", "b", "c"], "c")
    done = kind(runner, "test", *given).run()
    there = {TakeSnapshot: ["a", "b", "c", "d"], RevertToSnapshot: ["a", "b", "c"]}
    gone = changes.get("deleted", [])
    assert names(chain) == there.get(kind, [name for name in "abc" if name not in gone])
    assert current(chain) == changes.get("reverted", "d") if kind is not DeleteSnapshots else True
    assert " would be " not in done.comment


@pytest.mark.parametrize(
    ("kind", "given", "why"),
    [
        (TakeSnapshot, ["a"], "test on hv1 has a snapshot a already"),
        (RevertToSnapshot, ["z"], "test on hv1 has no snapshot z; it has: a, b, c"),
        (DeleteSnapshots, [["z"]], "hv1: test has no snapshot z"),
        (DeleteSnapshots, [[]], "hv1: specify the snapshots of test to delete"),
    ],
)
def test_the_runners_refusals_are_the_same_asked_and_done(runner, chain, kind, given, why):
    [said] = kind(runner, "test", *given).check().reasons
    assert why in said
    with pytest.raises(errors.VirtError) as raised:
        kind(runner, "test", *given).run()
    assert raised.value.text == said
    assert (names(chain), current(chain)) == (["a", "b", "c"], "c")


def test_the_runner_puts_nothing_back_to_before_the_first_one(runner, dom):
    dom.snapshotLookupByName("c").delete()
    dom.snapshotLookupByName("b").delete()
    [said] = RevertToSnapshot(runner, "test").check().reasons
    assert said == "test on hv1 has no snapshot before the current one; it has: a"
    dom.snapshotLookupByName("a").delete()
    [said] = RevertToSnapshot(runner, "test", "a").check().reasons
    assert said == "test on hv1 has no snapshot a; it has: none"


def test_what_other_hosts_need_is_said_before_it_is_put_back(runner, monkeypatch):
    def needed(_fleet, host, change, asked):
        assert (host, change, asked.vm_snapshot) == ("hv1", REVERT_SNAPSHOT, "a")
        raise errors.Refused("hv2 needs it")

    monkeypatch.setattr(snapshots, "plan", needed)
    assert RevertToSnapshot(runner, "test", "a").check().reasons == ("refused: hv2 needs it",)


def test_a_snapshot_without_a_name_gets_one_also_beside_one_called_none(runner, chain, monkeypatch):
    one, waited = runner.call, []
    monkeypatch.setattr(
        runner, "call", lambda host, fun, kwarg=None, **how: (
            waited.append((fun, how.get("long"))), one(host, fun, kwarg, **how))[1],
    )  # fmt: skip
    TakeSnapshot(runner, "test", "None").run()
    assert TakeSnapshot(runner, "test").check().reasons == ()
    TakeSnapshot(runner, "test").run()
    assert len(names(chain)) == 5
    assert ("virt.snapshot", True) in waited, "it takes as long as it takes"


RECORD = """<saltvirt:guest xmlns:saltvirt="https://saltproject.io/xmlns/salt-virt/1" version="1">
<saltvirt:entry key="deployment">{}</saltvirt:entry></saltvirt:guest>"""


def test_going_back_does_not_bring_back_the_marks_of_that_day(virt, dom):
    """A guest that was taken out of a deployment since must not be purged with it again."""
    from saltvirt.host.domain import metadata

    before = dom.XMLDesc()
    try:
        for mark in ("shop", "kept"):
            found = metadata.Domain.fromstring(dom.XMLDesc()).record
            text = RECORD.format(mark).replace("saltvirt:", "").replace(":saltvirt", "")
            dom.setMetadata(
                libvirt.VIR_DOMAIN_METADATA_ELEMENT, text, "saltvirt", metadata.NAMESPACE,
                libvirt.VIR_DOMAIN_AFFECT_CONFIG | libvirt.VIR_DOMAIN_AFFECT_LIVE,
            )  # fmt: skip
            if mark == "shop":
                virt["virt.snapshot"]("test", "a")
        virt["virt.revert_snapshot"]("test", "a")
        found = metadata.of_domain(dom)
        assert [entry.value for entry in found.entries] == ["kept"]
    finally:
        dom.destroy()
        dom.connect().defineXML(before)


def test_what_libvirt_says_of_going_back_is_passed_on(virt, dom):
    from saltvirt.host.snapshot import reader, snapshots

    virt["virt.snapshot"]("test", "a")
    tree = reader.tree(dom.connect(), dom)
    gone = dom.snapshotLookupByName("a")
    there = {"a": gone}
    dom.snapshotLookupByName("a").delete()
    with pytest.raises(libvirt.libvirtError, match="no domain snapshot"):
        snapshots._revert_layers(dom.connect(), dom, (tree["a"], there), tree, [], ())


def test_the_runner_lists_what_there_is(runner, dom):
    found = snapshots.listing(runner, "test").answer()["test"]
    assert found["comment"] == "test on hv1 has 3 snapshots"
    assert [one["name"] for one in found["snapshots"]] == ["a", "b", "c"]
    header, *rows = found["table"]
    assert header == ["snapshot", "taken", "kind", "guest was", "based on", "current"]
    assert [(row[0], *row[2:]) for row in rows] == [
        ("a", "internal", "running", None, ""),
        ("b", "internal", "running", "a", ""),
        ("c", "internal", "running", "b", "yes"),
    ]
    for one in dom.listAllSnapshots():
        one.delete()
    found = snapshots.listing(runner, "test").answer()["test"]
    assert (found["comment"], found["snapshots"]) == ("test on hv1 has no snapshots", [])


def test_the_list_names_the_guests_state_as_other_verbs(runner, dom):
    dom.destroy()
    snapshots.TakeSnapshot(runner, "test", "off").run()
    *_, row = snapshots.listing(runner, "test").answer()["test"]["table"]
    assert row[3] == "off"


def test_all_of_none_is_nothing_to_delete(runner, dom):
    for one in dom.listAllSnapshots():
        one.delete()
    for found in (
        DeleteSnapshots(runner, "test", None).check(),
        DeleteSnapshots(runner, "test", None).run(),
    ):
        answer = found.answer()["test"]
        assert answer["comment"] == "test on hv1 has no snapshots: nothing to delete"
        assert (answer["result"], answer["changes"]) == (True, {})


def test_a_deletion_is_called_one_while_it_is_under_way(runner, chain):
    from saltvirt.operations.journal import lock

    with (
        DeleteSnapshots(runner, "test", ["a"])._locked_snapshots(),
        pytest.raises(errors.VirtError) as raised,
    ):
        lock.refuse_taken(runner.opts, "test")
    assert "virt.delete_snapshots" in raised.value.text
