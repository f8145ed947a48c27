"""``test=True`` of the runner reports every reason against an operation, and changes nothing."""

import pytest

pytest.importorskip("salt")

from saltvirt import errors
from saltvirt.answers.created import GuestKey
from saltvirt.fleet import authorization, target
from saltvirt.fleet.answer import SILENT, Answer, down
from saltvirt.operations.access.authorize import Authorize
from saltvirt.operations.core import operation
from saltvirt.operations.core.report import Report
from saltvirt.operations.create import deploy
from saltvirt.operations.create.eject import Eject
from saltvirt.operations.create.identity import CloneGuest, RenameGuest
from saltvirt.operations.create.init import Init, confirm_key, deliver
from saltvirt.operations.create.request import InitRequest
from saltvirt.operations.guest.purge import Purge
from saltvirt.operations.journal import lock, slots
from saltvirt.operations.move.migrate import Migrate
from saltvirt.placement import policy
from saltvirt.system import file_lock
from tests.clock import Clock
from tests.fakes.fleet import Fleet, failed

HOST = {"cpus": 8, "memory_kib": 16 << 20, "types": ["kvm"], "guests": {}}
HOST["images_folder"] = {"path": "/x", "total_bytes": 1 << 40, "free_bytes": 1 << 40}
GUEST = {"vcpus": 1, "memory_kib": 1 << 20, "state": "shutdown"}
BY = policy.from_config(None, None)


class Cloud(Fleet):
    """hv1 with the guests a and b, hv2. refused: function to what a host says against it."""

    def __init__(self, tmp_path, **refused):
        super().__init__(tmp_path, {"hosts": "hv*"}, hv1={}, hv2={})
        (tmp_path / "minions").mkdir(exist_ok=True)
        for name in ("a", "b", "new"):
            (tmp_path / "minions" / name).write_text("a key")
        self.refused = {f"virt.{name}": failed(why) for name, why in refused.items()}
        self.guests, self.maintenance = {"hv1": {"a": GUEST, "b": GUEST}, "hv2": {}}, None
        self.done, self.examined, self.shared = [], [], {}

    def said(self, host, fun, kwarg):
        if fun in self.refused:
            return self.refused[fun]
        states = {name: guest["state"] for name, guest in self.guests[host].items()}
        closed = self.maintenance if host == "hv2" else None
        known = {
            "virt.inventory": {**HOST, "guests": self.guests[host]},
            "virt.migrate_locations": {"guests": states, "unfinished": [], "maintenance": closed},
            "virt.vm_state": states,
            "virt.shared_disks": self.shared,
        }
        if fun in known:
            return known[fun]
        if fun == "virt.migratable":
            self.examined.append((host, kwarg.get("target")))
            return {"migratable": False, "reasons": ["vda is a CD"]}
        if not kwarg.get("test"):
            self.done.append((host, fun))
        return True if fun == "virt.start" else {}

    def fire_event(self, tag, data):
        self.done.append((tag, data))


def reasons(one):
    """Those of a check, of which nothing was changed; and the run raises the first of them."""
    checked = one.check()
    assert one.fleet.done == []
    with pytest.raises(errors.VirtError) as raised:
        one.run()
    assert raised.value.text == checked.reasons[0]
    assert [tag for tag, _ in one.fleet.done if not tag.endswith("/failed")] == []
    one.fleet.done = []
    answer = operation.perform(one, test=True)
    assert answer["retcode"] == 1
    assert answer[checked.subject]["comment"] == "; ".join(checked.reasons)
    return checked.reasons


def init(cloud, **given):
    wanted = InitRequest(**{"name": "new", "cpu": 1, "mem": 64, "image": None, **given})
    return Init(cloud, BY, wanted, Report(cloud, wanted.name, "init"))


def would(one):
    """What a check says that would be done; nothing was."""
    found = one.check()
    assert (one.fleet.done, found.reasons) == ([], ())
    return found


