"""The runner's migration, with a cloud of plain data."""

import contextlib

import pytest

from saltvirt import errors
from saltvirt.answers.migration import Certificate, MigrationCheck
from saltvirt.fleet.answer import Answer, down, silent
from saltvirt.fleet.keys import KeyStore
from saltvirt.operations.cluster import ha_provider
from saltvirt.operations.journal import slots
from saltvirt.operations.move import migrate, recover
from saltvirt.placement import account, policy

DONE = {
    "name": "web1", "outcome": "moved", "source": "hv1", "target": "hv2", "live": True,
    "transport": "TLS", "time_ms": 1500, "downtime_ms": 80, "memory_bytes": 2**30,
    "disk_bytes": 2**33, "disks": {"vda": "copy"}, "deleted": [], "retained": {},
}  # fmt: skip


class Cloud:
    """Hosts with guests; virt.migrate moves the name from one to the other, or does not."""

    def __init__(self, tmp_path, moves=True, answer=None, **hosts):
        self.opts = {"cachedir": str(tmp_path), "pki_dir": str(tmp_path)}
        self.guests = hosts
        self.unfinished, self.maintenance = {}, {}
        self.moves, self.answer = moves, answer
        self.asked, self.down, self.known = [], set(), {}
        self.address, self.unmounted = {}, {}
        self.recovered = {"migratable": True, "reasons": []}
        self.left, self.kept = {}, {}

    def hosts(self, only=None):
        if only and only not in self.guests:
            raise errors.NotFound(f"{only!r} is not a hypervisor of this master")
        return [only] if only else sorted(self.guests)

    def ask(self, hosts, fun, kwarg=None, **options):
        for host in hosts:
            if host in self.down:
                yield down(host)
            elif fun == "virt.migrate_unfinished":
                yield Answer(host, data=self.known.get(host, {}))
            elif fun == "virt.inventory":
                yield Answer(host, data=inventory(self.guests[host]))
            else:
                yield Answer(host, data=self._locations(host))

    def _locations(self, host):
        return {
            "guests": dict(self.guests[host]), "unfinished": self.unfinished.get(host, []),
            "ratios": {"memory": 2}, "maintenance": self.maintenance.get(host),
            "address": self.address.get(host), "unmounted": self.unmounted.get(host, []),
            "target_leftovers": [*self.left.get(host, {})],
        }  # fmt: skip

    def gather(self, hosts, fun, kwarg=None, **options):
        return {host: self._migrate(host, kwarg) for host in hosts}

    def _migrate(self, host, asked):
        self.asked.append((host, asked))
        if self.moves:
            self.guests[asked["target"]][asked["vm_"]] = self.guests[host].pop(asked["vm_"])
        return self.answer or Answer(host, data=DONE)

    def call(self, host, fun, kwarg=None, **options):
        if fun == "virt.migrate_clean":
            return self._clean(host, **kwarg)
        self.asked.append((host, fun))
        self.unfinished = {}
        return True if fun == "virt.migrate_abort" else self.recovered

    def _clean(self, host, vm_, test=False, unused=()):
        """left: host to {guest: files}; kept: those of them that stay, and why."""
        files = self.left.get(host, {}).get(vm_, [])
        if test:
            return {"delete": files, "keep": {}, "shared": {}} if files else {}
        self.asked.append((host, "virt.migrate_clean"))
        kept = {path: why for path, why in self.kept.items() if path in files}
        self.left[host] = {vm_: list(kept)} if kept else {}
        return {"deleted": [path for path in files if path not in kept], "retained": kept}

    def fire_event(self, tag, data):
        pass


def inventory(guests):
    each = {"uuid": "u", "state": "running", "vcpus": 1, "memory_kib": 2**20}
    return {
        "cpus": 8, "memory_kib": 2**25, "arch": "x86_64", "types": ["kvm", "qemu"],
        "guests": {name: {**each, "state": state} for name, state in guests.items()},
        "images_folder": {"total_bytes": 2**40, "free_bytes": 2**40},
    }  # fmt: skip


class Report:
    tag = "salt/virt/web1/migrate"

    def step(self, step, text, **data):
        pass

    failed = show = lambda self, text: None


def run(cloud, name="web1", target="hv2", **options):
    return operation(cloud, name, target, Report(), options).run().answer()


def operation(cloud, name, target, report, options=None):
    return migrate.Migrate(cloud, policy.PlacementPolicy(), name, target, report, options)


