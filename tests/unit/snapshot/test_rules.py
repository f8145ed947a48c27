"""Rules for snapshots: the kind, what a revert loses, and the order of deletion."""

import itertools

import pytest

from saltvirt import errors
from saltvirt.snapshot import rules, tree
from saltvirt.snapshot.rules import SnapshotGuest, WritableDisk
from saltvirt.snapshot.tree import EXTERNAL, INTERNAL, SnapshotDisk, SnapshotNode, SnapshotTree

SYSTEM = "/i/g.qcow2"


def chain(kinds, branches=None):
    """Snapshots of one disk, each on top of the one before: i0, e1, … by the letters of kinds. In
    branches: name to another parent, from whose file it goes on."""
    found, place, at = [], {None: SYSTEM}, None
    for number, letter in enumerate(kinds):
        name = f"{letter}{number}"
        at = (branches or {}).get(name, at)
        base = place[at]
        layer = f"/i/g.{name}" if letter == "e" else None
        kind = EXTERNAL if layer else INTERNAL
        disk = SnapshotDisk("vda", kind, base, layer)
        found.append(SnapshotNode(name, at, 100 + number, disks=(disk,)))
        place[name] = layer or base
        at = name
    return SnapshotTree(found)


def guest(running=False, place=SYSTEM, **more):
    disk = WritableDisk("vda", "file", "qcow2", place, True, place)
    return SnapshotGuest("g", running, 1024, disks=(disk,), **more)


def disk(target="vdb", kind="file", format="qcow2", **more):
    path = f"/i/{target}"
    return WritableDisk(target, kind, format, **{"path": path, "location": path, **more})


@pytest.mark.parametrize(
    ("about", "external", "why"),
    [
        (guest(), False, None),
        (guest(running=True), False, None),
        (guest(variables=True), True, "it boots with UEFI firmware"),
        (guest(running=True, variables=True), True, "it boots with UEFI firmware"),
        (guest(folders=("one",)), False, None),
        (guest(running=True, folders=("one",)), True, "its memory cannot be saved with a folder"),
        (
            SnapshotGuest("g", disks=(disk(), disk("vdc", format="raw"))),
            True,
            ("its disk vdc is raw"),
        ),
        (SnapshotGuest("g", disks=(disk(kind="volume"),)), False, None),
        (
            SnapshotGuest("g", disks=(disk(kind="volume", regular=False),)),
            True,
            ("its disk vdb is not a file"),
        ),
        (
            SnapshotGuest("g", True, disks=(disk(kind="network", path=None),)),
            True,
            ("vdb is not a file"),
        ),
    ],
)
def test_the_kind_is_chosen_from_the_guest(about, external, why):
    choice = rules.choose(about, SnapshotTree())
    assert choice.external is external
    assert (why is None and choice.reason is None) or why in choice.reason
    assert rules.choose(about, SnapshotTree(), disk_only=True).external
    if external:
        with pytest.raises(errors.Unsupported, match=f"internal snapshot: .*{why}.*disk_only out"):
            rules.choose(about, SnapshotTree(), disk_only=False)
    else:
        assert not rules.choose(about, SnapshotTree(), disk_only=False).external


def test_a_guest_goes_on_with_the_kind_that_it_has():
    choice = rules.choose(guest(), chain("e"))
    assert (choice.external, choice.reason) == (True, "its snapshots are external (e0)")
    assert not rules.choose(guest(), chain("ii")).external


@pytest.mark.parametrize(
    ("kinds", "disk_only", "about", "words"),
    [
        ("i", True, guest(), "g has internal snapshots .i0.*, or leave disk_only out"),
        ("e", False, guest(), "g has external snapshots .e0.*delete those first"),
        ("i", None, guest(variables=True), "has internal snapshots .i0.*first .it boots with UEFI"),
    ],
)
def test_both_kinds_beside_one_another_are_refused(kinds, disk_only, about, words):
    with pytest.raises(errors.Refused, match=words):
        rules.choose(about, chain(kinds), disk_only)


def test_quiesce_is_of_running_guests_and_external():
    assert rules.choose(guest(running=True), SnapshotTree(), quiesce=True).external
    with pytest.raises(errors.InvalidInput, match=r"disk_only=True"):
        rules.choose(guest(running=True), SnapshotTree(), disk_only=False, quiesce=True)
    with pytest.raises(errors.InvalidInput, match=r"g is not running"):
        rules.choose(guest(), SnapshotTree(), quiesce=True)


