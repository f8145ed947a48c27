"""Admission by this host: its criteria, free names, and the order of checks."""

# ruff: noqa: F811
import os
from dataclasses import replace

import pytest

libvirt = pytest.importorskip("libvirt")
pytest.importorskip("salt")

from saltvirt import errors
from saltvirt.host.domain import creation, metadata
from saltvirt.host.provision import admission, disk_build
from saltvirt.placement import account, facts
from saltvirt.placement.policy import PlacementPolicy
from saltvirt.spec.disk import DiskSpec
from saltvirt.xml.domain.domain import Domain
from saltvirt.xml.domain.metadata import GuestRecord
from tests.functional.conftest import conn  # noqa: F401

MIB = 1024


def get(**virt):
    found = {f"virt:{key}": value for key, value in virt.items()}
    return lambda key, default=None: found.get(key, default)


def config(terms=None, overcommit=False, **virt):
    sent = None if terms is None else account.PlacementTerms.from_answer(terms, "placement")
    return admission.AdmissionConfig(get(**virt), "/images", None, sent, overcommit)


# -- what it goes by ----------------------------------------------------------------------


def test_where_disks_and_images_are(tmp_path):
    found = admission.AdmissionConfig.configured(get(images=str(tmp_path)), overcommit=True)
    assert (found.images_dir, found.disks_location, found.pool) == (
        str(tmp_path),
        str(tmp_path),
        None,
    )
    assert found.overcommit
    assert os.path.dirname(found.cache_dir) == str(tmp_path)
    assert replace(found, pool="vms").disks_location == "vms"


def test_the_policy_is_the_masters_where_it_has_sent_one():
    own = {"memory_ratio": 3}
    assert config(placement=own).policy() == PlacementPolicy(memory_ratio=3.0)
    sent = PlacementPolicy(memory_ratio=4.0).to_wire()
    assert config({"policy": sent}, placement=own).policy() == PlacementPolicy(memory_ratio=4.0)
    assert config({"elsewhere": {}}, placement=own).policy().memory_ratio == 3
    assert config({"policy": {}}, placement=own).policy() == PlacementPolicy()


def test_what_other_hosts_promise_is_what_the_master_says():
    assert config({"elsewhere": {"nas": 5}}).elsewhere() == {"nas": 5}
    for terms in (None, {}):
        assert config(terms).elsewhere() == {}


def test_what_a_call_gives_is_taken_from_it():
    given = {"placement": {"policy": {}}, "overcommit": True, "more": 1}
    found = admission.config_of(get(images="/vm"), given)
    sent = account.PlacementTerms(policy={})
    assert (found.terms, found.overcommit, found.images_dir) == (sent, True, "/vm")
    assert given == {"more": 1}
    for configured in (True, False):
        own = get(images="/vm", overcommit=configured)
        assert admission.config_of(own, {"placement": None}).overcommit is configured
        assert admission.config_of(own, {"overcommit": False}).overcommit is False
    assert admission.config_of(get(images="/vm"), {}).overcommit is False


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"placement": []}, "placement: it is not a mapping"),
        ({"overcommit": 1}, "invalid overcommit: 1"),
        ({"overcommit": "no"}, "invalid overcommit: 'no'"),
    ],
)
def test_what_is_none_of_these_is_named(given, words):
    with pytest.raises(errors.InvalidInput, match=words):
        admission.config_of(get(images="/vm"), {**given})


def test_the_locks_of_guests_lie_below_those_of_the_host(tmp_path):
    by = config(lock=str(tmp_path / "lock"))
    with by.guest("virt.update", "web1", "web2"):
        files = os.listdir(tmp_path / "lock" / "guests")
    assert len([name for name in files if name.startswith(("web1", "web2"))]) == 2


# -- whose name it is ---------------------------------------------------------------------


def guest(conn, creating=None, name="web1", more=""):
    built = Domain.fromstring(
        f"<domain type='test'><name>{name}</name><memory>65536</memory><os><type>hvm</type></os>"
        f"{more}</domain>"
    )
    built.record = GuestRecord(version="1", creating=creating)
    return conn.defineXML(built.tostring())


DEAD = "1:2:of another boot"