def test_it_is_found_moved_and_confirmed(tmp_path):
    cloud = Cloud(tmp_path, hv1={"web1": "running"}, hv2={})
    found = run(cloud, policy="safe")["web1"]
    terms = {"policy": policy.PlacementPolicy().to_wire()}
    asked = {"policy": "safe", "vm_": "web1", "target": "hv2", "ratios": {"memory": 2}}
    asked["placement"] = terms
    assert cloud.asked == [("hv1", asked)]
    assert found["changes"] == {"host": {"old": "hv1", "new": "hv2"}}
    assert found["comment"] == ("web1 was moved from hv1 to hv2 over TLS in 1.5 s; downtime 80 ms")


def test_placement_never_chooses_the_source(tmp_path):
    cloud = Cloud(tmp_path, hv1={"web1": "running"}, hv2={}, hv3={"a": "running", "b": "running"})
    run(cloud, target="")
    assert cloud.asked[0][1]["target"] == "hv2"
    alone = Cloud(tmp_path, hv1={"web1": "running"})
    with pytest.raises(errors.Refused, match="there is no other host"):
        run(alone, target="")


def test_where_it_is_already_nothing_is_done(tmp_path):
    cloud = Cloud(tmp_path, hv1={}, hv2={"web1": "running"})
    assert run(cloud)["web1"]["comment"] == "web1 is on hv2 already"
    assert cloud.asked == []


def test_a_broken_off_migration_is_ended_first(tmp_path):
    cloud = Cloud(tmp_path, hv1={}, hv2={"web1": "running"})
    cloud.unfinished = {"hv1": ["web1"]}
    run(cloud)
    assert cloud.asked == [("hv1", "virt.migrate_recover")]


def test_success_is_only_what_the_host_has_confirmed(tmp_path):
    cloud = Cloud(tmp_path, answer=Answer("hv1", data={}), hv1={"web1": "running"}, hv2={})
    with pytest.raises(errors.ConnectionFailed, match=r"hv1: its answer .*: outcome is missing"):
        run(cloud)
    cloud = Cloud(
        tmp_path, answer=Answer("hv1", data={"outcome": "undone"}), hv1={"web1": "running"}, hv2={}
    )
    with pytest.raises(errors.OperationFailed, match="hv1 answered 'undone' for web1"):
        run(cloud)


def test_a_host_in_maintenance_gets_no_guest(tmp_path):
    cloud = Cloud(tmp_path, hv1={"web1": "running"}, hv2={})
    cloud.maintenance = {"hv2": "new disks"}
    with pytest.raises(errors.Refused, match="hv2 is in maintenance: new disks"):
        run(cloud)
    assert cloud.asked == []


def test_the_standing_answer_knows_what_the_target_itself_would_say(tmp_path):
    cloud = Cloud(tmp_path, hv1={"web1": "running"}, hv2={}, hv3={})
    assert migrate.examine(cloud, "web1", "hv2") == MigrationCheck(True, ())
    cloud.maintenance, cloud.down = {"hv2": "new disks"}, {"hv3"}
    for target, why in (("hv2", "hv2 is in maintenance: new disks"), ("hv3", "hv3: down")):
        found = migrate.examine(cloud, "web1", target)
        assert found.migratable is False
        assert found.reasons[0].startswith(why)


def test_the_standing_answer_as_a_sentence():
    until = tuple(
        Certificate(host, "/c", f"20{year}-05-01T00:00:00+00:00")
        for host, year in (("hv1", 28), ("hv2", 27))
    )
    found = MigrationCheck(True, (), disks={"vda": "overlay"}, certificates=until)
    assert migrate.verdict("web1", "hv2", found) == (
        "web1 can be moved to hv2; disks: vda overlay; "
        "certificates are valid until 2027-05-01 (hv2)"
    )
    assert migrate.verdict("web1", "", MigrationCheck(True, ())) == "web1 can be moved"
    no = MigrationCheck(False, ("a", "b"), disks={}, certificates=until)
    assert migrate.verdict("web1", "hv2", no) == "web1 cannot be moved to hv2: a; b"


def test_a_host_that_falls_silent_is_not_the_end_of_the_story(tmp_path):
    cloud = Cloud(tmp_path, answer=silent("hv1", 60), hv1={"web1": "running"}, hv2={})
    with pytest.raises(
        errors.ConnectionFailed, match=r"web1 is running on hv2; call virt\.migrate"
    ):
        run(cloud)


