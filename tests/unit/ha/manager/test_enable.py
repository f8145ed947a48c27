"""The verbs of high availability, with hosts of plain data."""

import json
import time
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("salt")

from saltvirt import errors
from saltvirt.fleet.keys import KeyStore
from saltvirt.ha.agent import settings as agent_settings
from saltvirt.ha.fencing import agents as fences
from saltvirt.ha.manager import admin_request, arm, config, files, release, status_file
from saltvirt.ha.manager import enable as module
from saltvirt.ha.manager.arm import Arm, ConfirmOff
from saltvirt.ha.manager.definitions import DefinitionStore
from saltvirt.ha.manager.desired_state import DesiredState, DesiredStateStore
from saltvirt.ha.manager.enable import Disable, Enable, HaOptions, Ignore
from saltvirt.ha.manager.fencing import FenceHost
from saltvirt.ha.manager.move import MoveGuest
from saltvirt.ha.manager.rule import ConfigureRule
from saltvirt.ha.manager.setup import Setup
from saltvirt.ha.manager.status import HaStatus, Simulate
from saltvirt.ha.model.registry import (
    CommittedConfig,
    GuestLocation,
    HaGuestRecord,
    HostRecord,
    Registry,
)
from saltvirt.ha.model.view import (
    GuestConfig,
    GuestRule,
    HostBinding,
    RelocationRequest,
    SavedMasterState,
)
from saltvirt.operations.core import operation
from saltvirt.operations.create.identity import CloneGuest, RenameGuest
from saltvirt.operations.guest.lifecycle import Lifecycle
from saltvirt.operations.guest.purge import Purge
from saltvirt.operations.guest.snapshots import RevertToSnapshot
from saltvirt.operations.journal import lock
from saltvirt.operations.move.migrate import Migrate
from saltvirt.placement import policy
from tests.clock import Clock
from tests.unit.ha.fencing.test_agents import OFF, ON, Bmc
from tests.unit.ha.manager import HaCloud, guest


@pytest.fixture
def cloud(tmp_path):
    return HaCloud(tmp_path, {"hv000": {"web1": guest(), "web2": guest(state="shutdown")},
                              "hv001": {"db1": guest(autostart=True)}})  # fmt: skip


def wishes(cloud):
    return DesiredStateStore(cloud.opts).read()


def enable(cloud, name, **asked):
    return Enable(cloud, name, HaOptions(**asked))


def write_engine(cloud, registry, hosts=None, losses=None, tied=None, **more):
    files.write(status_file.state_path(cloud.opts), SavedMasterState(1, registry))
    files.write(
        status_file.simulation_path(cloud.opts),
        status_file.SimulationReport(losses or {}, tied or {}),
    )
    leads = {"leading": True, "leader": "salt", "settled": True, **more}
    told = status_file.EngineReport(
        time.time(), "salt", heard=3, needed=2, hosts=hosts or {}, **leads
    )
    files.write(status_file.report_path(cloud.opts), told)


@pytest.fixture
def engine(cloud):
    """An engine runs: what it has written is believed."""
    with files.locked(status_file.lock_path(cloud.opts), "the engine"):
        yield


# -- ha_enable -------------------------------------------------------------------------------------


def test_a_guest_is_given_with_what_was_asked(cloud):
    one = enable(cloud, "web1", priority="3", restarts=2, failback=False, agent_silent_s="90")
    assert one.check().answer()["web1"]["result"] is None
    assert wishes(cloud).guests == {}
    answer = operation.perform(one)
    assert answer["web1"]["result"] is True
    assert "the engine virt_ha is not running" in answer["web1"]["comment"]
    kept = wishes(cloud).sized_guests["web1"]
    assert (kept.host, kept.desired_state, kept.priority, kept.restarts, kept.failback) == (
        "hv000", "started", 3, 2, False)  # fmt: skip
    assert (kept.agent_silent_s, kept.size.memory_kib) == (90, 1 << 20)
    [(tag, data)] = cloud.told
    assert (tag, data["verb"], data["about"]) == ("salt/virt/ha/request", "ha_enable", "web1")
    assert json.dumps(answer)


@pytest.mark.parametrize("more", [{}, {"interrupted": True}])
def test_a_guest_whose_creation_has_not_ended_is_not_given(cloud, more):
    """An agent would start it."""
    cloud.guests["hv000"]["web1"] = guest(state="shutdown", creating=True, **more)
    words = "cannot give web1 to high availability: its creation on hv000 .*name=web1"
    with pytest.raises(errors.Incomplete, match=words):
        enable(cloud, "web1").run()
    [why] = enable(cloud, "web1").check().reasons
    assert "see salt-run virt.repair name=web1" in why
    assert wishes(cloud).guests == {} and cloud.auto == {}


@pytest.mark.parametrize("xml", ["", "<domain", None])
def test_a_host_that_tells_no_definition_is_named(cloud, xml):
    cloud.virt_get_xml = lambda host, vm_: xml
    wrong = (errors.BadAnswer, errors.ConnectionFailed)
    with pytest.raises(wrong, match=r"hv000: (the definition of web1|its answer)"):
        enable(cloud, "web1").run()
    assert wishes(cloud).guests == {}


@pytest.mark.parametrize(
    "asked, kept", [("live", True), (True, True), ("restart", "restart"), (False, False)]
)
def test_how_it_goes_back_is_kept(cloud, asked, kept):
    enable(cloud, "web1", failback=False).run()
    enable(cloud, "web1", failback=asked).run()
    assert wishes(cloud).guests["web1"].failback == kept
    assert enable(cloud, "web1", failback=asked).check().nothing


def test_one_that_is_off_is_to_stay_so_unless_it_is_said(cloud):
    enable(cloud, "web2").run()
    assert wishes(cloud).guests["web2"].desired_state == "stopped"
    enable(cloud, "web2", state="started").run()
    assert wishes(cloud).guests["web2"].desired_state == "started"


def test_one_whose_kernel_panicked_and_is_kept_is_to_run(cloud):
    """Found in a lab: it was to be stopped, for it panicked before it was given."""
    cloud.guests["hv000"]["web1"] = guest(state="crashed")
    enable(cloud, "web1").run()
    assert wishes(cloud).guests["web1"].desired_state == "started"


def test_its_start_with_its_host_is_the_managers_and_given_back(cloud):
    changes = enable(cloud, "db1").run().changes
    assert changes["autostart"] == {"old": True, "new": False}
    assert cloud.auto == {("hv001", "db1"): "off"}
    found = Disable(cloud, "db1").run()
    assert found.complete and cloud.auto == {("hv001", "db1"): "on"}
    assert wishes(cloud).guests == {}


def test_its_start_is_given_back_when_its_hosts_agent_has_let_it_go(cloud, monkeypatch):
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    enable(cloud, "db1").run()
    cloud.kept_until = ["db1 is kept"] * 3
    assert Disable(cloud, "db1").run().complete and clock.now == 3
    assert cloud.auto == {("hv001", "db1"): "on"}
    enable(cloud, "db1").run()
    cloud.kept_until = ["db1 is kept"] * 99
    found = Disable(cloud, "db1").run()
    assert not found.complete and cloud.auto == {("hv001", "db1"): "off"}
    assert "hv001: db1 is kept; run this later: salt hv001 virt.set_autostart db1" in found.comment