@pytest.mark.parametrize(
    ("creating", "words"),
    [
        (None, "web1 already exists on"), ("mine", "web1 is being created on .* right now"),
        (DEAD, None),
    ],
)  # fmt: skip
def test_a_name_is_free_where_nobody_has_it_or_is_at_work_on_it(conn, creating, words):
    admission.refuse_name_in_use(conn, "web1")
    assert creation.interrupted(conn, "web1") is None
    dom = guest(conn, metadata.worker() if creating == "mine" else creating)
    if words:
        with pytest.raises(errors.AlreadyExists, match=words):
            admission.refuse_name_in_use(conn, "web1")
        assert creation.interrupted(conn, "web1") is None
    else:
        admission.refuse_name_in_use(conn, "web1")
        assert creation.interrupted(conn, "web1").UUIDString() == dom.UUIDString()


def test_a_name_that_differs_by_case_alone_is_taken(conn):
    guest(conn, name="web1")
    with pytest.raises(errors.AlreadyExists, match=r"create WEB1: web1 already exists"):
        admission.refuse_name_in_use(conn, "WEB1")


def test_a_guest_without_a_record_has_its_name(conn):
    with pytest.raises(errors.AlreadyExists, match="test already exists on"):
        admission.refuse_name_in_use(conn, "test")
    assert creation.interrupted(conn, "test") is None


# -- what is asked ------------------------------------------------------------------------


HOST = facts.Host(
    "hv1", 4, 8 * MIB * MIB, types=("test",),
    guests=(
        facts.Guest("runs", state="running", vcpus=1, memory_kib=4 * MIB * MIB),
        facts.Guest("off", vcpus=1, memory_kib=3 * MIB * MIB),
        facts.Guest("large", vcpus=1, memory_kib=5 * MIB * MIB),
    ),
)  # fmt: skip
# of the memory everything is the guests'
ALL = dict.fromkeys(
    ("reserved_memory_kib", "reserved_memory_ratio", "overhead_kib", "overhead_vcpu_kib",
     "overhead_ratio"), 0,
)  # fmt: skip
BARE = {"policy": {**ALL, "stopped_ratio": 0}}


@pytest.fixture
def host(monkeypatch):
    """The host as it is told; ``host.told`` is what is told of it."""

    class Told:
        told = HOST

    found = Told()
    monkeypatch.setattr(admission, "host_facts", lambda conn, admission_config: found.told)
    return found


def request(memory_gib=1, **more):
    return facts.PlacementRequest("new", 1, memory_gib * MIB * MIB, hypervisor="test", **more)


def test_a_host_takes_what_it_has_room_for(conn, host):
    admission.check(conn, config(BARE), request(4))
    with pytest.raises(errors.NoRoom, match=r"hv1: 5120 MiB of memory requested, 4096 of 8192 MiB"):
        admission.check(conn, config(BARE), request(5))
    admission.check(conn, config(BARE, overcommit=True), request(5))
    admission.check(conn, config(BARE), request(5), filter_names=("vcpu",))
    grown = replace(request(5), name="runs")
    admission.check(conn, config(BARE), grown, is_new=False)


def test_what_is_no_want_of_room_is_refused_all_the_same(conn, host):
    host.told = replace(HOST, maintenance="new disks")
    with pytest.raises(errors.Refused, match="hv1: in maintenance: new disks") as said:
        admission.check(conn, config(BARE, overcommit=True), request())
    assert type(said.value) is errors.Refused


def test_a_new_guests_name_is_its_own(conn, host):
    guest(conn, name="new")
    with pytest.raises(errors.AlreadyExists):
        admission.check(conn, config(BARE), request())
    admission.check(conn, config(BARE), request(), is_new=False)


@pytest.mark.parametrize("coming", [True, False])
def test_what_a_guest_on_its_way_was_promised_meanwhile_is_asked_again(
    conn, host, monkeypatch, coming
):
    """Of the disks nothing: they are made by now."""
    guest(conn, name="new")
    asked = []
    monkeypatch.setattr(admission.reservations, "local", lambda present: ["web9"] * coming)
    monkeypatch.setattr(
        admission.choose, "admits", lambda host, request, *more: asked.append(request)
    )
    whole = request(1, disk_bytes=7, pools={"vms": 5}, disks=(facts.DiskFootprint(9, "/vm/a"),))
    admission.recheck(conn, config(BARE), whole)
    assert asked == [request(1)] * coming


@pytest.mark.parametrize(
    ("name", "overcommit", "refused"),
    [("off", False, False), ("large", False, True), ("large", True, False), ("runs", False, False)],
)
def test_a_guest_starts_where_those_that_run_leave_room(conn, host, name, overcommit, refused):
    host.told = replace(HOST, memory_kib=8 * MIB * MIB - (name == "runs") * 5 * MIB * MIB)
    dom = guest(conn, name=name)
    by = config(BARE, overcommit)
    if refused:
        words = (
            "hv1: 5120 MiB of memory requested, 4096 of 8192 MiB free: stop another guest, move "
            "this one, or start it anyway with overcommit=True"
        )
        with pytest.raises(errors.NoRoom, match=words):
            admission.check_start(conn, by, dom)
    else:
        admission.check_start(conn, by, dom)


