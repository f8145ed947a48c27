"""External snapshots: files that are deleted, merged or replaced may be needed on this host or
another one. libvirt's test driver keeps the names of layers and changes no file;
tests/integration/test_snapshots.py has real ones."""

import os

import pytest

libvirt = pytest.importorskip("libvirt")
pytest.importorskip("salt")

from saltvirt import errors
from saltvirt.fleet.answer import Answer
from saltvirt.host.snapshot import layers, reader, snapshots
from saltvirt.host.storage import identity, usage
from saltvirt.operations.cluster import shared_storage_check
from saltvirt.operations.guest.snapshots import plan, run, writable_snapshots
from saltvirt.snapshot.calls import (
    DELETE_SNAPSHOTS,
    REVERT_SNAPSHOT,
    DeleteSnapshotsRequest,
    RevertRequest,
)
from tests.functional.conftest import load
from tests.functional.host.storage.test_shared import nas  # noqa: F401
from tests.functional.host.storage.test_still_needed import opened
from tests.functional.host.storage.test_usage import create, disk, place  # noqa: F401

SNAPSHOT = """<domainsnapshot><name>{name}</name><state>disk-snapshot</state>{parent}
<creationTime>{time}</creationTime><memory snapshot='no'/><disks>
<disk name='vda' snapshot='external' type='file'><driver type='qcow2'/>
<source file='{path}'/></disk>
</disks>{domain}</domainsnapshot>"""


def layer(dom, name, base, kind="raw"):
    """An external snapshot of the guest; the path of its layer, in which the guest goes on."""
    path = str(base).removesuffix(".raw") + f".{name}"
    create(path, base, kind)
    there = [one.getName() for one in dom.listAllSnapshots() if one.isCurrent()]
    parent = "".join(f"<parent><name>{one}</name></parent>" for one in there)
    text = SNAPSHOT.format(
        name=name, path=path, parent=parent, domain=dom.XMLDesc(0), time=1 + dom.snapshotNum()
    )
    flags = libvirt.VIR_DOMAIN_SNAPSHOT_CREATE_REDEFINE | libvirt.VIR_DOMAIN_SNAPSHOT_CREATE_CURRENT
    dom.snapshotCreateXML(text, flags)
    below = dom.XMLDesc(0).replace(f"'{base}'", f"'{path}'").replace("type='raw'", "type='qcow2'")
    dom.connect().defineXML(below)
    return path


def layered(where):
    """(the domain, the paths of its two layers)."""
    dom = where.guest(disk(where.base, "raw"), name="web1")
    first = layer(dom, "one", where.base)
    return dom, first, layer(dom, "two", first, "qcow2")


@pytest.fixture
def calls(monkeypatch):
    """What libvirt, or we instead of it, would have done to the files."""
    done = []
    monkeypatch.setattr(snapshots, "_revert_layers", lambda *a: done.append("revert") or [])
    return done


ACTS = {
    "delete": lambda conn, **more: snapshots.delete(conn, "web1", ["two"], **more),
    "all": lambda conn, **more: snapshots.delete(conn, "web1", [], everything=True, **more),
    "revert": lambda conn, **more: snapshots.revert(conn, "web1", "two", **more),
    "cleanup": lambda conn, **more: snapshots.revert(conn, "web1", "one", cleanup=True, **more),
}


@pytest.mark.parametrize("act", ACTS)
def test_a_guest_of_this_host_that_stands_on_it_is_asked_for(place, calls, act):  # noqa: F811
    """Also where libvirt itself goes back to a snapshot, as from 9.9 on."""
    _, _, second = layered(place)
    place.guest(disk(create(place.above, second, "qcow2")), name="web2")
    with pytest.raises(errors.Refused, match="would be lost, but web2 needs it"):
        ACTS[act](place.conn)
    assert calls == []


@pytest.mark.parametrize("act", ACTS)
def test_what_nobody_needs_may_go(place, calls, act):  # noqa: F811
    layered(place)
    ACTS[act](place.conn)