@pytest.fixture
def keys(cloud, monkeypatch):
    """The bindings of keys, with an accepted one of web1."""
    monkeypatch.setattr(release, "WAIT_S", 1)
    accepted = Path(cloud.opts["pki_dir"], "minions", "web1")
    accepted.parent.mkdir(parents=True)
    accepted.write_text("KEY")
    return KeyStore(cloud.opts)


@pytest.mark.usefixtures("engine")
def test_its_key_is_bound_to_the_host_on_which_it_was_started(cloud, keys):
    """After a failover virt.purge left it: it was accepted for a guest of the host that died."""
    for host, bound in (("hv000", "hv000"), ("hv002", "hv002"), ("", "hv001")):
        keys._record("web1", "hv001", "KEY")
        enable(cloud, "web1").run()
        write_engine(cloud, Registry(guests={"web1": HaGuestRecord(state="placed", host=host)}))
        Disable(cloud, "web1").run()
        assert keys.host_of("web1") == bound
        write_engine(cloud, Registry())  # it has let go of it


@pytest.mark.usefixtures("engine")
def test_the_key_of_one_that_is_ignored_follows_whoever_moves_it(cloud, keys):
    """``ha_ignore``, ``virt.migrate``, ``ha_disable``: it was bound to the host that it left."""
    keys._record("web1", "hv000", "KEY")
    enable(cloud, "web1").run()
    write_engine(cloud, Registry(guests={"web1": HaGuestRecord(state="placed", host="hv001")}))
    Ignore(cloud, "web1").run()
    assert keys.host_of("web1") == "hv001"  # there it was started after a failover
    write_engine(cloud, Registry(guests={"web1": HaGuestRecord(state="ignored", host="hv001")}))
    keys.rebind("web1", "hv001", "hv002")
    Disable(cloud, "web1").run()
    assert keys.host_of("web1") == "hv002"