@pytest.mark.parametrize(
    ("name", "target", "kind", "words"),
    [
        ("../x", "hv2", errors.InvalidInput, "cannot be a guest's name"),
        ("web1", "hv9", errors.NotFound, "hv9"),
        ("nobody", "hv2", errors.NotFound, "no guest 'nobody'"),
        ("web1", "hv3", errors.ConnectionFailed, "hv3: down"),
    ],
)
def test_bad_input_asks_no_host_to_do_anything(tmp_path, name, target, kind, words):
    cloud = Cloud(tmp_path, hv1={"web1": "running"}, hv2={}, hv3={})
    cloud.down = {"hv3"}
    with pytest.raises(kind, match=words):
        run(cloud, name, target)
    assert cloud.asked == []


def test_a_host_that_only_had_to_end_an_earlier_attempt(tmp_path):
    ended = Answer("hv1", data={"outcome": "moved", "deleted": [], "retained": {"/a": "used"}})
    cloud = Cloud(tmp_path, answer=ended, hv1={"web1": "running"}, hv2={})
    said = run(cloud)["web1"]["comment"]
    assert said == "web1 was moved from hv1 to hv2; /a was left on hv1: used"


@pytest.mark.parametrize(("target", "moves"), [("", False), ("hv2", False), ("hv3", True)])
def test_a_guest_that_an_earlier_attempt_has_moved_is_not_moved_again_by_surprise(
    tmp_path, target, moves
):
    cloud = Cloud(tmp_path, hv1={}, hv2={"web1": "running"}, hv3={})
    cloud.unfinished = {"hv1": ["web1"]}
    cloud.recovered = {"outcome": "moved"}
    found = run(cloud, target=target)["web1"]
    asked = [fun for _, fun in cloud.asked if fun == "virt.migrate_recover"]
    assert asked == ["virt.migrate_recover"]
    assert (len(cloud.asked) > 1) == moves
    if not moves:
        assert found["comment"] == (
            "web1: its earlier migration from hv1 was completed: it is on hv2"
        )
        assert found["changes"] == {"host": {"old": "hv1", "new": "hv2"}}


def test_an_attempt_that_was_undone_is_made_anew(tmp_path):
    cloud = Cloud(tmp_path, hv1={"web1": "running"}, hv2={})
    cloud.unfinished, cloud.recovered = {"hv1": ["web1"]}, {"outcome": "undone"}
    assert run(cloud, target="")["web1"]["changes"] == {"host": {"old": "hv1", "new": "hv2"}}


def test_moved_elsewhere_by_an_earlier_attempt_is_no_success(tmp_path):
    ended = Answer("hv1", data={"outcome": "moved", "deleted": [], "retained": {}})
    cloud = Cloud(tmp_path, moves=False, answer=ended, hv1={"web1": "running"}, hv2={}, hv3={})
    with pytest.raises(errors.OperationFailed, match="it is on hv1, not on hv2"):
        run(cloud)


def test_a_source_that_falls_silent_while_a_target_is_chosen_is_said(tmp_path):
    cloud = Cloud(tmp_path, hv1={"web1": "running"}, hv2={})
    cloud.down = {"hv1"}
    with pytest.raises(errors.ConnectionFailed, match="hv1: down"):
        migrate.targets(cloud, policy.PlacementPolicy(), "web1", "hv1", migrate.MigrationRequest())
    cloud.down, cloud.guests["hv1"] = set(), {}
    with pytest.raises(errors.NotFound, match="web1 is no longer on hv1"):
        migrate.targets(cloud, policy.PlacementPolicy(), "web1", "hv1", migrate.MigrationRequest())


def test_recovery_as_a_verb(tmp_path):
    cloud = Cloud(tmp_path, hv1={"web1": "running"}, hv2={})
    cloud.unfinished, cloud.recovered = {"hv1": ["web1"]}, {"outcome": "undone", "leftovers": {}}
    host, found = recover.recover(cloud, "web1", Report())
    assert recover.recovery_text("web1", host, found) == "web1 is on hv1; the target was cleaned"
    cloud.down = {"hv2"}
    with pytest.raises(errors.OperationFailed, match=r"no unfinished migration|hv2: down"):
        recover.recover(cloud, "web1", Report())


def test_what_somebody_keeps_is_his_to_recover(tmp_path):
    cloud = Cloud(tmp_path, hv1={"web1": "running"}, hv2={})
    cloud.unfinished = {"hv1": ["web1"]}
    ha_provider.store_managed(cloud.opts, {"web1": "somebody"})
    with pytest.raises(errors.OperationFailed, match="web1 is managed by somebody"):
        recover.recover(cloud, "web1", Report())
    assert cloud.asked == []