def test_what_init_would_make_has_the_numbers_and_where(tmp_path):
    cloud = Cloud(tmp_path)
    found = would(init(cloud, name="fresh", cpu=2, wait_for="address", host="hv2"))
    takes = {
        "host": "hv2", "vcpus": 2, "memory_mib": 64, "disk_bytes": 0, "pools": {}, "bridges": [],
        "networks": [],
    }  # fmt: skip
    assert found.changes == {"created": takes}
    assert found.comment == (
        "fresh would be created on hv2: 2 vCPUs, 64 MiB of memory, 0 B of disk"
    )
    assert found.details["host"] == "hv2"
    assert found.answer()["fresh"]["result"] is None


def test_no_more_hosts_are_tried_than_the_attempts_when_each_has_a_reason_of_its_own(tmp_path):
    cloud = Cloud(tmp_path, init="refused: its image is another")
    cloud.opts["virt"]["attempts"] = 1
    one = init(cloud, name="fresh", arguments={"seed": False})
    with pytest.raises(errors.Refused, match=r"no host took fresh: hv[12]: its image is another$"):
        one.run()
    cloud.refused["virt.init"] = failed("refused: no room: 1 GiB is free")
    with pytest.raises(errors.Refused, match=r"hv1.*; hv2|hv2.*; hv1"):
        one.run()


def test_who_waits_for_other_inits_is_told_for_whom(tmp_path, monkeypatch):
    cloud, clock, steps = Cloud(tmp_path), Clock(), []
    cloud.opts["virt"]["inits_at_once"] = 1
    monkeypatch.setattr(file_lock, "time", clock)
    other = slots.deploying(cloud.opts, None, "virt.init of other")
    other.__enter__()
    clock.sleep = lambda _seconds: other.__exit__(None, None, None)
    one = init(cloud, name="fresh")
    one.report.step = lambda *said, **_more: steps.append(said)
    with one.deploying():
        [(step, text)] = steps
    assert (step, text.startswith("fresh: waiting: 1 ")) == ("queued", True)


class Says:
    """A host that answers as it is told to."""

    def __init__(self, **answers):
        self.answers = {f"virt.{name}": said for name, said in answers.items()}

    def call(self, host, fun, _asked=None, **_options):
        return self.gather([host], fun)[host].get()

    def gather(self, hosts, fun, _asked=None, **_options):
        said = self.answers[fun]
        return {host: said if isinstance(said, Answer) else Answer(host, said) for host in hosts}


@pytest.mark.parametrize("state", ["running", "shutdown"])
def test_when_the_answer_to_a_start_is_lost_the_guests_state_is_what_counts(tmp_path, state):
    """And a start that was answered is none before libvirt says so."""
    lost = Says(power=Answer("hv1", error="no answer", kind=SILENT), vm_state={"web1": state})
    done = Says(power={"before": "shutdown", "after": state})
    report = Report(Cloud(tmp_path), "web1", "init")
    for fleet, why in (
        (lost, "hv1: no answer"),
        (done, "hv1: web1 was started, but libvirt reports shutdown"),
    ):
        if state == "running":
            assert deliver(fleet, report, "hv1", "web1", start_policy=BY) == "running"
        else:
            with pytest.raises(errors.VirtError, match=f"^{why}$"):
                deliver(fleet, report, "hv1", "web1", start_policy=BY)
    assert deliver(lost, report, "hv1", "web1") == state


def test_a_pillar_for_a_guest_without_a_minion_is_refused(tmp_path):
    cloud = Cloud(tmp_path)
    report, made = Report(cloud, "web1", "init"), GuestKey(name="web1")
    assert confirm_key(cloud, report, "hv1", "web1", made) is None
    with pytest.raises(errors.InvalidInput, match="web1 has no disk with an image"):
        confirm_key(cloud, report, "hv1", "web1", made, {"role": "web"})


def test_who_would_be_allowed_to_what(tmp_path):
    cloud = Cloud(tmp_path)
    found = would(Authorize(cloud, "c", "hv2"))
    assert found.comment.startswith("hv2 would be permitted to submit the key of c once, within")
    assert authorization.Authorizations(cloud.opts).hosts() == set()
    Authorize(cloud, "c", "hv2").run()
    assert authorization.Authorizations(cloud.opts).hosts() == {"hv2"}