def test_a_disk_on_a_server_has_a_layer_only_while_the_guest_runs():
    server = (disk(kind="network", path=None, format="raw"),)
    assert rules.choose(SnapshotGuest("g", True, disks=server), SnapshotTree()).external
    with pytest.raises(errors.Unsupported, match=r"vdb of g is on a server.*while the guest runs"):
        rules.choose(SnapshotGuest("g", disks=server), SnapshotTree())


def test_what_room_it_needs_at_once():
    about = SnapshotGuest(
        "g", True, 1024**2, disks=(disk("vda"), disk("vdb"), disk("vdc", path=None))
    )
    assert rules.required_bytes(about, rules.SnapshotKind(INTERNAL)) == {
        "/i/vda": 1024**3 + 64 * 1024**2
    }
    assert rules.required_bytes(about, rules.SnapshotKind(EXTERNAL)) == {
        "/i/vda": 1024**2,
        "/i/vdb": 1024**2,
    }
    assert rules.required_bytes(guest(), rules.SnapshotKind(INTERNAL)) == {SYSTEM: 1024**2}
    rules.refuse_without_room("g", "/i/vda", 5, 5)
    with pytest.raises(errors.Refused, match=r"needs 2 GiB in the file system of /i/vda"):
        rules.refuse_without_room("g", "/i/vda", 2 * 1024**3, 1024**3)


# the kinds of a chain, the snapshot to go back to, what that loses
LOSES = [
    ("iii", "i0", ""),
    ("eee", "e0", "e1 e2"),
    ("eee", "e2", ""),
    ("ie", "i0", "e1"),
    ("iie", "i0", "e2"),
    ("iie", "i1", "e2"),
    ("iei", "i0", "e1 i2"),
    ("ei", "e0", "i1"),
    ("ei", "i1", ""),
    ("eie", "i1", "e2"),
]


@pytest.mark.parametrize(("kinds", "name", "lost"), LOSES)
def test_what_going_back_loses(kinds, name, lost):
    snapshots = chain(kinds)
    assert rules.invalidated(snapshots, name) == set(lost.split())
    if lost:
        with pytest.raises(errors.InvalidInput, match=f"lost: they are based on {name}; cle"):
            rules.revert("g", snapshots, name)
    else:
        assert rules.revert("g", snapshots, name) == rules.RevertPlan(name)
    assert {*lost.split()} <= {*rules.revert("g", snapshots, name, cleanup=True).deleted}


def test_a_layer_on_a_branch_is_lost_where_its_base_is_put_back():
    """i1 is no ancestor of e2, but both are of one file."""
    snapshots = chain("iie", {"e2": "i0"})
    assert rules.invalidated(snapshots, "i1") == {"e2"}


def test_no_snapshot_that_stays_stands_on_a_file_that_a_revert_changes():
    """Of every chain of up to five, and every one of its snapshots."""
    for length in range(1, 6):
        for kinds in itertools.product("ie", repeat=length):
            snapshots = chain(kinds)
            for target in snapshots:
                changed = target.inside | target.layers
                for one in set(snapshots) - {target}:
                    if one.name in rules.invalidated(snapshots, target.name):
                        continue
                    files = set().union(*map(snapshots.below, one.layers | one.inside))
                    assert not files & changed, (kinds, target.name, one.name)


def test_which_goes_with_cleanup_and_in_which_order():
    snapshots = chain("iiii", {"i3": "i0"})
    assert rules.revert("g", snapshots, "i1", cleanup=True).deleted == ("i3", "i2")
    assert rules.revert("g", snapshots, "i3", cleanup=True).deleted == ()


def test_what_is_made_in_the_same_second_on_top_of_it_is_newer():
    first = SnapshotNode("a", None, 5)
    snapshots = SnapshotTree([first, SnapshotNode("b", "a", 5), SnapshotNode("c", None, 5)])
    assert rules.newer(snapshots, "a") == {"b"}


def test_what_it_was_taken_on_top_of_is_older_though_a_clock_said_otherwise():
    first, second = SnapshotNode("a", None, 9), SnapshotNode("b", "a", 9)
    snapshots = SnapshotTree([first, second, SnapshotNode("c", "b", 5), SnapshotNode("d", "c", 4)])
    assert rules.revert("g", snapshots, "c", cleanup=True).deleted == ("d",)