def test_a_host_that_answers_and_has_the_guest_is_not_lost(tmp_path):
    cloud = Cloud(tmp_path, hv1={"web1": "running"}, hv2={"web1": "paused"})
    cloud.unfinished = {"hv1": ["web1"]}
    with pytest.raises(errors.InvalidInput, match="hv2 answers, and web1 is paused there"):
        recover.recover(cloud, "web1", Report(), lost="hv2")
    assert cloud.asked == []


def test_what_is_unfinished_and_who_was_not_heard(tmp_path):
    cloud = Cloud(tmp_path, hv1={"web1": "running"}, hv2={})
    assert recover.unfinished_text(*recover.unfinished(cloud)) == "no migration is unfinished"
    left = {"target": "t", "at_work": False, "has_leftovers": True}
    cloud.known, cloud.down = {"hv1": {"web1": {"target": "t"}, "db@hv3": left}}, {"hv2"}
    said = recover.unfinished_text(*recover.unfinished(cloud))
    assert said.startswith("unfinished migrations: db@hv3, web1; hv2 was not asked: down")
    host, _ = recover.recover(cloud, "db", Report())
    assert host == "hv1"


@pytest.mark.parametrize("early", ["hv1", "hv3"])
def test_of_two_migrations_the_one_that_goes_on_is_ended(tmp_path, early):
    """An earlier one may wait for its target, to release a reservation."""
    cloud = Cloud(tmp_path, hv1={}, hv2={"web1": "running"}, hv3={})
    cloud.unfinished = {early: ["web1"], "hv2": ["web1"]}
    assert migrate.abort(cloud, "web1") == ("hv2", {})
    assert cloud.asked == [("hv2", "virt.migrate_abort")]


def test_the_address_is_the_targets_own_to_say(tmp_path):
    cloud = Cloud(tmp_path, hv1={"web1": "running"}, hv2={})
    cloud.address = {"hv1": "10.9.0.1", "hv2": "10.9.0.2"}
    run(cloud)
    assert cloud.asked[0][1]["address"] == "10.9.0.2"
    back = Cloud(tmp_path, hv1={}, hv2={"web1": "running"})
    back.address = cloud.address
    run(back, target="hv1", address="192.0.2.9")
    assert back.asked[0][1]["address"] == "192.0.2.9", "what the call says"


def test_what_is_not_mounted_there_is_the_targets_own_to_say(tmp_path):
    cloud = Cloud(tmp_path, hv1={"web1": "running"}, hv2={})
    cloud.unmounted = {"hv1": ["/a"], "hv2": ["/srv/images"]}
    run(cloud)
    assert cloud.asked[0][1]["unmounted"] == ["/srv/images"]


class Told(Report):
    """A report whose lines are kept."""

    def __init__(self):
        self.lines, self.done = [], []

    def step(self, step, text, **data):
        self.lines.append(text)

    def show(self, text):
        self.lines.append(text)

    def progress(self, percent, text):
        self.lines.append(text)

    def failed(self, error):
        self.done.append(error.text)


class Recording(Cloud):
    """Keeps what a host is asked for with patience, and what its minion reports meanwhile."""

    def __init__(self, *args, events=(), **more):
        super().__init__(*args, **more)
        self.events, self.long, self.fired = events, [], []

    def gather(self, hosts, fun, kwarg=None, **options):
        prefix, watcher = options["watch"]
        for event in self.events:
            watcher(f"{prefix}step", event)
        self.long.append((fun, options["long"]))
        return super().gather(hosts, fun, kwarg, **options)

    def call(self, host, fun, kwarg=None, **options):
        self.long.append((fun, options.get("long")))
        return super().call(host, fun, kwarg, **options)

    def fire_event(self, tag, data):
        self.fired.append((tag, data))