def test_of_a_minion_that_is_no_guest_of_this_master_no_host_is_asked(tmp_path):
    cloud = Cloud(tmp_path)
    cloud.ask = None
    [why] = Eject(cloud, "a/b").check().reasons
    assert "'a/b' cannot be" in why
    found = Eject(cloud, "stranger").check()
    assert (found.nothing, found.comment) == (
        True, "stranger is not a guest that this master created",
    )  # fmt: skip


def test_of_init(tmp_path):
    cloud = Cloud(tmp_path, init="no such image: /x")
    big = {"name": "a", "mem": "900G", "arguments": {"seed": True}}
    taken, room = reasons(init(cloud, **big))
    assert taken == "a already exists, on hv1", "of the key of that guest nothing is said"
    assert "no host can take a" in room
    key, image = reasons(init(cloud, arguments={"seed": True}))
    assert "an accepted key for new" in key
    assert image in ("hv1: no such image: /x", "hv2: no such image: /x")


def test_of_inits_arguments(tmp_path):
    wrong = {
        "name": "a/b", "cpu": "x", "mem": "y", "wait_for": "luck", "pillar": {"a": 1},
        "labels": "rack", "group_policy": "apart",
    }  # fmt: skip
    found = reasons(init(Cloud(tmp_path), **wrong))
    words = ("wait_for 'luck'", "pillar: ", "'a/b' cannot", "cpu", "mem", "labels", "group_policy")
    assert [word for word, why in zip(words, found, strict=True) if word not in why] == []


@pytest.mark.parametrize("kind", [RenameGuest, CloneGuest])
def test_of_a_new_name(tmp_path, kind):
    cloud = Cloud(tmp_path, rename="a is running", clone="a is running")
    report = Report(cloud, "b", "x")
    taken, host = reasons(kind(cloud, report, "a", "b"))
    assert taken == "b already exists, on hv1", "of the key of that guest nothing is said"
    assert host == "hv1: a is running"
    alike, _ = reasons(kind(cloud, report, "a", "B"))
    assert alike == "B: b already exists, on hv1, and host names do not differ by case"
    own = reasons(kind(cloud, report, "a", "A"))
    assert ("A: a already exists" in own[0]) is (kind is CloneGuest), "a rename ends the old name"
    key, host = reasons(kind(cloud, report, "a", "new"))
    assert "an accepted key for new" in key
    gone, taken = reasons(kind(cloud, report, "gone", "b"))
    assert "no guest 'gone'" in gone
    assert reasons(kind(cloud, report, "a", "a")) == ("a is already its name",)
    assert len(reasons(kind(cloud, report, "a/", "b/"))) == 2


@pytest.mark.parametrize("kind", [RenameGuest, CloneGuest])
def test_of_a_disk_that_may_be_in_use_on_a_host_that_does_not_answer(tmp_path, kind):
    """A rename writes to it, a clone reads it: name_is_free is about the new name alone."""
    cloud = Cloud(tmp_path)
    cloud.guests["hv1"]["a"] = {**GUEST, "state": "shutdown"}
    cloud.down, cloud.shared = {"hv2"}, {"/nfs/a": "it is on nfs"}
    one = kind(cloud, Report(cloud, "c", "x"), "a", "c", name_is_free=True)
    found = [why for why in reasons(one) if "may run on one that does not answer: hv2" in why]
    assert found == [
        "a stays as it is on hv1: other hosts may use its disk /nfs/a (it is on nfs), and it may "
        f"run on one that does not answer: hv2: {down('hv2').error}; wait for that"
    ]
    with pytest.raises(errors.OperationFailed, match="a stays as it is on hv1"):
        one.run()
    cloud.shared = {}
    again = kind(cloud, Report(cloud, "c", "x"), "a", "c", name_is_free=True).check()
    assert not any("stays as it is" in why for why in again.reasons)