def test_what_cannot_be_written_leaves_its_start_as_it_was(cloud, monkeypatch):
    monkeypatch.setattr(DesiredStateStore, "change", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        enable(cloud, "db1").run()
    assert cloud.auto == {("hv001", "db1"): "on"}


def test_it_is_named_when_its_start_is_not_given_back(cloud):
    enable(cloud, "db1").run()
    cloud.dead = {"hv001"}
    answer = operation.perform(Disable(cloud, "db1"))
    assert answer["retcode"] == 1
    assert "its autostart was not restored" in answer["db1"]["comment"]
    assert wishes(cloud).guests == {}


def test_all_that_ties_a_guest_to_its_host_is_said_at_once(cloud):
    cloud.disks["web1"] = "/srv/web1.qcow2"
    cloud.backing["web1"] = "/srv/_base/debian"
    found = enable(cloud, "web1", priority="many", group="none").check()
    text = "; ".join(found.reasons)
    assert "priority must be a whole number" in text
    assert "does not exist" in text
    with pytest.raises(errors.InvalidInput, match=r"disk vda is /srv/web1\.qcow2 on hv000 only"):
        enable(cloud, "web1").run()
    found = enable(cloud, "web1").check()
    assert len(found.reasons) == 2 and found.answer()["retcode"] == 1
    assert cloud.auto == {}


def test_a_guest_of_a_host_that_takes_no_part_is_refused(cloud):
    del cloud.opts["virt"]["ha"]["members"]["hv000"]
    cloud.opts["virt"]["ha"]["members"]["hv9"] = "10.0.0.9"
    with pytest.raises(errors.NotFound, match="not a member of virt:ha; members: hv001, hv002"):
        enable(cloud, "web1").run()


def test_a_cloud_that_configures_nothing_is_told_what_to_do(cloud):
    del cloud.opts["virt"]["ha"]
    with pytest.raises(errors.InvalidInput, match="virt:ha:members"):
        enable(cloud, "web1").run()
    answer = operation.perform(HaStatus(cloud))
    assert answer["ha"]["result"] and "retcode" not in answer
    assert cloud.published == []


def test_the_same_again_is_nothing(cloud):
    enable(cloud, "web1").run()
    assert enable(cloud, "web1").check().nothing
    assert enable(cloud, "web1").run().changes == {}
    assert len(cloud.told) == 1


@pytest.mark.parametrize("asked", (
    {"priority": -1}, {"priority": True}, {"priority": [1]}, {"restarts": 10**9},
    {"failback": "yes"}, {"failback": 1}, {"failback": []},
    {"state": "ignored"}, {"state": 7}, {"group": {}},
    {"agent_silent_s": 29}, {"agent_silent_s": True}, {"agent_silent_s": "long"},
    {"agent_silent_s": "9" * 5000},
))  # fmt: skip
def test_what_is_no_wish_is_refused(cloud, asked):
    with pytest.raises((errors.InvalidInput, errors.NotFound)):
        enable(cloud, "web1", **asked).run()
    assert enable(cloud, "web1", **asked).check().reasons
    assert wishes(cloud).guests == {}


def test_another_operation_on_the_guest_is_waited_for(cloud):
    with lock.guest(cloud.opts, "web1", "virt.migrate"):
        with pytest.raises(errors.OperationFailed, match=r"virt\.migrate"):
            enable(cloud, "web1").run()
        assert "virt.migrate" in enable(cloud, "web1").check().comment


def test_the_reserve_is_kept(cloud):
    cloud.opts["virt"]["ha"]["reserve"] = 1
    for host in cloud.names:
        cloud.guests[host][f"big{host[-1]}"] = guest(memory_kib=300 << 20)
    with pytest.raises(errors.OperationFailed, match="would violate virt:ha:reserve: if hv000"):
        enable(cloud, "big0").run()


@pytest.mark.parametrize("state", ["started", "stopped"])
def test_a_guest_that_is_ignored_is_taken_back_only_where_it_was_left(cloud, state):
    """It was moved by hand: the engine would start it where it left it, beside the other one."""
    enable(cloud, "web1").run()
    Ignore(cloud, "web1").run()
    record = HaGuestRecord("ignored", host="hv001", locations=(GuestLocation("hv001", 1),))
    write_engine(cloud, Registry(1, 1, guests={"web1": record}))
    again = Enable(cloud, "web1", HaOptions(state=state))
    assert "run virt.ha_disable and virt.ha_enable" in again.check().reasons[0]
    with pytest.raises(errors.OperationFailed, match="previous host hv001"):
        again.run()
    assert wishes(cloud).guests["web1"].desired_state == "ignored"
    record = replace(record, host="hv000", locations=(GuestLocation("hv000", 1),))
    write_engine(cloud, Registry(1, 1, guests={"web1": record}))
    Enable(cloud, "web1", HaOptions(state=state)).run()
    assert wishes(cloud).guests["web1"].desired_state == state


@pytest.mark.parametrize(("heard_s", "phase"), [(None, ""), (60, ""), (1, "over"), (1, "working")])
def test_a_guest_is_taken_back_once_its_host_says_that_it_works(cloud, engine, heard_s, phase):
    """Masters would take the end of its last boot for the proof that the guest runs nowhere."""
    enable(cloud, "web1").run()
    Ignore(cloud, "web1").run()
    record = HaGuestRecord("ignored", host="hv000", locations=(GuestLocation("hv000", 1),))
    hosts = {"hv000": status_file.HostReport(1, heard_s, phase=phase)}
    write_engine(cloud, Registry(1, 1, guests={"web1": record}), hosts)
    if phase == "working":
        Ignore(cloud, "web1", off=True).run()
        assert wishes(cloud).guests["web1"].desired_state == "started"
        return
    with pytest.raises(
        errors.OperationFailed, match=r"hv000, the host of web1, (does not|is shutting)"
    ):
        Ignore(cloud, "web1", off=True).run()
    assert wishes(cloud).guests["web1"].desired_state == "ignored"


@pytest.mark.parametrize("uuid", ["u1", "u2"])
def test_another_guest_of_its_name_is_not_taken_for_one_that_was_ignored(cloud, monkeypatch, uuid):
    """``ha_ignore``, ``virt.purge``, ``virt.clone`` under its name, ``ha_ignore off=True``: it was
    started elsewhere by the definition of the other one."""
    xml = "<domain><name>web1</name><uuid>{}</uuid></domain>"
    enable(cloud, "web1").run()
    DefinitionStore(cloud.opts).put(
        "hv000", {"name": "web1", "digest": "", "xml": xml.format("u1")}
    )
    Ignore(cloud, "web1").run()
    monkeypatch.setattr(cloud, "virt_get_xml", lambda _host, vm_: xml.format(uuid))
    again = Ignore(cloud, "web1", off=True)
    if uuid == "u1":
        assert again.run().complete and wishes(cloud).guests["web1"].desired_state != "ignored"
        return
    assert "web1 on hv000 is not the guest" in again.check().reasons[0]
    with pytest.raises(errors.OperationFailed, match="which had the UUID u1: run"):
        again.run()


class Engine:
    """What the engine has written each time that somebody has waited for it."""

    def __init__(self, cloud, *steps):
        self.cloud, self.steps = cloud, [*steps]

    def sleep(self, _seconds):
        if self.steps:
            registry, settled = self.steps.pop(0)
            write_engine(self.cloud, registry, settled=settled)


PLACED = Registry(1, 1, guests={"web1": HaGuestRecord("placed", host="hv000")})
LEFT_ALONE = Registry(1, 2, guests={"web1": HaGuestRecord("ignored", host="hv000")})
GONE = Registry(1, 2)


@pytest.mark.parametrize("verb, after", [(Disable, GONE), (Ignore, LEFT_ALONE)])
def test_a_guest_is_left_alone_when_the_hosts_have_heard_of_it(
    cloud, engine, monkeypatch, verb, after
):
    """What is moved before is killed where it comes to: its agent goes by the registry."""
    enable(cloud, "web1").run()
    write_engine(cloud, PLACED)
    waits = Engine(cloud, (PLACED, True), (after, False), (after, True))
    monkeypatch.setattr(module.time, "sleep", waits.sleep)
    assert verb(cloud, "web1").run().complete
    assert waits.steps == []


@pytest.mark.parametrize("verb", [Disable, Ignore])
def test_a_guest_that_is_not_left_alone_yet_is_the_exit_code(cloud, engine, monkeypatch, verb):
    enable(cloud, "web1").run()
    write_engine(cloud, PLACED)
    monkeypatch.setattr(module.time, "sleep", lambda _seconds: None)
    answer = operation.perform(verb(cloud, "web1"))
    assert answer["retcode"] == 1
    assert "the engine has not decided it yet" in answer["web1"]["comment"]
    assert "do not move or start the guest before" in answer["web1"]["comment"]


def test_a_guest_that_is_taken_back_without_an_engine_is_not_left_alone(cloud):
    enable(cloud, "web1").run()
    write_engine(cloud, PLACED)
    found = Disable(cloud, "web1").run()
    assert not found.complete and "the engine virt_ha is not running" in found.comment
    assert wishes(cloud).guests == {}
    again = enable(cloud, "web1")
    assert "but the agents have not confirmed that yet: " in again.check().reasons[0]
    with pytest.raises(errors.OperationFailed, match="the agents have not confirmed that yet"):
        again.run()
    assert wishes(cloud).guests == {}


def test_a_guest_that_was_just_taken_back_is_given_again_once_it_is_let_go(
    cloud, engine, monkeypatch
):
    DesiredStateStore(cloud.opts).change("x", lambda old: old)
    write_engine(cloud, PLACED)
    waits = Engine(cloud, (PLACED, True), (GONE, True))
    monkeypatch.setattr(module.time, "sleep", waits.sleep)
    enable(cloud, "web1").run()
    assert set(wishes(cloud).guests) == {"web1"}


# -- ha_ignore -------------------------------------------------------------------------------------


def test_a_guest_is_ignored_and_then_what_it_is(cloud):
    enable(cloud, "web1").run()
    assert Ignore(cloud, "web1", off=True).check().nothing
    assert Ignore(cloud, "web1").check().changes == {"ha": {"old": "started", "new": "ignored"}}
    assert wishes(cloud).guests["web1"].desired_state == "started"
    Ignore(cloud, "web1").run()
    assert wishes(cloud).guests["web1"].desired_state == "ignored"
    assert Ignore(cloud, "web1").check().nothing
    before = list(cloud.told)
    assert Ignore(cloud, "web1").run().changes == {} and cloud.told == before
    cloud.guests["hv000"]["web1"] = guest(state="shutdown")
    Ignore(cloud, "web1", off=True).run()
    assert wishes(cloud).guests["web1"].desired_state == "stopped"


def test_one_that_was_moved_meanwhile_is_to_be_given_anew(cloud):
    """The engine would start it where it left it, and it runs elsewhere."""
    enable(cloud, "web1").run()
    Ignore(cloud, "web1").run()
    record = HaGuestRecord("ignored", host="hv000", locations=(GuestLocation("hv000", 1),))
    write_engine(cloud, Registry(1, 1, guests={"web1": record}))
    cloud.guests["hv001"]["web1"] = cloud.guests["hv000"].pop("web1")
    with pytest.raises(errors.OperationFailed, match=r"web1 is on hv001 now, .* host hv000 "):
        Ignore(cloud, "web1", off=True).run()


@pytest.mark.parametrize("give_back", [
    lambda cloud: Ignore(cloud, "web1", off=True),
    lambda cloud: enable(cloud, "web1", state="started"),
])  # fmt: skip
def test_one_that_a_person_started_elsewhere_is_looked_for_there(cloud, give_back):
    """It was stopped, so no place of it is left: the engine would start it wherever there is room,
    beside the one that runs."""
    enable(cloud, "web1", state="stopped").run()
    Ignore(cloud, "web1").run()
    write_engine(cloud, Registry(1, 1, guests={"web1": HaGuestRecord("ignored", last="hv000")}))
    cloud.guests["hv001"]["web1"] = cloud.guests["hv000"].pop("web1")
    give_back(cloud).run()
    found = wishes(cloud).guests["web1"]
    assert (found.desired_state, found.host) == ("started", "hv001")


def test_one_of_which_the_engine_does_not_know_that_it_was_ignored_is_not_taken_back(cloud):
    """It would find it wanted as it was before, and start it beside the one that a person has."""
    enable(cloud, "web1", state="stopped").run()
    Ignore(cloud, "web1").run()
    write_engine(cloud, Registry(1, 1, guests={"web1": HaGuestRecord("stopped", last="hv000")}))
    for one in (Ignore(cloud, "web1", off=True), enable(cloud, "web1", state="started")):
        with pytest.raises(errors.OperationFailed, match="does not know yet that web1 is ignored"):
            one.run()
    assert wishes(cloud).guests["web1"].desired_state == "ignored"


def test_one_that_was_moved_to_a_host_that_takes_no_part_is_not_taken_back(cloud):
    enable(cloud, "web1", state="stopped").run()
    Ignore(cloud, "web1").run()
    del cloud.opts["virt"]["ha"]["members"]["hv001"]
    cloud.guests["hv001"]["web1"] = cloud.guests["hv000"].pop("web1")
    with pytest.raises(errors.NotFound, match="'hv001' is not a member"):
        Ignore(cloud, "web1", off=True).run()


def test_one_that_another_master_took_back_meanwhile_is_not_given_again():
    with pytest.raises(errors.NotFound, match="web1 is no longer managed by high availability"):
        module._with_desired(DesiredState(), GuestConfig("web1", desired_state="ignored"))


def test_one_that_was_never_given_is_named(cloud):
    for one in (Ignore(cloud, "web1"), Disable(cloud, "web1")):
        assert one.check().reasons == (
            "web1 is not managed by high availability: run salt-run virt.ha_enable web1",
        )
        with pytest.raises(errors.NotFound):
            one.run()


# -- other verbs -----------------------------------------------------------------------------------

OTHERS = {
    "migrate": lambda cloud: Migrate(cloud, policy.PlacementPolicy(), "web1", "hv001", Silent()),
    "start": lambda cloud: Lifecycle(cloud, "web1", "start"),
    "shutdown": lambda cloud: Lifecycle(cloud, "web1", "shutdown"),
    "force_off": lambda cloud: Lifecycle(cloud, "web1", "force_off"),
    "purge": lambda cloud: Purge(cloud, "web1"),
    "rename": lambda cloud: RenameGuest(cloud, Silent(), "web1", "web9"),
    "clone": lambda cloud: CloneGuest(cloud, Silent(), "web1", "web9"),
    "revert": lambda cloud: RevertToSnapshot(cloud, "web1", "before"),
}  # fmt: skip


class Silent:
    def __getattr__(self, _name):
        return lambda *_a, **_k: None


@pytest.mark.parametrize("verb", OTHERS)
def test_no_other_verb_moves_or_stops_or_removes_a_guest_that_is_kept(cloud, verb):
    """The engine would undo it, or start it a second time."""
    enable(cloud, "web1").run()
    before = list(cloud.published)
    why = "web1 is managed by high availability: use salt-run virt.ha_move web1 HOST"
    with pytest.raises(errors.OperationFailed, match=why):
        OTHERS[verb](cloud).run()
    assert cloud.published == before
    assert any(why in one for one in OTHERS[verb](cloud).check().reasons)


@pytest.mark.parametrize("how", (Ignore, Disable))
def test_one_that_is_ignored_or_taken_back_is_anybodys(cloud, how):
    enable(cloud, "web1").run()
    how(cloud, "web1").run()
    assert Lifecycle(cloud, "web1", "force_off").run().changes
    assert not list((Path(cloud.opts["cachedir"]) / "virt/keepers").iterdir())


# -- ha_move ---------------------------------------------------------------------------------------


def placed(cloud, host="hv000", armed=True, leading=True, **more):
    hosts = {name: HostRecord("up", boot=1) for name in cloud.names}
    record = HaGuestRecord("placed", host=host, locations=(GuestLocation(host, 1),), **more)
    known = Registry(1, 3, armed=armed, hosts=hosts, guests={"web1": record})
    write_engine(cloud, known, leading=leading)


def test_the_engine_moves_it_and_the_wish_has_an_end(cloud, engine):
    enable(cloud, "web1").run()
    placed(cloud)
    assert MoveGuest(cloud, "web1", "hv001").check().changes
    asked = []

    def wait(_s):
        asked.append(wishes(cloud).relocations["web1"])
        placed(cloud, "hv001", last_request=asked[-1].number)

    found = MoveGuest(cloud, "web1", "hv001", wait=wait).run()
    assert found.comment == "web1 was moved from hv000 to hv001"
    assert asked == [RelocationRequest(1, "migrate", "hv001")] and wishes(cloud).relocations == {}
    assert MoveGuest(cloud, "web1", "hv001").check().nothing
    assert MoveGuest(cloud, "web1", "hv001", wait=wait).run().changes == {} and len(asked) == 1
    placed(cloud)
    MoveGuest(cloud, "web1", "hv001", live=False, wait=wait).run()
    assert asked[-1] == RelocationRequest(2, "relocate", "hv001")


def test_a_move_that_fails_says_where_it_is(cloud, engine):
    enable(cloud, "web1").run()
    placed(cloud)

    def fails(_s):
        placed(cloud, "hv000", last_request=1, reason="its migration failed")

    with pytest.raises(errors.OperationFailed, match="not on hv001 but on hv000: its migration"):
        MoveGuest(cloud, "web1", "hv001", wait=fails).run()
    assert wishes(cloud).relocations == {}


def test_a_guest_that_is_taken_back_while_it_moves_is_waited_for_no_longer(cloud, engine):
    enable(cloud, "web1").run()
    placed(cloud)

    def taken_back(_s):
        write_engine(cloud, Registry(1, 4))

    why = "web1 is not on hv001 but on hv000: the guest is no longer managed by high availability"
    with pytest.raises(errors.OperationFailed, match=why):
        MoveGuest(cloud, "web1", "hv001", wait=taken_back).run()
    assert wishes(cloud).relocations == {}


def test_how_it_is_to_be_moved_is_yes_or_no(cloud, engine):
    enable(cloud, "web1").run()
    placed(cloud)
    with pytest.raises(errors.InvalidInput, match="live must be True or False, not 'no'"):
        MoveGuest(cloud, "web1", "hv001", live="no").run()
    assert wishes(cloud).relocations == {}


def test_what_cannot_be_moved_now_is_said(cloud, engine):
    enable(cloud, "web2").run()
    write_engine(cloud, Registry(1, 3, hosts={"hv001": HostRecord("suspected", "silent")}))
    reasons = MoveGuest(cloud, "web2", "hv001").check().reasons
    assert [one.split(":")[0] for one in reasons] == [
        "web2 is new or is being moved", "web2 is stopped, so it cannot be moved",
        "hv001 is suspected",
    ]  # fmt: skip
    for name, host in (("web1", "hv001"), ("web2", "hv9")):
        with pytest.raises(errors.NotFound):
            MoveGuest(cloud, name, host).run()


@pytest.mark.parametrize("live", [True, False])
def test_while_all_is_disarmed_nothing_moves(cloud, engine, live):
    """And nobody waits for it."""
    enable(cloud, "web1").run()
    placed(cloud, armed=False)
    why = "high availability is disarmed: run salt-run virt.ha_arm"
    assert MoveGuest(cloud, "web1", "hv001", live).check().reasons == (why,)
    with pytest.raises(errors.OperationFailed, match=why):
        MoveGuest(cloud, "web1", "hv001", live).run()
    assert wishes(cloud).relocations == {}


def test_what_a_master_that_does_not_lead_knows_of_it_may_be_old(cloud, engine):
    enable(cloud, "web1").run()
    placed(cloud, armed=False, leading=False)
    assert MoveGuest(cloud, "web1", "hv001").check().changes


def test_without_the_engine_nothing_moves(cloud):
    enable(cloud, "web1").run()
    with pytest.raises(errors.OperationFailed, match="is not running"):
        MoveGuest(cloud, "web1", "hv001").run()


# -- ha_setup --------------------------------------------------------------------------------------


def test_each_host_is_told_what_all_must_have_alike(cloud):
    told = {}

    def settings(host, settings, test):
        told[host] = settings
        return {"changes": {"/etc/salt-virt/ha.json": "new"}, "comment": "written"}

    cloud.virt_ha_settings = settings
    cloud.virt_ha_install = lambda host, test: {"changes": {}, "comment": ""}
    answer = operation.perform(Setup(cloud))
    said = "written; its firewall is not changed: open TCP 16516"
    assert all(answer[name]["comment"].startswith(said) for name in cloud.names)
    assert told["hv000"]["members"] == {
        "hv000": "10.0.0.1:16516", "hv001": "10.0.0.2:16516", "hv002": "10.0.0.3:16516",
    }  # fmt: skip
    for host, one in told.items():
        assert agent_settings.parse(one, host).host == host
    assert "fence_fake" not in json.dumps(told)
    assert operation.perform(Setup(cloud, "hv001"), test=True)["hv001"]["result"] is None


def test_a_host_that_cannot_be_set_up_stops_no_other(cloud):
    cloud.virt_ha_install = lambda host, test: {"changes": {}, "comment": "as it is"}
    cloud.virt_ha_settings = lambda host, settings, test: 7 if host == "hv001" else {"changes": {}}
    cloud.dead = {"hv000"}
    answer = operation.perform(Setup(cloud))
    assert [answer[name]["result"] for name in cloud.names] == [False, False, True]
    assert answer["retcode"] == 1


def test_settings_that_the_engine_does_not_go_by_are_told_to_nobody(cloud, engine):
    """Agents fed their watchdogs for longer than the engine, with the old time, waited."""
    cloud.virt_ha_install = cloud.virt_ha_settings = lambda *_args, **_more: 1 / 0
    write_engine(cloud, Registry(1, 1), settings="of before")
    assert "restart salt-master" in Setup(cloud).check().answer()["ha"]["comment"]
    with pytest.raises(errors.OperationFailed, match=r"virt:ha was changed, .* salt-master"):
        Setup(cloud).run()


def test_a_guest_on_a_host_that_takes_no_part_is_named(cloud, engine):
    """The host was taken out of virt:ha:members while the guest was there: nobody watches it."""
    enable(cloud, "web1").run()
    record = HaGuestRecord(
        "placed", host="hv9", boot=1, run=True, locations=(GuestLocation("hv9", 1),)
    )
    hosts = {name: HostRecord("up", boot=1) for name in cloud.names}
    write_engine(cloud, Registry(1, 3, hosts=hosts, guests={"web1": record}))
    found = HaStatus(cloud).run()
    assert not found.complete
    assert "web1 may run on hv9, which is not a member of virt:ha" in found.comment


def test_of_several_masters_a_move_that_ended_is_forgotten_by_all(cloud, engine, monkeypatch):
    """Else the guest would be moved hours later, when there is room."""
    monkeypatch.setattr(admin_request, "WAIT_S", 0.3)
    enable(cloud, "web1").run()
    cloud.opts["virt"]["ha"].update(name="salt", masters=["salt", "salt2"])
    record = HaGuestRecord("placed", host="hv000", boot=1, run=True)
    up = {name: HostRecord("up", boot=1) for name in cloud.names}
    write_engine(cloud, Registry(1, 3, hosts=up, guests={"web1": record}))
    store, agreed = DesiredStateStore(cloud.opts), []

    def agree(_seconds=0):
        agreed.append(store.read().shared_config.text)
        store.learn(CommittedConfig(1, 3 + len(agreed), agreed[-1]), Path("/nowhere"))
        write_engine(
            cloud, Registry(1, 3, hosts=up, guests={"web1": replace(record, last_request=1)})
        )

    move = MoveGuest(cloud, "web1", "hv001", wait=agree)
    with pytest.raises(errors.OperationFailed, match="web1 is not on hv001 but on hv000"):
        move.run()
    assert store.read().relocations == {} and store.read().offers != ()


def test_members_change_only_while_disarmed(cloud, engine):
    digest = config.of_master(cloud.opts).digest
    write_engine(cloud, Registry(1, 1, members=("hv000", "hv001")), settings=digest)
    with pytest.raises(errors.OperationFailed, match="members cannot change from hv000, hv001"):
        Setup(cloud).run()
    cloud.virt_ha_install = lambda host, test: {"changes": {}, "comment": ""}
    cloud.virt_ha_settings = lambda host, settings, test: {"changes": {}, "comment": ""}
    DesiredStateStore(cloud.opts).change("x", lambda old: replace(old, armed=False))
    assert all(one.complete for one in Setup(cloud).run().parts)


# -- ha_rule ---------------------------------------------------------------------------------------


def rule(cloud, name, remove=False, **given):
    return ConfigureRule(cloud, name, given, remove)


def test_rules_are_kept_and_joined(cloud):
    for name in ("web1", "web2", "db1"):
        enable(cloud, name).run()
    rule(cloud, "webs", guests="web1,web2", anti_affinity="strict").run()
    rule(cloud, "near", guests=["db1"], hosts="hv000:2,hv001", host_affinity="preferred").run()
    enable(cloud, "db1", group="webs").run()
    kept = wishes(cloud).rules
    assert kept["webs"] == GuestRule(("web1", "web2", "db1"), "anti_affinity")
    assert kept["near"] == GuestRule(("db1",), "", {"hv000": 2, "hv001": 0}, strict=False)
    found = rule(cloud, "near", host_affinity="strict").check()
    assert [found.changes["rule"][one]["strict"] for one in ("old", "new")] == [False, True]
    assert not wishes(cloud).rules["near"].strict
    rule(cloud, "near", host_affinity="strict").run()
    assert wishes(cloud).rules["near"].strict
    rule(cloud, "near", guests="web1,db1").run()
    assert wishes(cloud).rules["near"] == GuestRule(("db1", "web1"), "", {"hv000": 2, "hv001": 0})
    rule(cloud, "near", guests="").run()
    assert wishes(cloud).rules["near"].guests == ()
    rule(cloud, "near", hosts=["hv001", "hv002"]).run()
    assert wishes(cloud).rules["near"].hosts == {"hv001": 0, "hv002": 0}
    before = list(cloud.told)
    rule(cloud, "near", hosts={"hv000": 2, "hv001": 0}).run()
    assert rule(cloud, "near", hosts="hv000:2,hv001").run().changes == {}
    assert len(cloud.told) == len(before) + 1
    assert (
        rule(cloud, "near", hosts={"hv000": 2, "hv001": 0}, host_affinity="strict").check().nothing
    )
    Disable(cloud, "web2").run()
    assert wishes(cloud).rules["webs"].guests == ("web1", "db1")
    rule(cloud, "webs", remove=True).run()
    assert set(wishes(cloud).rules) == {"near"}
    with pytest.raises(errors.NotFound, match="rule webs does not exist"):
        rule(cloud, "webs", remove=True).run()


@pytest.mark.parametrize("given, why", (
    ({}, "pass one of affinity=, anti_affinity= and hosts="),
    ({"affinity": "strict", "anti_affinity": "strict"}, "pass one of"),
    ({"anti_affinity": "maybe"}, "anti_affinity must be strict or preferred"),
    ({"host_affinity": "strict"}, "host_affinity= requires hosts="),
    ({"hosts": "hv9"}, "'hv9' is not a member"),
    ({"hosts": "hv000:x"}, "the rank of hv000"), ({"hosts": 7}, "hosts must be host:rank"),
    ({"guests": "web1,nobody", "anti_affinity": "strict"}, "nobody is not managed"),
    ({"guests": "web1,web1", "anti_affinity": "strict"}, "given twice"),
    ({"guests": {}, "anti_affinity": "strict"}, "guests must be a list"),
    ({"guests": "a b", "anti_affinity": "strict"}, "cannot be a guest's name"),
), ids=str)  # fmt: skip
def test_what_is_no_rule_is_refused(cloud, given, why):
    enable(cloud, "web1").run()
    with pytest.raises(errors.VirtError, match=why):
        rule(cloud, "r", **given).run()
    assert why in rule(cloud, "r", **given).check().comment
    assert wishes(cloud).rules == {}


def test_a_rule_that_can_never_hold_is_refused(cloud):
    cloud.guests["hv000"] |= {f"many{count}": guest() for count in range(4)}
    names = [f"many{count}" for count in range(4)]
    for name in names:
        enable(cloud, name).run()
    with pytest.raises(
        errors.InvalidInput, match="4 guests cannot be on different hosts: there are 3"
    ):
        rule(cloud, "r", guests=names, anti_affinity="strict").run()
    rule(cloud, "r", guests=names, affinity="strict").run()
    with pytest.raises(errors.InvalidInput, match="the rule r sets affinity for many0, many1"):
        rule(cloud, "s", guests=names[:2], anti_affinity="strict").run()


# -- ha_arm, ha_disarm, ha_confirm_off -------------------------------------------------------------


def test_what_the_engine_has_not_done_is_not_said_to_be_done(cloud):
    answer = operation.perform(Arm(cloud, False, wait=lambda _s: None))
    assert answer["retcode"] == 1
    assert "high availability will be disarmed" in answer["ha"]["comment"]
    assert not wishes(cloud).armed


@pytest.mark.parametrize("make", (
    lambda cloud: Arm(cloud, True), lambda cloud: ConfirmOff(cloud, "hv000"),
    lambda cloud: FenceHost(cloud, "hv000"), lambda cloud: Simulate(cloud, "hv000"),
    lambda cloud: ConfigureRule(cloud, "r", {}, False), lambda cloud: enable(cloud, "web1"),
), ids=range(6))  # fmt: skip
def test_settings_that_are_wrong_are_a_reason_and_nothing_is_wished(cloud, make):
    cloud.opts["virt"]["ha"]["members"]["hv000"] = {"address": 7}
    answer = operation.perform(make(cloud), test=True)
    assert answer["retcode"] == 1 and "virt:ha:members:hv000" in str(answer)
    with pytest.raises(errors.VirtError):
        make(cloud).run()
    assert cloud.told == []


def test_what_the_journal_cannot_keep_is_wished_all_the_same(cloud, caplog):
    """Its disk is full, say; what is wished is written by then."""
    (files.folder(cloud.opts) / "journal.jsonl").mkdir(parents=True)
    enable(cloud, "web1").run()
    assert set(wishes(cloud).guests) == {"web1"} and len(cloud.told) == 1
    assert "the journal of high availability: " in caplog.text


def test_disarmed_is_when_the_last_watchdog_is_at_rest(cloud, engine):
    armed = {"hv000": status_file.HostReport(1, 0.5, armed=True)}
    write_engine(cloud, Registry(1, 2, armed=True), armed)
    steps = [
        lambda: write_engine(cloud, Registry(1, 3, armed=False), armed),
        lambda: write_engine(
            cloud, Registry(1, 3, armed=False), {"hv000": status_file.HostReport(1, 0.5)}
        ),
    ]
    found = Arm(cloud, False, wait=lambda _s: steps.pop(0)()).run()
    assert found.complete and steps == []
    assert Arm(cloud, False).check().nothing
    assert not Arm(cloud, True).check().nothing


def test_who_waits_for_a_watchdog_is_told_which(cloud, engine, monkeypatch):
    monkeypatch.setattr(arm, "WAIT_S", 1)
    write_engine(
        cloud, Registry(1, 3, armed=False), {"hv2": status_file.HostReport(1, 0.5, armed=True)}
    )
    found = Arm(cloud, False, wait=lambda _s: None).run()
    assert not found.complete and "the watchdogs of hv2 are still armed" in found.comment


def test_a_persons_word_is_for_the_last_start_of_the_host(cloud, engine):
    registry = Registry(1, 3, hosts={"hv001": HostRecord("suspected", boot=7)},
                        guests={"db1": HaGuestRecord(locations=(GuestLocation("hv001", 7),
                        ))})  # fmt: skip
    given = {"db1": GuestConfig("db1", "hv001")}
    DesiredStateStore(cloud.opts).change("x", lambda old: replace(old, guests=given))
    write_engine(cloud, registry)
    cloud.dead = {"hv001"}
    found = ConfirmOff(cloud, "hv001").check()
    assert "db1 may be started elsewhere" in found.comment
    assert wishes(cloud).confirmed == {}
    ConfirmOff(cloud, "hv001").run()
    assert wishes(cloud).confirmed == {"hv001": 7}


def test_a_host_that_answers_is_not_off(cloud, engine):
    write_engine(cloud, Registry(1, 3), {"hv001": status_file.HostReport(7, 0.4)})
    found = ConfirmOff(cloud, "hv001").check()
    assert found.reasons == (
        "hv001 is not off: its agent responds", "hv001 is not off: its minion responds",
    )  # fmt: skip
    with pytest.raises(errors.OperationFailed):
        ConfirmOff(cloud, "hv001").run()
    with pytest.raises(errors.NotFound, match="not a member"):
        ConfirmOff(cloud, "hv9").run()
    assert wishes(cloud).confirmed == {}


# -- ha_status, ha_simulate ------------------------------------------------------------------------


def test_all_that_is_wrong_is_said_with_the_exit_code(cloud, engine):
    for name in ("web1", "db1"):
        enable(cloud, name).run()
    registry = Registry(
        1, 3,
        hosts={"hv000": HostRecord("up", boot=1), "hv001": HostRecord("fencing", "a majority"),
               "hv002": HostRecord("up")},
        guests={"web1": HaGuestRecord("placed", host="hv000"),
                "db1": HaGuestRecord("blocked", "its host is silent", last="hv001")},
    )  # fmt: skip
    losses = {"hv000": status_file.LossReport({}, {"web1": "no room"}),
              "hv002": status_file.LossReport({"x": "hv000"}, {})}  # fmt: skip
    write_engine(
        cloud, registry, {"hv000": status_file.HostReport(1, 0.4, armed=True)}, losses=losses
    )
    answer = operation.perform(HaStatus(cloud))
    found = answer["ha"]
    assert answer["retcode"] == 1
    assert found["problems"] == [
        "hv001 is fencing: a majority", "db1 is blocked: its host is silent",
        "if hv000 failed, no host would have capacity for web1",
    ]  # fmt: skip
    assert found["hosts"]["hv000"]["watchdog"] == "armed"
    assert found["guests"]["db1"]["host"] == "hv001"
    assert [row[4] for row in found["table"][1:4]] == [
        "if it failed, no host would have capacity for web1", "a majority",
        "if it failed, 1 guest would be started elsewhere",
    ]  # fmt: skip
    assert len(found["table"]) == 6
    assert [one["name"] for one in found["journal"]] == ["web1", "db1"]
    assert found["reserve"] == {"hosts": 0, "policy": "refuse", "short": []}
    assert json.dumps(answer)


def test_of_several_masters_it_is_said_that_the_first_word_is_a_persons(cloud, engine, monkeypatch):
    """Nobody leads before it, however many hosts are heard."""
    monkeypatch.setattr(admin_request, "WAIT_S", 0.3)
    cloud.opts["virt"]["ha"].update(name="salt", masters=["salt", "salt2"])
    write_engine(cloud, Registry(), leading=False, leader="")
    answer = operation.perform(HaStatus(cloud))
    assert answer["retcode"] == 1
    assert "before the first request: run salt-run virt.ha_enable" in answer["ha"]["comment"]
    enable(cloud, "web1").run()
    write_engine(cloud, Registry(), leading=False, leader="")
    assert "hosts respond" in operation.perform(HaStatus(cloud))["ha"]["problems"][0]


def test_what_is_short_of_the_reserve_is_said(cloud, engine):
    cloud.opts["virt"]["ha"].update(reserve=2, reserve_policy="warn")
    enable(cloud, "web1").run()
    registry = Registry(
        1, 1, hosts={name: HostRecord("up", boot=1) for name in cloud.names},
        guests={"web1": HaGuestRecord("placed", host="hv000")},
    )  # fmt: skip
    short = "if hv000 and hv001 failed, no host would have capacity for web1"
    for unplaced, words in (({"web1": "no room"}, short), ({}, "for the loss of 2 hosts")):
        lost = {
            "hv000": status_file.LossReport(),
            "hv000 and hv001": status_file.LossReport({}, unplaced),
        }
        write_engine(cloud, registry, losses=lost)
        answer = operation.perform(HaStatus(cloud))
        assert words in answer["ha"]["comment"]
        assert answer.get("retcode", 0) == bool(unplaced)
        shown = answer["ha"]["reserve"]
        assert (shown["hosts"], shown["policy"]) == (2, "warn")
        assert shown["short"] == ([short] if unplaced else [])


def test_one_that_is_not_kept_need_not_be_taken_back(cloud):
    one = Disable(cloud, "web1", missing=True)
    assert one.check().nothing and one.run().changes == {}
    assert cloud.told == []


def test_when_nothing_is_wrong_it_says_so(cloud, engine):
    enable(cloud, "web1").run()
    hosts = {name: HostRecord("up", boot=1) for name in ("hv000", "hv001", "hv002")}
    guests = {"web1": HaGuestRecord("placed", host="hv000")}
    write_engine(cloud, Registry(1, 3, hosts=hosts, guests=guests))
    answer = operation.perform(HaStatus(cloud))
    assert "retcode" not in answer
    assert answer["ha"]["comment"] == "armed: 3 hosts, 1 guest"
    assert cloud.published[-1][0] != "virt.ha_status"


def test_a_guest_that_was_tied_to_its_host_since_is_wrong(cloud, engine):
    enable(cloud, "web1").run()
    guests = {"web1": HaGuestRecord("placed", host="hv000")}
    hosts = {name: HostRecord("up", boot=1) for name in ("hv000", "hv001", "hv002")}
    tied = {"web1": HostBinding("hv000", "disk vdb is /srv/x on hv000 only")}
    write_engine(cloud, Registry(1, 3, hosts=hosts, guests=guests), tied=tied)
    answer = operation.perform(HaStatus(cloud))
    why = "it can run on hv000 only: disk vdb is /srv/x on hv000 only"
    assert answer["ha"]["problems"] == [
        f"web1 could not be started elsewhere if its host failed: {why}"
    ]
    found = Simulate(cloud, "hv000").run()
    assert not found.complete and why in found.details["unplaced"]["web1"]


@pytest.mark.parametrize("test", [False, True])
def test_an_engine_that_does_not_run_is_wrong(cloud, test):
    answer = operation.perform(HaStatus(cloud), test)
    assert answer["retcode"] == 1 and "is not running" in answer["ha"]["comment"]


def test_where_guests_would_go_is_by_what_hosts_say_now(cloud):
    for name in ("web1", "db1"):
        enable(cloud, name).run()
    found = Simulate(cloud, "hv000").run()
    assert found.complete and set(found.details["moved"]) == {"web1"}
    assert found.details["moved"]["web1"] in ("hv001", "hv002")
    rule(cloud, "only", guests="web1", hosts="hv000").run()
    answer = operation.perform(Simulate(cloud, "hv000"), test=True)
    assert answer["retcode"] == 1
    assert "a strict rule requires other hosts" in answer["hv000"]["unplaced"]["web1"]
    cloud.dead = {"hv002"}
    assert set(Simulate(cloud, "hv001").run().details["silent"]) == {"hv002"}
    with pytest.raises(errors.ConnectionFailed):
        Simulate(cloud, "hv002").run()
    assert "'hv9' is not a member" in Simulate(cloud, "hv9").check().comment


# -- fence -----------------------------------------------------------------------------------------


@pytest.fixture
def bmc(tmp_path, monkeypatch):
    monkeypatch.setattr(fences, "PATH", f"{tmp_path}/bmc:/usr/bin:/bin")
    monkeypatch.setattr(fences, "time", Clock())
    (tmp_path / "bmc").mkdir()
    return Bmc(tmp_path / "bmc")


def test_a_fence_is_asked_and_nothing_switched(cloud, bmc):
    bmc.does(status=ON)
    found = FenceHost(cloud, "hv000").check()
    assert found.answer()["hv000"]["result"] is None
    assert found.comment == "hv000 is on and would be switched off"
    assert found.changes == {"power": {"new": "off"}}
    assert found.details["table"][1] == [1, "fence_fake", "", "on", ""]
    assert [one["action"] for one in bmc.told()] == ["status"]


def test_a_fence_that_does_not_answer_is_the_exit_code(cloud, bmc):
    bmc.does(status="echo refused; exit 1")
    answer = operation.perform(FenceHost(cloud, "hv000"), test=True)
    assert answer["retcode"] == 1 and "fence 1: fence_fake status: refused" in str(answer)


def test_fences_that_do_not_agree_whether_it_is_on_switch_two_machines(cloud, bmc):
    bmc.does(status=ON)
    other = bmc.folder / "fence_other"
    other.write_text("#!/bin/sh\ncat > /dev/null\nexit 2\n")
    other.chmod(0o755)
    fences = cloud.opts["virt"]["ha"]["members"]["hv000"]["fences"]
    fences.append({"agent": "fence_other", "options": {"ip": "10.1.0.2"}})
    answer = operation.perform(FenceHost(cloud, "hv000"), test=True)
    assert answer["retcode"] == 1
    assert "report different states" in answer["hv000"]["comment"]
    assert [row[3] for row in answer["hv000"]["table"][1:]] == ["on", "off"]


def test_a_fence_that_sees_a_host_off_that_lives_is_named(cloud, bmc, engine):
    """It switches another machine, or is a program that its interpreter cannot run."""
    write_engine(cloud, Registry(1, 3), {"hv000": status_file.HostReport(1, 0.5)})
    bmc.does(status=OFF)
    found = FenceHost(cloud, "hv000").check()
    assert "a fence reports hv000 as off" in found.reasons[0]
    write_engine(cloud, Registry(1, 3), {"hv000": status_file.HostReport(1, 9)})
    assert FenceHost(cloud, "hv000").check().reasons == ()


def test_a_host_that_a_fence_sees_off_is_as_confirmed(cloud, bmc, engine):
    write_engine(cloud, Registry(1, 3, hosts={"hv000": HostRecord("up", boot=5)}))
    bmc.does(off=ON, status=OFF)
    found = FenceHost(cloud, "hv000").run()
    assert found.changes == {"power": {"new": "off"}}
    assert wishes(cloud).confirmed == {"hv000": 5}
    assert [told["message"] for _, told in cloud.told] == [
        "an operator fences hv000", "hv000 was switched off: fence 1 (fence_fake): off after 0 s",
    ]  # fmt: skip


def not_written(cloud):
    """A fence sees hv000 off: what is raised then."""
    with pytest.raises(errors.OperationFailed) as raised:
        FenceHost(cloud, "hv000").run()
    text = "hv000 was switched off: fence 1 (fence_fake): off after 0 s"
    assert cloud.told[-1][1]["message"] == text and wishes(cloud).confirmed == {}
    before, after = raised.value.text.split("; high availability could not record that: ")
    assert before == text
    return after


def test_a_host_that_is_off_is_said_to_be_where_another_master_leads(cloud, bmc, engine):
    """It was said alone that the other one leads."""
    cloud.opts["virt"]["ha"].update(name="salt", masters=["salt", "salt2"])
    write_engine(cloud, Registry(1, 3), leading=False, leader="salt2")
    bmc.does(off=ON, status=OFF)
    assert not_written(cloud) == "salt2 leads: run the command on that master"


def test_a_host_that_is_off_is_said_to_be_where_that_cannot_be_written(
    cloud, bmc, engine, monkeypatch
):
    def full(*_):
        raise OSError("no space left")

    monkeypatch.setattr(DesiredStateStore, "change", full)
    bmc.does(off=ON, status=OFF)
    assert not_written(cloud) == "no space left"


def test_one_that_is_not_proven_to_be_off_is_not(cloud, bmc):
    bmc.does(off=ON, status=ON)
    with pytest.raises(errors.OperationFailed, match="hv000 is not proven to be off: fence 1"):
        FenceHost(cloud, "hv000").run()
    assert wishes(cloud).confirmed == {}
    assert [told["message"] for _, told in cloud.told] == [
        "an operator fences hv000", "hv000 was not fenced: fence 1 (fence_fake): on after 0 s",
    ]  # fmt: skip
    with pytest.raises(errors.NotFound, match="no fence is configured for hv001"):
        FenceHost(cloud, "hv001").run()


@pytest.fixture
def elsewhere(cloud):
    """hv000's fence is run by hv001, or by hv002; what each minion was told, and what it says."""
    password = {"password_file": "/etc/salt/bmc"}
    fence = {"agent": "fence_fake", "options": {"ip": "10.1.0.1", **password},
             "from": ["hv001", "hv002"]}  # fmt: skip
    cloud.opts["virt"]["ha"]["members"]["hv000"]["fences"] = [fence]
    cloud.told_minions, cloud.says = [], {"hv001": "on", "hv002": "on"}

    def run(host, **told):
        cloud.told_minions.append((host, told))
        return {"state": cloud.says[host], "message": "a\x1b[2Jb"}

    cloud.virt_ha_fence = run
    return cloud


def test_each_host_that_is_to_run_a_fence_is_asked_whether_it_could(elsewhere):
    found = FenceHost(elsewhere, "hv000").check()
    assert not found.reasons
    assert [row[2:4] for row in found.details["table"][1:]] == [["hv001", "on"], ["hv002", "on"]]
    assert elsewhere.told_minions[0] == (
        "hv001", {"agent": "fence_fake", "options": {"ip": "10.1.0.1"},
                  "password_file": "/etc/salt/bmc", "action": "status"},
    )  # fmt: skip
    elsewhere.says["hv002"] = "timed out"
    answer = operation.perform(FenceHost(elsewhere, "hv000"), test=True)
    assert answer["retcode"] == 1 and "fence 1 from hv002: " in str(answer)


def test_a_host_that_is_gone_is_passed_over(elsewhere, engine):
    write_engine(elsewhere, Registry(1, 3, hosts={"hv000": HostRecord("up", boot=5)}))
    elsewhere.dead = {"hv001"}
    elsewhere.says["hv002"] = "off"
    found = FenceHost(elsewhere, "hv000").run()
    assert found.changes == {"power": {"new": "off"}} and "from hv001: timed out" in found.comment
    assert "from hv002: off" in found.comment
    assert [(host, told["action"]) for host, told in elsewhere.told_minions] == [("hv002", "off")]


@pytest.mark.parametrize("says", ["on", "timed out", "?"])
def test_what_no_host_sees_off_is_not_proven_to_be(elsewhere, says):
    elsewhere.says = dict.fromkeys(elsewhere.says, says)
    with pytest.raises(errors.OperationFailed, match="hv000 is not proven to be off") as raised:
        FenceHost(elsewhere, "hv000").run()
    assert "\x1b" not in raised.value.text
    assert wishes(elsewhere).confirmed == {}


def test_a_host_says_of_a_fence_that_it_sees_it_on_or_off_or_that_it_timed_out(elsewhere):
    elsewhere.says = {"hv001": "?" * 30, "hv002": "on"}
    found = FenceHost(elsewhere, "hv000").check()
    assert found.reasons == (f"hv001: fence_fake returned the unknown state '{'?' * 20}'",)
    assert [row[2] for row in found.details["table"][1:]] == ["hv002"]
