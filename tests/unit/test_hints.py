"""Where a guest was last seen: one host is asked first, and nothing is believed that it does not
say itself. What counts as a job is said in tests/counted.py."""

import os

import pytest

pytest.importorskip("salt")

from saltvirt import errors
from saltvirt.fleet.answer import silent
from saltvirt.operations import find, hints, lifecycle
from saltvirt.operations.lifecycle import Lifecycle
from saltvirt.operations.purge import Purge
from tests.clock import Clock
from tests.counted import Cloud

WEB1 = {"vcpus": 1, "memory_kib": 1 << 20, "state": "running"}
OFF = {**WEB1, "state": "shutdown"}
# what does no harm to another guest of the name: one host is asked
ONE = {"force_off": "shutdown", "pause": "paused", "shutdown": "shutdown", "reset": "running"}


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    monkeypatch.setattr(lifecycle, "time", Clock())


def cloud_with(tmp_path, hint="hv003", **guests):
    """A Cloud of twenty hosts. guests: host to the facts of its web1."""
    cloud = Cloud(tmp_path, 20, {host: {"web1": facts} for host, facts in guests.items()})
    if hint:
        hints.keep(cloud.opts, "web1", hint)
    return cloud


def asked(cloud):
    """All hosts that were asked anything."""
    return {host for _, hosts in cloud.published for host in hosts}


# -- the hint itself ----------------------------------------------------------------------


def test_what_was_kept_is_told_and_only_for_that_guest(tmp_path, monkeypatch):
    opts = {"cachedir": str(tmp_path)}
    assert hints.of(opts, "web1") is None
    hints.keep(opts, "web1", "hv1")
    hints.keep(opts, "web1", "hv2")
    assert (hints.of(opts, "web1"), hints.of(opts, "web2")) == ("hv2", None)
    monkeypatch.setattr(hints, "FILES", 1)
    hints.keep(opts, "web1", "hv1")
    hints.keep(opts, "web2", "hv2")
    assert (hints.of(opts, "web1"), hints.of(opts, "web2")) == (None, "hv2")
    assert {path.name[0] for path in (tmp_path / "virt/seen").iterdir()} != {"."}


def test_what_is_forgotten_is_that_guests_own_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(hints, "FILES", 1)
    opts = {"cachedir": str(tmp_path)}
    hints.keep(opts, "web1", "hv1")
    hints.forget(opts, "web2")
    assert hints.of(opts, "web1") == "hv1"
    hints.forget(opts, "web1")
    hints.forget(opts, "web1")
    assert list((tmp_path / "virt/seen").iterdir()) == []


def test_there_are_never_more_files_than_so_many(tmp_path, monkeypatch):
    monkeypatch.setattr(hints, "FILES", 7)
    opts = {"cachedir": str(tmp_path)}
    for number in range(50):
        hints.keep(opts, f"web{number}", "hv1")
    assert len(os.listdir(tmp_path / "virt/seen")) == 7


@pytest.mark.parametrize(
    "damaged",
    [b"", b"{", b"[1, 2]", b'["web1"]', b'["web1", 7]', b'{"web1": "hv1"}', b"\xff\xfe",
     b"[" * 4000, b'["web2", "hv1"]'],
)  # fmt: skip
def test_a_damaged_hint_is_none_and_is_replaced(tmp_path, damaged):
    opts = {"cachedir": str(tmp_path)}
    hints.keep(opts, "web1", "hv1")
    [path] = (tmp_path / "virt/seen").iterdir()
    path.write_bytes(damaged)
    assert hints.of(opts, "web1") is None
    hints.keep(opts, "web1", "hv2")
    assert hints.of(opts, "web1") == "hv2"


def test_where_nothing_can_be_written_nothing_is_kept(tmp_path):
    (tmp_path / "virt").write_text("in the way")
    opts = {"cachedir": str(tmp_path)}
    hints.keep(opts, "web1", "hv1")
    assert hints.of(opts, "web1") is None
    (tmp_path / "virt").unlink()
    folder = tmp_path / "virt/seen"
    hints.keep(opts, "web1", "hv1")
    [path] = folder.iterdir()
    path.unlink()
    path.mkdir()
    hints.keep(opts, "web1", "hv1")
    assert hints.of(opts, "web1") is None
    assert [*folder.iterdir()] == [path]


