from dataclasses import replace

from saltvirt.placement import capacity, policy
from saltvirt.placement.facts import Guest, Host, Request
from tests.unit.placement import NOTHING_BESIDE

GIB_KIB = 1024**2
PLAIN = policy.from_config(NOTHING_BESIDE)
ASK = Request("x", vcpus=1, memory_kib=GIB_KIB)


def host(name, memory_gib=8, guests=()):
    return Host(name, cpus=4, memory_kib=memory_gib * GIB_KIB, guests=tuple(guests), types=("kvm",))


def test_the_scarcest_thing_limits():
    found = capacity.capacity([host("a"), host("b", 64)], ASK, PLAIN)
    assert found.fits == {"a": 8, "b": 16}
    assert found.limits == {"a": "memory", "b": "vcpu"}
    assert found.total == 24


def test_with_one_host_lost_its_guests_take_room_on_the_others():
    busy = host("a", guests=[Guest("g", state="running", vcpus=1, memory_kib=6 * GIB_KIB)])
    found = capacity.capacity([busy, host("b")], ASK, PLAIN)
    assert found.fits == {"a": 2, "b": 8}
    assert found.lost == {"a": (2, []), "b": (2, [])}
    assert found.total_with_one_lost == 2


def test_a_guest_without_a_place_makes_the_loss_of_its_host_count_as_nothing_left():
    big = host("a", 16, [Guest("g", state="running", vcpus=1, memory_kib=12 * GIB_KIB)])
    found = capacity.capacity([big, host("b")], ASK, PLAIN)
    assert found.lost["a"] == (8, ["g"])
    assert found.total_with_one_lost == 0


def test_a_host_that_falls_says_why_and_separate_guests_fit_once():
    down = replace(host("a"), maintenance="disks")
    one = replace(ASK, groups=("web",), group_policy="separate")
    found = capacity.capacity([down, host("b")], one, PLAIN)
    assert found.fits == {"a": 0, "b": 1}
    assert found.limits == {"a": "maintenance", "b": "separate"}