def test_going_back_without_a_name():
    current = SnapshotNode("b", "a", 2, current=True)
    snapshots = SnapshotTree([SnapshotNode("a", None, 1), current])
    assert rules.revert("g", snapshots).name == "a"
    with pytest.raises(errors.NotFound, match=r"g has no snapshots"):
        rules.revert("g", SnapshotTree())
    with pytest.raises(errors.NotFound, match=r"no snapshot before the current one; name one"):
        rules.revert(
            "g", SnapshotTree([SnapshotNode("a", None, 1, current=True), SnapshotNode("b", "a", 2)])
        )
    with pytest.raises(errors.NotFound, match=r"g has no snapshot z; it has b, a"):
        rules.revert("g", snapshots, "z")


# kinds, running, what is to go, in which order libvirt 9.0 was seen to delete it
ORDERS = [
    ("ee", False, "e0 e1", "e1 e0"),
    ("eee", True, "e0 e1 e2", "e2 e1 e0"),
    ("eee", True, "e1", "e1"),
    ("ie", False, "i0 e1", "i0 e1"),
    ("iie", False, "i0 i1 e2", "i1 i0 e2"),
    ("iee", False, "i0 e1 e2", "e2 i0 e1"),
    ("ei", False, "e0 i1", "i1 e0"),
    ("ei", True, "e0 i1", "i1 e0"),
    ("iii", True, "i0 i2", "i2 i0"),
]
IMPOSSIBLE = [
    (
        "ee",
        False,
        "e0",
        "snapshot e0 .*e1 would lose its .*: delete e1 with it, or start the guest",
    ),
    ("ie", False, "e1", "snapshot e1 .*its parent i0 is internal: delete i0, too"),
    ("ie", True, "i0 e1", "snapshot i0 .* the guest runs on an overlay.*: stop the guest first"),
    ("ei", False, "e0", "snapshot e0 .*: i1 is inside its overlay: delete i1, too"),
]


def top(snapshots):
    """Where the guest's disk is, on top of all."""
    layers = [layer for one in snapshots for layer in one.layers]
    return layers[-1] if layers else SYSTEM


@pytest.mark.parametrize(("kinds", "running", "doomed", "order"), ORDERS)
def test_in_which_order_they_are_deleted(kinds, running, doomed, order):
    snapshots = chain(kinds)
    about = guest(running, top(snapshots))
    assert rules.deletion_order(about, snapshots, doomed.split()) == order.split()


@pytest.mark.parametrize(("kinds", "running", "doomed", "words"), IMPOSSIBLE)
def test_what_libvirt_cannot_delete_is_refused_with_the_way_out(kinds, running, doomed, words):
    snapshots = chain(kinds)
    with pytest.raises(errors.Refused, match=words):
        rules.deletion_order(guest(running, top(snapshots)), snapshots, doomed.split())


def test_nothing_to_delete_is_an_order():
    assert rules.deletion_order(guest(), SnapshotTree(), []) == []


def with_drive(name, medium, parent=None, at=1):
    """An internal snapshot of a guest with a drive."""
    disks = SnapshotDisk("vda", INTERNAL, SYSTEM), SnapshotDisk("hda", "no", medium)
    return SnapshotNode(name, parent, at, "running", memory=INTERNAL, disks=disks)


@pytest.mark.parametrize(
    ("now", "words"),
    [
        ({"vda": SYSTEM}, "hda was /i/a.iso at that time and is not there: stop the guest first"),
        ({"vda": SYSTEM, "hda": None}, "hda was /i/a.iso at that time and is empty"),
        ({"vda": SYSTEM, "hda": "/i/b.iso"}, "hda was /i/a.iso at that time and is /i/b.iso"),
        ({"vda": SYSTEM, "hda": "/i/a.iso"}, None),
        (None, None),
    ],
)
def test_libvirt_deletes_no_snapshot_of_a_running_guest_with_other_disks(now, words):
    snapshots = SnapshotTree(
        [with_drive("a", "/i/a.iso"), with_drive("b", now and now.get("hda"), "a")]
    )
    if words is None:
        found = rules.deletion_order(guest(True, current_sources=now), snapshots, ["a"])
        assert found == ["a"]
        return
    with pytest.raises(errors.Refused, match=f"snapshot a of g cannot be deleted: {words}"):
        rules.deletion_order(guest(True, current_sources=now), snapshots, ["a", "b"])