def test_the_person_who_waits_is_told_each_step(tmp_path):
    """Events of a host, in the words of the docs; the migration is in the answer."""
    moving = {"percent": 40, "speed": 3 * 2**20, "dirty_rate": 5 * 2**20, "elapsed_s": 7.2}
    events = [{"text": "copying vda"}, moving, {"percent": 0, "elapsed_s": 1}, {"other": 1}]
    cloud = Recording(tmp_path, hv1={"web1": "running"}, hv2={}, events=events)
    cloud.unfinished, cloud.recovered = {"hv1": ["web1"]}, {"outcome": "undone"}
    told = Told()
    found = operation(cloud, "web1", "hv2", told).run().answer()["web1"]
    assert told.lines == [
        "web1: ending a migration that was interrupted on hv1",
        "web1: moving it from hv1 to hv2", "web1: copying vda",
        "web1: 40 %, 3 MiB/s, 5 MiB/s changing, 7 s", "web1: 0 %, 1 s",
    ]  # fmt: skip
    assert found["result"] is True
    assert found["migration"] == DONE
    assert cloud.fired == [(f"{Report.tag}/done", {"guest": "web1", "message": found["comment"]})]
    assert cloud.long == [("virt.migrate_recover", True), ("virt.migrate", True)]
    again = operation(cloud, "web1", "hv2", told).run().answer()["web1"]
    assert "migration" not in again, "nothing was moved"
    with pytest.raises(errors.NotFound):
        operation(cloud, "nobody", "hv2", told).run()
    assert told.done == ["no guest 'nobody' on any hypervisor"]


def test_who_has_to_wait_for_others_and_who_is_refused_is_told_so(tmp_path, monkeypatch):
    monkeypatch.setattr(slots.file_lock, "queue_timeout_s", lambda opts: 0)
    cloud, told = Cloud(tmp_path, hv1={"web1": "running"}, hv2={}), Told()
    cloud.opts["virt"] = {"migration": {"at_once": 1}}
    with (
        slots.migrating(cloud.opts, ("hv8", "hv9"), told.show),
        pytest.raises(errors.OperationFailed, match="1 migration is under way"),
    ):
        operation(cloud, "web1", "", told).run()
    assert told.lines == ["web1 waits: 1 migration is under way (virt:migration:at_once)"]
    cloud.answer, cloud.moves = Answer("hv1", error="refused: no room", kind="failed"), False
    with pytest.raises(errors.Refused, match="no room"):
        operation(cloud, "web1", "", told).run()
    assert told.lines[-1] == "web1: hv2: no room"


@pytest.fixture
def waits(monkeypatch):
    """What is in the list is called while a migration waits for its slot."""
    during = []

    @contextlib.contextmanager
    def taken(_opts, _hosts, tell, _what):
        if during:
            tell("2 migrations from or to hv2 are under way")
        for call in during:
            call()
        yield

    monkeypatch.setattr(slots, "migrating", taken)
    return during


def test_what_its_target_says_after_a_wait_counts(tmp_path, waits):
    """It was drained meanwhile, and is about to be switched off."""
    cloud = Cloud(tmp_path, hv1={"web1": "running"}, hv2={}, hv3={})
    waits.append(lambda: cloud.maintenance.update(hv2="disks"))
    with pytest.raises(errors.Refused, match=r"hv2 is in maintenance: disks$"):
        run(cloud)
    assert cloud.asked == []
    cloud.maintenance.clear()
    waits[:] = [lambda: cloud.down.add("hv2")]
    with pytest.raises(errors.Refused, match=r"no host took web1 from hv1: hv2: "):
        run(cloud)
    assert cloud.asked == []


def test_a_guest_stays_whose_evacuation_was_ended_while_it_waited(tmp_path, waits):
    cloud = Cloud(tmp_path, hv1={"web1": "running"}, hv2={})
    cloud.maintenance["hv1"] = "fans"
    one = operation(cloud, "web1", "hv2", Report())
    found = migrate.targets(cloud, one.policy, "web1", "hv1", migrate.MigrationRequest("hv2"))
    one.plan = migrate.MovePlan("hv1", found, evacuated="fans")
    waits.append(cloud.maintenance.clear)
    with pytest.raises(errors.OperationFailed, match="the evacuation of hv1 was ended"):
        one.run()
    assert cloud.asked == []


def test_the_guests_key_is_bound_to_its_new_host(tmp_path):
    """Also when an earlier attempt has brought it there."""
    for broken_off in (False, True):
        cloud = Cloud(tmp_path / str(broken_off), hv1={}, hv2={})
        keys = tmp_path / str(broken_off) / "minions"
        keys.mkdir(parents=True)
        (keys / "web1").write_text("KEY")
        store = KeyStore(cloud.opts)
        store._record("web1", "hv1", "KEY")
        cloud.guests["hv2" if broken_off else "hv1"]["web1"] = "running"
        if broken_off:
            cloud.unfinished, cloud.recovered = {"hv1": ["web1"]}, {"outcome": "moved"}
        run(cloud)
        assert store.host_of("web1") == "hv2"