def test_newer_external_ones_are_merged_also_when_it_goes_back_to_an_internal_one(place):  # noqa: F811
    dom = place.guest(disk(place.base, "raw"), name="web1")
    dom.snapshotCreateXML("<domainsnapshot><name>first</name></domainsnapshot>")
    layer(dom, "later", place.base)
    place.guest(disk(place.base, "raw"), name="web2")
    with pytest.raises(errors.Refused, match=rf"{place.base} would be lost, but web2 needs it"):
        snapshots.revert(place.conn, "web1", "first", cleanup=True)
    assert len(dom.listAllSnapshots()) == 2


@pytest.mark.parametrize(
    ("act", "verb"),
    [
        ("delete", "virt.delete_snapshots"), ("all", "virt.delete_snapshots"),
        ("revert", "virt.revert"), ("cleanup", "virt.revert"),
    ],
)  # fmt: skip
def test_other_hosts_that_may_have_it_must_have_been_asked(nas, calls, act, verb):  # noqa: F811
    dom, first, second = layered(nas)
    with pytest.raises(errors.Refused, match=rf"\(nfs4\): salt-run {verb} web1 asks them"):
        ACTS[act](nas.conn)
    assert (calls, len(dom.listAllSnapshots())) == ([], 2)
    ACTS[act](nas.conn, unused=[str(nas.base), first, second])


@pytest.mark.parametrize("missing", ["first", "second"])
def test_a_proof_of_another_file_is_none(nas, missing):  # noqa: F811
    _, first, second = layered(nas)
    unused = [first] if missing == "second" else [second]
    with pytest.raises(errors.Refused, match="other hosts may need it"):
        ACTS["delete"](nas.conn, unused=unused)


def test_what_to_ask_others_about(nas):  # noqa: F811
    _, first, second = layered(nas)
    modules = load("test:///default")
    told = modules["virt.delete_snapshots"]("web1", "one", "two", test=True)
    assert set(told["deleted"]) == {"one", "two"}
    assert (set(told["shared"]), told.get("guest_disks")) == ({str(nas.base), first, second}, None)
    told = modules["virt.delete_snapshots"](name="web1", names=["two"], test=True)
    assert set(told["shared"]) == {first, second}
    told = modules["virt.revert_snapshot"]("web1", "two", test=True)
    assert (set(told["shared"]), told["reverted"]) == ({second}, "two")
    assert len(nas.conn.lookupByName("web1").listAllSnapshots()) == 2


def test_the_guests_own_layers_are_no_users_on_another_host(nas):  # noqa: F811
    """There no guest names them; another file of that name is one."""
    _, first, second = layered(nas)
    nas.conn.lookupByName("web1").undefineFlags(libvirt.VIR_DOMAIN_UNDEFINE_SNAPSHOTS_METADATA)
    nas.pool("there", nas.base.parent)
    places = [usage.file_identity(nas.conn, path) for path in (first, second)]
    assert usage.users_here(nas.conn, places)[first] is None
    assert usage.users_here(nas.conn, places[:1])[first] == f"used by {second}"
    (nas.base.parent / "deep").mkdir()
    name = identity.real(nas.base.parent / "deep" / second.rpartition("/")[2])
    create(name, first, "qcow2")
    nas.pool("deep", nas.base.parent / "deep")
    assert usage.users_here(nas.conn, places)[first] == f"used by {name}"


DELETE = DeleteSnapshotsRequest("web1", ("a",))


class Cloud:
    """A host whose guest has layers on shared storage, and another one."""

    def __init__(self, answer):
        self.opts, self.answer, self.called = {}, answer, []

    def hosts(self, only=None):
        return ["hv1", "hv2"]

    def ask(self, hosts, function, kwarg=None, **_options):
        assert (hosts, function) == (["hv2"], "virt.storage_users")
        self.called.append(sorted(kwarg["places"]))
        yield self.answer

    def call(self, host, function, kwarg=None, long=None):
        self.called.append((function, kwarg))
        assert long is ("unused" in kwarg), "a question has an end, a change all the time it takes"
        gone = {"deleted": []} if function == "virt.revert_snapshot" else {"deleted": {}}
        return {"reverted": "a", "shared": {"/nfs/a": {}}, "guest_disks": {"/nfs/b": {}}, **gone}