def test_what_could_not_be_deleted_after_a_revert_is_refused_before():
    snapshots = SnapshotTree([with_drive("a", "/i/a.iso"), with_drive("b", "/i/b.iso", "a", 2)])
    plan = rules.revert("g", snapshots, "a", cleanup=True)
    with pytest.raises(errors.Refused, match=r"hda is /i/a.iso at a and /i/b.iso at b: stop g"):
        rules.refuse_undeletable("g", snapshots, plan)
    with pytest.raises(errors.Refused, match=r"hda is empty at a"):
        rules.refuse_undeletable("g", snapshots, plan, {"hda": "/i/a.iso"})
    same = SnapshotTree([with_drive("a", "/i/a.iso"), with_drive("b", "/i/a.iso", "a", 2)])
    rules.refuse_undeletable("g", same, plan)
    rules.refuse_undeletable("g", snapshots, rules.revert("g", snapshots, "b"))


def test_a_snapshot_of_more_disks_that_stays_inside_is_named():
    first = SnapshotNode("a", disks=(SnapshotDisk("vda", INTERNAL, SYSTEM),))
    more = (*first.disks, SnapshotDisk("vdb", INTERNAL, "/i/vdb"))
    snapshots = SnapshotTree(
        [first, SnapshotNode("b c", "a", 2, disks=more), SnapshotNode("d", "a", 3)]
    )
    found = rules.internal_leftovers("g", snapshots, rules.RevertPlan("a", ("d", "b c")))
    assert found == [
        f"b c still takes up space in {SYSTEM}: while g is off, "
        "`qemu-img snapshot -d 'b c' FILE` deletes it"
    ]
    assert rules.internal_leftovers("g", snapshots, rules.RevertPlan("b c", ("d",))) == []


def test_libvirt_makes_no_layer_with_a_comma_while_the_guest_is_off():
    rules.refuse_layer(guest(True), "/i/g.a,b")
    rules.refuse_layer(guest(), "/i/g.a b")
    with pytest.raises(errors.InvalidInput, match=r"/i/g.a,b while g is off.*comma.*start g first"):
        rules.refuse_layer(guest(), "/i/g.a,b")


TEXT = """<domainsnapshot><name>s</name><description>words</description><state>running</state>
<parent><name>p</name></parent><creationTime>7</creationTime><memory snapshot='internal'/><disks>
<disk name='vda' snapshot='internal'/><disk name='vdb' snapshot='no'/>
<disk name='vdc' snapshot='external' type='file'><source file='/i/vdc.s'/></disk></disks><domain>
<os>{os}</os><devices>
<disk><source file='/i/vda'/><target dev='vda'/></disk>
<disk type='volume'><source pool='p' volume='v'/><target dev='vdc'/></disk>
<disk><target dev='vdd'/></disk>{more}</devices></domain></domainsnapshot>"""


def test_a_snapshot_is_read_from_libvirts_xml():
    found = tree.read(TEXT.format(os="", more=""), True)
    assert (found.name, found.parent, found.created, found.state) == ("s", "p", 7, "running")
    assert (found.description, found.memory, found.current) == ("words", INTERNAL, True)
    assert (found.inside, found.layers) == ({"/i/vda"}, {"/i/vdc.s"})
    assert (found.external, found.kind, found.of_layers_alone) == (True, EXTERNAL, False)
    assert found.disks[2] == SnapshotDisk("vdc", EXTERNAL, "p/v", "/i/vdc.s")
    assert (found.variables, found.tpm) == (False, False)


@pytest.mark.parametrize(
    ("os", "has"),
    [
        ("<loader type='rom'>/x</loader>", False),
        ("<loader type='pflash'>/x</loader>", True),
        ("<loader type='pflash' stateless='yes'>/x</loader>", False),
        ("<nvram>/x</nvram>", True),
    ],
)
def test_which_firmware_keeps_variables(os, has):
    assert tree.read(TEXT.format(os=os, more="")).variables is has
    efi = TEXT.format(os="", more="").replace("<os>", "<os firmware='efi'>")
    assert tree.read(efi).variables


def test_an_emulated_tpm_is_known():
    more = "<tpm><backend type='emulator'/></tpm>"
    assert tree.read(TEXT.format(os="", more=more)).tpm


def test_the_tree_knows_who_stands_on_whom():
    snapshots = chain("eei", {"i2": "e0"})
    assert snapshots.newest_first() == ["i2", "e1", "e0"]
    assert snapshots.descendants("e0") == {"e1", "i2"}
    assert snapshots.with_children(["e1"]) == {"e1"}
    assert snapshots.below("/i/g.e1") == {"/i/g.e0", SYSTEM}
    assert (len(snapshots), "e1" in snapshots, snapshots.current) == (3, True, None)