def test_a_guest_of_which_nothing_is_told_is_not_counted(conn, host):
    admission.check_start(conn, config(BARE), guest(conn, name="just made"))


def test_stopped_guests_and_silent_disks_keep_nobody_from_starting(conn, host):
    """But the host's own stricter limits do."""
    by = {"policy": ALL}
    off = replace(HOST.guests[1], disks=(facts.DiskFootprint(2**60, "/vm/a"),))
    host.told = replace(HOST, guests=(HOST.guests[0], off, HOST.guests[2]))
    dom = guest(conn, name="off")
    admission.check_start(conn, config(by), dom)
    host.told = replace(host.told, limits={"stopped_ratio": 1.0})
    admission.check_start(conn, config(by), dom)
    host.told = replace(host.told, limits={"memory_ratio": 0.5})
    with pytest.raises(errors.NoRoom, match="0 of 4096 MiB free"):
        admission.check_start(conn, config(by), dom)


@pytest.mark.parametrize(("gib", "overcommit"), [(4, False), (5, True), (5, False)])
def test_a_guest_that_is_gone_when_it_stops_is_counted_too(conn, host, gib, overcommit):
    xml = f"<domain type='test'><name>t</name><memory unit='GiB'>{gib}</memory></domain>"
    if gib == 5 and not overcommit:
        with pytest.raises(errors.NoRoom, match="5120 MiB of memory requested"):
            admission.check_transient(conn, config(BARE), xml)
    else:
        admission.check_transient(conn, config(BARE, overcommit), xml)


def test_this_host_is_told_what_others_promise_of_shared_storage(conn, monkeypatch, tmp_path):
    told = replace(HOST, stores={"x": facts.StorageSpace(10, 10, shared="nas")})
    monkeypatch.setattr(admission.facts, "host_of", lambda name, found: replace(told, name=name))
    monkeypatch.setattr(admission.inventory, "read", lambda conn, get, folder: folder)
    found = admission.host_facts(conn, config({"elsewhere": {"nas": 7}}))
    assert (found.name, found.stores["x"].elsewhere_bytes) == (conn.getHostname(), 7)


# -- what a guest wants -------------------------------------------------------------------


WHOLE = """<domain type='kvm'><name>web1</name><memory unit='MiB'>512</memory>
<maxMemory slots='2' unit='MiB'>1024</maxMemory><vcpu current='1'>3</vcpu>
<cpu mode='{mode}'><model>Nehalem</model></cpu>
<memoryBacking><hugepages><page size='2048' unit='KiB'/></hugepages></memoryBacking><devices>
<interface type='bridge'><source bridge='br0'/></interface>
<interface type='bridge'/><interface type='network'/>
<interface type='network'><source network='default'/></interface></devices></domain>"""


def test_what_a_definition_wants():
    found = admission.request_of(Domain.fromstring(WHOLE.format(mode="custom")))
    assert found == facts.PlacementRequest(
        "web1", 3, 512 * MIB, hypervisor="kvm", max_memory_kib=1024 * MIB, page_kib=2048,
        bridges=frozenset({"br0"}), networks=frozenset({"default"}), cpu_model="Nehalem",
    )  # fmt: skip
    assert (
        admission.request_of(Domain.fromstring(WHOLE.format(mode="host-model"))).cpu_model is None
    )


def test_the_bridges_of_vmware_are_port_groups_of_its_own():
    text = WHOLE.format(mode="custom").replace("type='kvm'", "type='vmware'")
    assert admission.request_of(Domain.fromstring(text)).bridges == frozenset()


def test_what_an_empty_definition_wants():
    found = admission.request_of(Domain.fromstring("<domain/>"))
    assert found == facts.PlacementRequest("", 1, 0, hypervisor="")


def test_what_its_disks_want(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path)
    works = [
        disk_build.DiskBuild(
            DiskSpec("a", size_bytes=5), True, "raw", str(tmp_path / "link" / "a")
        ),
        disk_build.DiskBuild(DiskSpec("b", size_bytes=7), True, pool="vms"),
    ]
    found = admission.request_of(Domain.fromstring("<domain/>"), works)
    assert found.disks == (facts.DiskFootprint(5, str(tmp_path / "a")),)
    assert found.pools == {"vms": 7}