def test_the_runner_asks_all_hosts_before(monkeypatch):
    monkeypatch.setattr(shared_storage_check, "unmatched", lambda opts, hosts: {})
    cloud = Cloud(Answer("hv2", {"/nfs/a": None, "/nfs/b": "used by web9"}))
    done = run(cloud, "hv1", DELETE_SNAPSHOTS, DELETE)
    assert done.deleted == {}
    assert cloud.called == [
        ("virt.delete_snapshots", {**DELETE.to_answer(), "test": True}),
        ["/nfs/a", "/nfs/b"],
        ("virt.delete_snapshots", {**DELETE.to_answer(), "unused": ["/nfs/a"]}),
    ]


def test_of_what_is_the_hosts_own_nobody_else_is_asked():
    class Host(Cloud):
        def call(self, host, function, kwarg=None, long=None):
            return {"deleted": {}, "shared": {}, "guest_disks": {"/nfs/b": {}}}

    cloud = Host(Answer("hv2", error="down"))
    told, shared = plan(cloud, "hv1", DELETE_SNAPSHOTS, DELETE)
    assert (told.guest_disks, shared, cloud.called) == ({"/nfs/b": {}}, [], [])


@pytest.fixture
def of_web1(tmp_path):
    """(host, name to what is known) of the snapshots of web1, of which hv2 answers that."""

    def asked(answer):
        cloud = _OfSnapshots(answer)
        cloud.opts = {"cachedir": str(tmp_path)}
        return writable_snapshots(cloud, "web1")

    return asked


class _OfSnapshots(Cloud):
    def ask(self, hosts, function, kwarg=None, **_options):
        for host in hosts:
            yield Answer(host, {"web1": "running"} if host == "hv2" else {})

    def call(self, host, function, kwarg=None, long=None):
        assert (host, function, kwarg) == ("hv2", "virt.list_snapshots", {"domain": "web1"})
        assert long is False
        return self.answer


@pytest.mark.parametrize(
    ("said", "known"),
    [([{"name": "one", "parent": None, "current": True}], ["one"]), ("N/A", [])],
)
def test_the_snapshots_of_a_guest_are_asked_of_its_host(of_web1, said, known):
    host, found = of_web1({"web1": said})
    assert (host, list(found)) == ("hv2", known)
    assert all(one.parent is None for one in found.values())


@pytest.mark.parametrize(
    ("said", "why"),
    [({}, "its answer does not include web1"), ({"web1": {"error": "it is gone"}}, "it is gone")],
)
def test_a_guest_whose_snapshots_are_not_known_is_not_taken_for_one_without(of_web1, said, why):
    words = f"the snapshots of web1 on hv2 are unknown: {why}"
    with pytest.raises(errors.OperationFailed, match=words):
        of_web1(said)


@pytest.mark.parametrize(
    "answer",
    [
        Answer("hv2", {"/nfs/a": "used by web9", "/nfs/b": None}),
        Answer("hv2", {}),
        Answer("hv2", error="down"),
    ],
)
def test_one_that_uses_it_or_is_silent_keeps_the_layers(monkeypatch, answer):
    monkeypatch.setattr(shared_storage_check, "unmatched", lambda opts, hosts: {})
    cloud = Cloud(answer)
    with pytest.raises(errors.Refused, match="/nfs/a on hv1 would be lost, but other hosts may"):
        run(cloud, "hv1", REVERT_SNAPSHOT, RevertRequest("web1", "a"))
    assert len(cloud.called) == 2