# -- what one host is asked ---------------------------------------------------------------


def test_all_about_a_running_guest_is_one_job_to_one_host(tmp_path):
    cloud = cloud_with(tmp_path, hv003=WEB1)
    host, found = find.info(cloud, "web1")
    assert (host, found["web1"]["state"]) == ("hv003", "running")
    assert cloud.published == [("virt.vm_info", ["hv003"])]


@pytest.mark.parametrize("verb", ONE)
def test_what_does_no_harm_asks_no_other_host(tmp_path, verb):
    cloud = cloud_with(tmp_path, hv003=WEB1)
    done = Lifecycle(cloud, "web1", verb).run()
    assert (done.more["host"], done.more["state"]) == ("hv003", ONE[verb])
    assert asked(cloud) == {"hv003"}
    assert sum(cloud.jobs.values()) == 3  # its state, the verb, and libvirt's word for it


@pytest.mark.parametrize("verb", ["start", "resume"])
def test_what_lets_it_write_to_its_disks_asks_all(tmp_path, verb):
    cloud = cloud_with(tmp_path, hv003={**WEB1, "state": "paused"} if verb == "resume" else OFF)
    assert Lifecycle(cloud, "web1", verb).run().more["state"] == "running"
    assert cloud.published[0] == ("virt.vm_state", cloud.names)


def test_a_purge_asks_all_and_refuses_two(tmp_path):
    cloud = cloud_with(tmp_path, hv003=WEB1, hv007=OFF)
    with pytest.raises(errors.OperationFailed, match=r"more than one host: hv003.*hv007"):
        Purge(cloud, "web1").run()
    assert cloud.guests["hv003"]
    assert cloud.guests["hv007"]


# -- a hint that is wrong -----------------------------------------------------------------


@pytest.mark.parametrize("verb", ONE)
@pytest.mark.parametrize("hint", [None, "hv003", "hv099", "../x"])
def test_a_wrong_hint_costs_one_question_and_is_put_right(tmp_path, verb, hint):
    cloud = cloud_with(tmp_path, hint, hv007=WEB1)
    done = Lifecycle(cloud, "web1", verb).run()
    assert (done.more["host"], done.more["state"]) == ("hv007", ONE[verb])
    more = [("virt.vm_state", ["hv003"])] if hint == "hv003" else []
    assert cloud.published[: len(more) + 1] == [*more, ("virt.vm_state", cloud.names)]
    assert hints.of(cloud.opts, "web1") == "hv007"
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
@pytest.mark.parametrize("connected", [True, False])
def test_a_silent_host_is_never_taken_for_one_without_the_guest(tmp_path, elsewhere, connected):
    cloud = cloud_with(tmp_path, hv003=WEB1, **({"hv007": WEB1} if elsewhere else {}))
    hung = silent("hv003", 15, busy=True)
    if connected:
        cloud.virt_vm_state_, cloud.virt_vm_state = (
            cloud.virt_vm_state,
            lambda host, vm_=None: hung if host == "hv003" else cloud.virt_vm_state_(host, vm_),
        )
    else:
        cloud.dead.add("hv003")
    one = Lifecycle(cloud, "web1", "pause")
    if elsewhere:
        assert one.run().more["host"] == "hv007"
        return
    with pytest.raises(errors.NotFound, match=r"that answered \(hv003: (no answer|down)"):
        one.run()
    assert cloud.guests["hv003"]["web1"]["state"] == "running"


def test_a_host_that_is_no_hypervisor_any_more_or_below_a_syndic_is_no_hint(tmp_path):
    cloud = cloud_with(tmp_path, hv003=WEB1)
    assert find.hinted(cloud, "web1") == "hv003"
    cloud.opts["order_masters"] = True
    assert find.hinted(cloud, "web1") is None
    cloud.opts["order_masters"] = False
    cloud.names.remove("hv003")
    assert find.hinted(cloud, "web1") is None


@pytest.mark.parametrize(
    "said", [{}, None, {"web2": "running"}, {"web1": "shutdown"}, {"web1": "x"}]
)
def test_what_a_host_says_of_others_is_no_answer(tmp_path, said):
    cloud = cloud_with(tmp_path, hv003=WEB1)
    cloud.virt_vm_state = lambda _host, vm_=None: said
    assert find.last_seen(cloud, "web1") is None