@pytest.mark.parametrize("kind", [RenameGuest, CloneGuest])
def test_of_a_key_that_another_master_would_get(tmp_path, monkeypatch, kind):
    """Only the run said so, after the host was asked."""
    monkeypatch.setattr(authorization.syndic, "below", lambda _opts, host: host == "hv1")
    cloud = Cloud(tmp_path, rename="a is running", clone="a is running")
    host, below = reasons(kind(cloud, Report(cloud, "c", "x"), "a", "c"))
    assert below.startswith("hv1 is below a syndic")
    assert host == "hv1: a is running"


def test_of_a_secret_for_a_host_by_its_own_word(tmp_path, monkeypatch):
    monkeypatch.setattr(target, "by_name", lambda _opts, _host: False)
    cloud = Cloud(tmp_path, clone="a is running")
    host, claimed = reasons(
        CloneGuest(cloud, Report(cloud, "c", "x"), "a", "c", {"user_data": "x"})
    )
    assert "only claims to be a hypervisor" in claimed
    assert host == "hv1: a is running"


def test_of_a_migration(tmp_path):
    """A maintenance hid what is in the way besides."""
    cloud = Cloud(tmp_path)
    cloud.maintenance = "disks"
    checked = Migrate(cloud, BY, "a", "hv2", Report(cloud, "a", "migrate")).check()
    assert checked.reasons == ("hv2 is in maintenance: disks", "vda is a CD")
    assert (cloud.examined, cloud.done) == ([("hv1", "hv2")], [])


def test_of_a_migration_to_a_host_that_is_down(tmp_path):
    """Its guest alone is looked at: to try to reach that host would take minutes."""
    cloud = Cloud(tmp_path)
    cloud.down = {"hv2"}
    checked = Migrate(cloud, BY, "a", "hv2", Report(cloud, "a", "migrate")).check()
    assert checked.reasons == (f"hv2: {down('hv2').error}", "vda is a CD")
    assert (cloud.examined, cloud.done) == ([("hv1", None)], [])


def test_of_a_migration_that_its_source_cannot_examine(tmp_path):
    """What both reasons are is said, and not only the first."""
    cloud = Cloud(tmp_path, migratable="libvirt does not answer any more")
    cloud.maintenance = "disks"
    one = Migrate(cloud, BY, "a", "hv2", Report(cloud, "a", "migrate"))
    assert one.check().reasons == (
        "hv2 is in maintenance: disks",
        "hv1: libvirt does not answer any more",
    )


def test_that_somebody_is_at_work_is_one(tmp_path):
    cloud = Cloud(tmp_path, init="no such image", rename="it runs", clone="it runs")
    report = Report(cloud, "a", "x")
    checks = {
        "c": (init(cloud, name="c"), RenameGuest(cloud, report, "a", "c"),
              CloneGuest(cloud, report, "a", "c")),
        "a": (Purge(cloud, "a"), Migrate(cloud, BY, "a", "hv2", report),
              RenameGuest(cloud, report, "a", "c")),
    }  # fmt: skip
    for name, found in checks.items():
        with lock.guest(cloud.opts, name, "virt.purge"):
            for one in found:
                assert one.check().reasons[0].startswith(f"{name}: virt.purge, process"), one
    assert Purge(cloud, "a").check().reasons == ()


def test_of_guests_that_are_deployed(tmp_path):
    """The plan was all right, and the making was refused: the key is another machine's."""
    cloud = Cloud(tmp_path)
    wishes = [deploy.parse_guest(name, {"mem": 64}, "shop") for name in ("new", "c")]
    wishes.append(deploy.parse_guest("d", {"mem": 64, "seed": False, "pillar": {"x": 1}}, "shop"))
    found = deploy.Deploy(cloud, BY, wishes, "shop").check().answer()["shop"]
    assert list(found["changes"]) == ["c"]
    assert "an accepted key for new" in found["failed"]["new"]
    assert found["failed"]["d"].startswith("this master does not serve the pillar argument")


def test_of_a_permission(tmp_path):
    cloud = Cloud(tmp_path)
    name, host, pillar = reasons(Authorize(cloud, "hv9", "hv8", pillar=["x"]))
    assert "cannot be a guest's name" in name
    assert "'hv8' is not a hypervisor" in host
    assert "pillar" in pillar