def test_layers_that_libvirt_leaves_to_us_go_only_when_nobody_needs_them(nas):  # noqa: F811
    mine = create(nas.root / "other" / "mine.qcow2")
    dom, first, second = layered(nas)
    with opened(mine, "qcow2"):
        doomed = [str(mine), first, second]
        layers.remove(nas.conn, doomed, unused=[first], guest=dom.UUIDString())
        assert [os.path.exists(path) for path in (mine, first, second)] == [True, False, True]
    layers.remove(nas.conn, [str(mine)])
    assert not mine.exists()


def test_a_libvirt_that_can_go_back_does_so_and_says_what_is_left_to_delete(place):  # noqa: F811
    dom, _first, _second = layered(place)
    named = {one.getName(): one for one in dom.listAllSnapshots()}
    tree = reader.tree(place.conn, dom)
    to = (tree["one"], named)
    left = snapshots._revert_layers(place.conn, dom, to, tree, ["two"], ())
    assert (left, dom.snapshotCurrent().getName()) == (["two"], "one")


def test_what_else_goes_wrong_when_libvirt_goes_back_is_its_own_error(place):  # noqa: F811
    dom, first, _second = layered(place)
    named = {one.getName(): one for one in dom.listAllSnapshots()}
    before = os.stat(first).st_ino
    tree = reader.tree(place.conn, dom)
    named["two"].delete()
    with pytest.raises(libvirt.libvirtError, match="no domain snapshot") as raised:
        snapshots._revert_layers(place.conn, dom, (tree["two"], named), tree, [], ())
    assert raised.value.get_error_code() == libvirt.VIR_ERR_NO_DOMAIN_SNAPSHOT
    assert os.stat(first).st_ino == before


def test_a_snapshot_with_memory_or_in_the_image_is_no_layer_that_we_begin_anew(place):  # noqa: F811
    dom, _first, _second = layered(place)
    dom.snapshotCreateXML("<domainsnapshot><name>inside</name></domainsnapshot>")
    with pytest.raises(errors.Unsupported, match="cannot revert to snapshot inside: it only"):
        layers.layers(dom.snapshotLookupByName("inside"))
    found = layers.layers(dom.snapshotLookupByName("one"))
    assert [(one.target, os.path.basename(one.path)) for one in found] == [("vda", "base.one")]


def test_a_layer_without_a_base_is_not_begun_anew(tmp_path):
    path, fresh = create(tmp_path / "alone.qcow2"), tmp_path / "fresh"
    with pytest.raises(errors.OperationFailed) as raised:
        layers.Layer("vda", str(path)).recreate_in(str(fresh))
    assert raised.value.text == f"cannot reset {path}: it has no backing file"
    assert not fresh.exists()


def test_a_layer_whose_file_has_gone_is_removed_already(place):  # noqa: F811
    dom, first, second = layered(place)
    os.unlink(first)
    dom.connect().defineXML(dom.XMLDesc(0).replace(second, str(place.base)))
    layers.remove(place.conn, [first, second], guest=dom.UUIDString())
    assert not os.path.exists(second)


def test_a_disk_that_is_put_on_its_layer_has_none_of_the_chain_of_before(place):  # noqa: F811
    source = f"<format type='raw'/><source file='{place.base}'/>"
    below = f"<backingStore type='file'>{source}</backingStore>"
    dom = place.guest(disk("/a", "raw", below=below), name="web1")
    assert "<backingStore" in dom.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE)
    layers._point_at(place.conn, dom, [layers.Layer("vda", "/b"), layers.Layer("vdb", "/c")])
    now = place.conn.lookupByName("web1").XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE)
    assert "<source file='/b'/>" in now
    assert "type='qcow2'" in now
    assert "<backingStore" not in now


def test_a_guest_that_goes_while_snapshots_are_listed_costs_only_itself(place):  # noqa: F811
    dom = place.guest(disk(place.base, "raw"), name="going")
    dom.undefine()
    assert "Domain not found" in snapshots._described_or_error(place.conn, dom)["error"]