def test_a_migration_that_is_under_way_can_be_aborted_and_no_other(tmp_path):
    cloud = Recording(tmp_path, hv1={"web1": "running"}, hv2={"web1": "paused"})
    with pytest.raises(errors.OperationFailed, match="no host has a migration of web1 under way"):
        migrate.abort(cloud, "web1")
    silent = Recording(tmp_path, hv1={}, hv2={})
    silent.down = ["hv1"]
    with pytest.raises(errors.OperationFailed, match=r"no host that answers \(hv1: .* has a"):
        migrate.abort(silent, "web1")
    [reason] = migrate.check_abort(cloud, "web1").reasons
    assert reason == "no host has a migration of web1 under way"
    cloud.unfinished = {"hv1": ["web1"]}
    cloud.known = {"hv1": {"web1": {"target": "t", "at_work": False}}}
    [reason] = migrate.check_abort(cloud, "web1").reasons
    assert "is not under way but interrupted: salt-run virt.migrate_recover web1" in reason
    cloud.known["hv1"]["web1"]["at_work"] = True
    checked = migrate.check_abort(cloud, "web1")
    assert checked.comment == "the migration of web1 from hv1 would be aborted; web1 stays there"
    assert (checked.reasons, cloud.asked) == ((), [])
    assert migrate.abort(cloud, "web1") == ("hv1", {})
    assert cloud.asked == [("hv1", "virt.migrate_abort")]
    assert cloud.long == [("virt.migrate_abort", True)]


def test_the_examination_of_many_disks_is_waited_for(tmp_path):
    cloud = Recording(tmp_path, hv1={"web1": "running"}, hv2={})
    migrate.examine(cloud, "web1", "hv2")
    assert cloud.long == [("virt.migratable", True)]


def test_what_the_source_has_confirmed_is_asked_of_nobody_again(tmp_path):
    class Dying(Cloud):
        def _migrate(self, host, asked):
            answer = super()._migrate(host, asked)
            self.down = {"hv2"}
            return answer

    done = Answer("hv1", data={**DONE, "time_ms": 100_000})
    cloud = Dying(tmp_path, answer=done, hv1={"web1": "running"}, hv2={})
    assert "in 100.0 s" in run(cloud)["web1"]["comment"]


FAILED = Answer("hv1", error="disk full; web1 runs on hv1", kind="failed")


@pytest.mark.parametrize(
    ("kept", "words"),
    [
        ({}, "disk full; web1 runs on hv1; all of it was removed from hv2"),
        (
            {"/a": "used by db1"},
            "on hv2 /a stays: used by db1; run salt-run virt.migrate_recover web1 again",
        ),
    ],
)
def test_a_failure_has_the_target_cleaned_and_says_what_stays(tmp_path, kept, words):
    cloud = Cloud(tmp_path, moves=False, answer=FAILED, hv1={"web1": "running"}, hv2={})
    real = cloud._migrate

    def fails(host, asked):
        cloud.left, cloud.kept = {"hv2": {"web1": ["/a", "/b"]}}, kept
        return real(host, asked)

    cloud._migrate = fails
    with pytest.raises(errors.OperationFailed, match=words):
        run(cloud)
    assert cloud.left["hv2"] == ({"web1": ["/a"]} if kept else {})


def test_a_failure_that_left_nothing_is_said_as_it_is(tmp_path):
    cloud = Cloud(tmp_path, moves=False, answer=FAILED, hv1={"web1": "running"}, hv2={})
    with pytest.raises(errors.OperationFailed, match=r"^hv1: disk full; web1 runs on hv1$"):
        run(cloud)


def test_a_guest_that_nobody_has_after_its_source_fell_silent(tmp_path):
    cloud = Cloud(tmp_path, answer=silent("hv1", 60), hv1={"web1": "running"}, hv2={})
    real = cloud._migrate

    def dies(host, asked):
        cloud.down = {"hv1", "hv2"}
        return real(host, asked)

    cloud._migrate = dies
    with pytest.raises(errors.ConnectionFailed, match="web1 is on no host that answers; call"):
        run(cloud)


@pytest.mark.parametrize(
    ("down", "unfinished", "bound"),
    [((), {}, "hv2"), (("hv1",), {}, "hv1"), ((), {"hv1": ["web1"]}, "hv1")],
)
def test_the_key_goes_with_a_guest_whose_move_was_completed_and_the_answer_lost(
    tmp_path, down, unfinished, bound
):
    """The next virt.migrate finds it on its target, and no migration to end."""
    cloud = Cloud(tmp_path, answer=silent("hv1", 60), hv1={"web1": "running"}, hv2={})
    (tmp_path / "minions").mkdir()
    (tmp_path / "minions" / "web1").write_text("KEY")
    store, real = KeyStore(cloud.opts), cloud._migrate
    store._record("web1", "hv1", "KEY")

    def moves(host, asked):
        cloud.down, cloud.unfinished = {*down}, unfinished
        return real(host, asked)

    cloud._migrate = moves
    with pytest.raises(errors.ConnectionFailed, match="web1 is running on hv2; call"):
        run(cloud)
    assert store.host_of("web1") == bound


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"downtime_ms": None}, " over TLS in 1.5 s"),
        ({"time_ms": None, "downtime_ms": None}, " over TLS"),
        (
            {"downtime_ms": None, "checkpoints_lost": {"c1": "no bitmap"}},
            " over TLS in 1.5 s; checkpoint c1 does not exist on hv2: no bitmap",
        ),
    ],
)
def test_what_was_moved_is_told_in_one_line(tmp_path, more, words):
    done = Answer("hv1", data={**DONE, **more})
    cloud = Cloud(tmp_path, answer=done, hv1={"web1": "running"}, hv2={})
    assert run(cloud)["web1"]["comment"] == f"web1 was moved from hv1 to hv2{words}"


@pytest.mark.parametrize("known", [True, False])
def test_who_moves_many_is_told_where_each_is(tmp_path, monkeypatch, known):
    cloud = Cloud(tmp_path, hv1={"web1": "running"}, hv2={}, hv3={})
    monkeypatch.setattr(migrate, "Fleet", lambda opts: contextlib.nullcontext(cloud))
    monkeypatch.setattr(migrate, "Report", lambda *about: Report())
    by = policy.PlacementPolicy()
    found = migrate.targets(cloud, by, "web1", "hv1", migrate.MigrationRequest("hv2"))
    plans = {"web1": migrate.MovePlan("hv1", found)} if known else None
    assert migrate.mover(cloud.opts, by, plans=plans)("web1", "hv2") == "hv2"
    assert migrate.mover(cloud.opts, by)("web1", "hv2") == "hv2", "it is there already"


def test_a_target_that_cannot_be_asked_is_said(tmp_path):
    cloud = Cloud(tmp_path, moves=False, answer=FAILED, hv1={"web1": "running"}, hv2={})

    def silent(host, **_asked):
        raise errors.ConnectionFailed(f"{host}: no answer in 60 s")

    cloud._clean = silent
    with pytest.raises(errors.OperationFailed, match=r"disk full.* on hv2 stays: hv2: no answer"):
        run(cloud)


def test_where_the_target_refuses_nothing_was_made(tmp_path):
    no = Answer("hv1", error="refused: no room", kind="failed")
    cloud = Cloud(tmp_path, moves=False, answer=no, hv1={"web1": "running"}, hv2={})
    cloud._clean = None
    with pytest.raises(errors.Refused, match="no host took web1 from hv1: hv2: no room"):
        run(cloud)


def test_what_was_made_before_a_libvirt_refused_is_removed_and_another_host_is_tried(tmp_path):
    """QEMU does not start there; disks were made by then."""
    left = "it stays until hv2 knows that it is unused: salt-run virt.migrate_recover web1"
    cloud = Cloud(tmp_path, hv1={"web1": "running"}, hv2={}, hv3={})

    def migrate_to(host, asked):
        cloud.asked.append((host, asked["target"]))
        if asked["target"] == "hv2":
            cloud.left["hv2"] = {"web1": ["/vm/web1_vda.qcow2"]}
            error = f"refused: QEMU did not start; web1 runs on hv1; /vm/web1_vda on hv2: {left}"
            return Answer("hv1", error=error, kind="failed")
        return Answer("hv1", data={**DONE, "target": "hv3"})

    cloud._migrate = migrate_to
    terms = dict.fromkeys(("hv2", "hv3"), account.PlacementTerms())
    plan = migrate.MovePlan("hv1", migrate.Targets(["hv2", "hv3"], terms))
    one = migrate.Migrate(
        cloud, policy.PlacementPolicy(), "web1", None, Report(), allow_others=True, plan=plan
    )
    assert one.run().answer()["web1"]["changes"] == {"host": {"old": "hv1", "new": "hv3"}}
    assert cloud.asked == [("hv1", "hv2"), ("hv2", "virt.migrate_clean"), ("hv1", "hv3")]


def test_a_source_that_is_silent_may_be_at_it_still(tmp_path):
    cloud = Cloud(tmp_path, answer=silent("hv1", 60), hv1={"web1": "running"}, hv2={})
    cloud._clean = None
    with pytest.raises(errors.ConnectionFailed):
        run(cloud)


def test_what_an_earlier_attempt_left_goes_before_the_next(tmp_path):
    cloud = Cloud(tmp_path, hv1={"web1": "running"}, hv2={}, hv3={})
    cloud.left = {"hv2": {"web1": ["/a"], "db1": ["/c"]}, "hv3": {"web1": ["/b"]}}
    run(cloud)
    first = [fun for _, fun in cloud.asked if isinstance(fun, str)]
    assert first == ["virt.migrate_clean"] * 2
    assert isinstance(cloud.asked[-1][1], dict), "then it moves"


def test_what_only_a_target_has_is_taken_away_by_the_verb(tmp_path):
    cloud = Cloud(tmp_path, hv1={"web1": "running"}, hv2={})
    cloud.left = {"hv2": {"web1": ["/a", "/b"]}}
    cloud.kept = {"/a": "used by db1"}
    host, found = recover.recover(cloud, "web1", Report())
    assert (host, found.deleted) == (None, ("/b",))
    said = recover.recovery_text("web1", host, found)
    assert "files may be left on hv2: /a stays: used by db1" in said
    assert said.endswith("salt-run virt.migrate_recover web1 again")
    with pytest.raises(errors.OperationFailed, match="unfinished"):
        recover.recover(cloud, "web1", Report(), lost="hv2")


def test_the_verb_names_what_stays_and_not_what_is_gone(tmp_path):
    cloud = Cloud(tmp_path, hv1={"web1": "running"}, hv2={})
    cloud.unfinished, cloud.left = {"hv1": ["web1"]}, {"hv2": {"web1": ["/b"]}}
    kept = {"/b": "it is kept until hv2 knows", "/dev/x": "a device"}
    cloud.recovered = {"outcome": "undone", "leftovers": {}, "deleted": ["/p"], "retained": kept}
    host, found = recover.recover(cloud, "web1", Report())
    assert found.deleted == ("/p", "/b")
    assert found.retained == {"/dev/x": "a device"}
    said = recover.recovery_text("web1", host, found)
    assert said == "web1 is on hv1; the target was cleaned; /dev/x stays: a device"


@pytest.mark.parametrize("why", ["used by db1 on hv3", None])
def test_what_the_source_could_not_delete_alone_is_asked_for(tmp_path, why):
    done = {**DONE, "retained": {"/nfs/a": "other hosts were not asked", "/b": "used by db1"}}
    cloud = Cloud(tmp_path, answer=Answer("hv1", data=done), hv1={"web1": "running"}, hv2={})
    real = cloud._migrate

    def moves(host, asked):
        cloud.left, cloud.kept = {"hv1": {"web1": ["/nfs/a"]}}, {"/nfs/a": why} if why else {}
        return real(host, asked)

    cloud._migrate = moves
    found = run(cloud)["web1"]
    kept = {"/b": "used by db1", **({"/nfs/a": why} if why else {})}
    assert found["migration"]["retained"] == kept
    assert ("/nfs/a was left on hv1" in found["comment"]) == bool(why)
    assert found["migration"]["deleted"] == ([] if why else ["/nfs/a"])


def test_a_source_that_cannot_be_asked_again_has_moved_it_all_the_same(tmp_path):
    done = {**DONE, "retained": {"/b": "used by db1"}}
    cloud = Cloud(tmp_path, answer=Answer("hv1", data=done), hv1={"web1": "running"}, hv2={})

    def silent(host, **_asked):
        raise errors.ConnectionFailed("no answer")

    cloud._clean = silent
    assert run(cloud)["web1"]["migration"]["retained"] == {"/b": "used by db1"}


def test_what_stays_of_an_earlier_attempt_is_said_with_its_host(tmp_path):
    cloud = Cloud(tmp_path, hv1={"web1": "running"}, hv2={})
    cloud.left, cloud.kept = {"hv2": {"web1": ["/a", "/b"]}}, {"/b": "web9 uses it"}
    steps = []
    one = operation(cloud, "web1", "hv2", Report())
    one.report.step = lambda *said, **more: steps.append((*said, more))
    one._clean_targets()
    [(step, text, more)] = steps
    assert (step, more) == ("left", {"host": "hv2"})
    assert text == "web1: on hv2 /b stays: web9 uses it"
    assert cloud.asked == [("hv2", "virt.migrate_clean")]
