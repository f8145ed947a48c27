"""The decisions of ``make chaos`` without a lab: steps, the model of the guests, and violations."""

import copy
import json
from types import SimpleNamespace

import pytest

pytest.importorskip("salt")

from saltvirt.operations.journal import location_cache, lock, slots
from tests.chaos import act, inside, invariants, run, shrink, steps
from tests.chaos.model import Guest, Model
from tests.lab.sh import LabError


def domain(state="running", **how):
    disk = {"target": "vda", "device": "disk", "readonly": False, "format": "qcow2",
            "kind": "file", "path": "/srv/local/g_system.qcow2",
            "size": 64 * 1024**2, "has": 1024**2}  # fmt: skip
    return {
        "state": state, "persistent": True, "disks": [{**disk, **how}], "snapshots": [],
        "memory_kib": 65536, "vcpus": 1, "uuid": "u", "content": {"count": 9, "problem": None},
    }  # fmt: skip


@pytest.fixture
def seen():
    """Two hosts, of which the first has the guest g."""
    one = {"mounts": ["/"], "loops": [], "sockets": [], "held": [], "tools": [], "runners": [],
           "qemus": [], "traces": [], "files": ["/srv/local"], "domains": {}, "cpus": 2,
           "asides": [], "backups": {},
           "memory_kib": 8 * 1024**2, "free_bytes": 64 * 1024**2}  # fmt: skip
    found = {"hv1": copy.deepcopy(one), "hv2": copy.deepcopy(one), "master": copy.deepcopy(one)}
    del found["master"]["domains"]
    found["master"] |= {"keys": {"accepted": ["hv1", "hv2"], "pending": []}, "luns": {}}
    found["hv1"]["domains"]["g"] = domain()
    found["hv1"]["qemus"] = ["g"]
    return found


@pytest.fixture
def model():
    found = Model()
    found.guests["g"] = Guest("g", "alive", floor=5)
    return found


def broken(seen, model):
    return invariants.settled(seen, model, ["hv1", "hv2"], 4)


def test_the_same_seed_draws_the_same_steps_and_others_draw_others():
    assert steps.draw(7) == steps.draw(7)
    assert steps.draw(7) != steps.draw(8)
    assert steps.loads(steps.dumps(steps.draw(7))) == steps.draw(7)
    assert len(steps.draw(3, 25)) == 25


class Possible:
    """What the operations for backups of a list of steps find, were everything else done."""

    def __init__(self):
        self.there, self.backed, self.aside, self.snapshots = {}, set(), set(), set()
        self.good, self.all = [], []

    def step(self, ops):
        for op in ops:
            others = {name for one in ops if one is not op for name in steps._about(one)}
            if op["verb"].startswith("backup"):
                name = op["name"]
                self.all.append(op["verb"])
                if name not in others and getattr(self, op["verb"])(name):
                    self.good.append(op["verb"])
        for op in ops:
            self.other(op)

    def other(self, op):
        name = op.get("name")
        if op["verb"] in ("init", "deployed", "clone"):
            for one in op.get("names") or [op.get("new", name)]:
                self.there[one] = op.get("disk") or self.there.get(name)
        elif op["verb"] == "snapshot":
            self.snapshots.add(name)
        elif op["verb"] in ("purge", "rename"):
            disk = self.there.pop(name, "local")
            held = [some for some in (self.backed, self.aside, self.snapshots) if name in some]
            if op["verb"] == "rename":
                self.there[op["new"]] = disk
                for some in held:
                    some.add(op["new"])
            for some in held:
                if op["verb"] == "rename" or some is not self.backed:
                    some.remove(name)

    def backup(self, name):
        fits = self.there.get(name, "network") != "network"
        self.backed.update([name] if fits else [])
        return fits

    def backup_new(self, name):
        return name in self.there.keys() & self.backed

    def backup_over(self, name):
        fits = self.backup_new(name) and name not in self.aside | self.snapshots
        self.aside.update([name] if fits else [])
        return fits

    def backup_again(self, name):
        fits = name in self.backed - self.there.keys()
        self.there[name] = "local"
        return fits

    def backup_confirm(self, name):
        fits = name in self.there.keys() & self.aside
        self.aside.discard(name)
        return fits

    backup_undo = backup_confirm


def test_most_steps_for_backups_can_be_done_and_some_are_mistakes():
    good, every = [], []
    for seed in range(150):
        one = Possible()
        for step in steps.draw(seed):
            one.step(step["ops"])
        good += one.good
        every += one.all
    assert 0.7 < len(good) / len(every) < 0.95
    assert set(good) == {verb for verb, *_ in steps.VERBS if verb.startswith("backup")}
    assert all(good.count(verb) < every.count(verb) for verb in set(good))


def test_every_verb_every_way_every_fault_and_every_disk_is_drawn():
    drawn = [step for seed in range(150) for step in steps.draw(seed, 12)]
    ops = [op for step in drawn for op in step["ops"]]
    assert {op["verb"] for op in ops} == {verb for verb, _, _ in steps.VERBS}
    assert {op["via"] for op in ops} == {"runner", "host", "state"}
    assert {op["disk"] for op in ops if op["verb"] == "init"} == set(steps.DISKS)
    faults = [fault for step in drawn for fault in step["faults"]]
    assert {fault["kind"] for fault in faults} == {kind for kind, _, _ in steps.FAULTS}
    assert {len(step["ops"]) for step in drawn} == {1, 2, 3}


def test_no_size_is_asked_for_of_a_disk_that_is_a_lun():
    """Seed 771302: the update did as it was told, and a new disk took the LUN's place."""
    sized = 0
    for seed in range(200):
        luns = set()
        for op in (op for step in steps.draw(seed, 12) for op in step["ops"]):
            if op.get("disk") == "network":
                luns.update([op["name"]] if op["verb"] == "init" else op["names"])
            if op["verb"] in ("rename", "clone") and op["name"] in luns:
                luns.add(op["new"])
            if op["verb"] in ("rename", "purge"):
                luns.discard(op["name"])
            if op["verb"] == "update" and "size" in op:
                assert op["name"] not in luns, seed
                sized += 1
    assert sized > 5


def test_every_operation_is_a_command():
    ops = [op for seed in range(60) for step in steps.draw(seed, 12) for op in step["ops"]]
    for op in ops:
        argv = act.command(op, lambda name: "hv1")
        assert argv[0] in ("salt", "salt-run")
        assert all(isinstance(word, str) for word in argv), argv


def test_steps_that_are_none_are_refused():
    for text in ("{}", "[1]", "[{}]", '[{"ops": 1}]', "x"):
        with pytest.raises(ValueError):
            steps.loads(text)


def test_shrinking_finds_the_one_step_and_what_of_it_counts():
    given = steps.draw(11, 12)
    given[6] = {
        "ops": [{"verb": "purge", "name": "a"}, {"verb": "bad", "name": "b"}],
        "faults": [{"kind": "kill_runner", "op": 1}, {"kind": "cut", "host": "hv1"}],
    }

    def fails(fewer):
        return any(
            op["verb"] == "bad" and any(f.get("op") == at for f in step["faults"])
            for step in fewer for at, op in enumerate(step["ops"])
        )  # fmt: skip

    short = [{"ops": [{"verb": "bad", "name": "b"}], "faults": [{"kind": "kill_runner", "op": 0}]}]
    assert shrink.shrink(given, fails) == short


def test_shrinking_that_has_no_time_left_gives_its_best():
    asked = []

    def fails(fewer):
        asked.append(fewer)
        if len(asked) > 1:
            raise StopIteration
        return True

    given = steps.draw(5, 8)
    assert shrink.shrink(given, fails) == asked[0]
    assert len(asked[0]) == 4


def test_nothing_is_broken_where_all_is_well(seen, model):
    assert broken(seen, model) == []
    assert invariants.same_as_before(seen, copy.deepcopy(seen)) == []


@pytest.mark.parametrize(
    ("word", "spoil"),
    [
        ("place: g is on no host", lambda s: s["hv1"]["domains"].clear()),
        ("place: g is on hv1 (running), hv2 (off)",
         lambda s: s["hv2"]["domains"].update(g=domain("off"))),
        ("place: g on hv1 is not defined",
         lambda s: s["hv1"]["domains"]["g"].update(persistent=False)),
        ("twice: g runs on hv1, hv2", lambda s: s["hv2"]["domains"].update(g=domain())),
        ("disk: g on hv1 has 4 records, it had 5",
         lambda s: s["hv1"]["domains"]["g"]["content"].update(count=4)),
        ("disk: g on hv1: torn",
         lambda s: s["hv1"]["domains"]["g"]["content"].update(problem="torn")),
        ("key: x is pending", lambda s: s["master"]["keys"]["pending"].append("x")),
        ("promised: 9 vCPUs on hv1", lambda s: s["hv1"]["domains"]["g"].update(vcpus=9)),
        ("promised: ", lambda s: s["hv1"]["domains"]["g"].update(memory_kib=8 * 1024**2)),
        ("promised: disks on hv1 may grow by 66060288 bytes, 62914560 are free",
         lambda s: s["hv1"].update(free_bytes=60 * 1024**2)),
        ("qemu: x on hv2", lambda s: s["hv2"]["qemus"].append("x")),
        ("qemu: g on hv1", lambda s: s["hv1"]["qemus"].clear()),
        ("lock: /run/l is held on hv2", lambda s: s["hv2"]["held"].append("/run/l")),
        ("tool: qemu-img runs on hv1", lambda s: s["hv1"]["tools"].append("qemu-img")),
        ("uuid: g, h have the UUID u", lambda s: s["hv2"]["domains"].update(h=domain())),
        ("traceback: master logged", lambda s: s["master"]["traces"].append("T")),
    ],
)  # fmt: skip
def test_what_is_broken_is_named(seen, model, word, spoil):
    spoil(seen)
    assert any(line.startswith(word) for line in broken(seen, model)), broken(seen, model)


def test_a_backup_that_lacks_a_record_is_named(seen):
    seen["hv2"]["backups"] = {"/srv/vault/u/1/vda.qcow2": None, "/srv/vault/u/2/vda.qcow2": "torn"}
    assert invariants.kept(seen) == ["backup: /srv/vault/u/2/vda.qcow2: torn"]


def after(model, verb, ok=True, **op):
    op = {"verb": verb, "name": "g", "via": "runner", **op}
    model.prepare([op])
    model.end([act.Done(op, 0 if ok else 1, "", "", 1)])


def test_what_comes_from_a_backup_has_what_that_has(model):
    g = model.guests["g"]
    after(model, "backup")
    g.floor = 9
    after(model, "backup", ok=False)  # whether it was made is not known
    after(model, "backup_new", new="h")
    assert (g.definitions_folder, g.floor) == (5, 9)
    assert (model.guests["h"].floor, model.guests["h"].status) == (5, "alive")
    after(model, "backup_over", ok=False)
    assert g.floor == 5
    g.floor = 20
    after(model, "backup_undo", ok=False)
    assert g.floor == 9
    after(model, "backup_undo")
    assert g.aside is None
    after(model, "purge")
    after(model, "backup_again")
    assert (g.status, g.floor, g.seeded) == ("alive", 5, False)


def test_keys_that_a_lab_had_before_are_nobodys_fault(seen, model):
    one = run.Run(SimpleNamespace(hosts=["hv1", "hv2"]))
    one.model, one.before = model, copy.deepcopy(seen)
    seen["master"]["keys"]["pending"].append("other")
    assert one._settled(seen) == ["key: other is pending"]
    one.before = copy.deepcopy(seen)
    assert one._settled(seen) == []


@pytest.mark.parametrize("deaf", [("hv2",), ()])
def test_a_minion_that_salt_left_deaf_is_restarted_and_named(deaf):
    class Lab:
        hosts = ("hv1", "hv2")

        def __init__(self):
            self.restarted = ()

        def wait_for_minion(self, *_names, timeout_s):
            if not self.restarted:
                raise LabError("no test.ping")

        def exec(self, host, _command, check):
            return SimpleNamespace(returncode=int(host not in deaf))

        def restart_minion(self, *hosts):
            self.restarted = hosts

    lab, said = Lab(), []
    one = run.Run(lab, said.append)
    if deaf:
        one._await_minions("step 1")
        assert lab.restarted == deaf
        assert "named: hv2: deaf by Salt's own fault" in said[0]
    else:
        with pytest.raises(run.Broken, match="wait: no test"):
            one._await_minions("step 1")
        assert lab.restarted == ()


def test_a_disk_on_shared_storage_is_the_same_on_two_hosts_and_a_local_one_is_not(seen, model):
    seen["hv2"]["domains"]["h"] = domain()
    seen["hv2"]["qemus"] = ["h"]
    assert invariants.written_twice(seen) == []
    for host, name in (("hv1", "g"), ("hv2", "h")):
        seen[host]["domains"][name] = domain(path="/srv/gluster/g")
    assert invariants.written_twice(seen) == [
        "twice: shared:/srv/gluster/g is written by g on hv1, h on hv2"
    ]
    for host, name in (("hv1", "g"), ("hv2", "h")):
        seen[host]["domains"][name] = domain(kind="network", path="iqn/1")
    assert len(invariants.written_twice(seen)) == 1


def test_what_a_snapshot_takes_of_a_disk_was_promised_to_nobody(seen, model):
    large = domain(path="/srv/local/h", has=200 * 1024**2)
    seen["hv1"]["domains"]["h"], seen["hv1"]["free_bytes"] = large, 0
    assert invariants.promised_disks(seen) == []
    large["disks"][0]["has"] = 64 * 1024**2
    assert len(invariants.promised_disks(seen)) == 1
    seen["hv1"]["domains"]["g"] = domain(path="/srv/gluster/g")
    assert invariants.promised_disks(seen) == []


def test_what_is_on_a_lun_is_read_there_until_a_snapshot_takes_the_writes(seen, model):
    guest = model.guests["g"] = Guest("g", "alive", floor=5, lun=2)
    seen["master"]["luns"]["lun2"] = {"count": 4, "problem": None}
    network = seen["hv1"]["domains"]["g"] = domain(kind="network", path="iqn/1")
    network["content"] = {"count": None, "problem": None}
    assert invariants.contents(seen, [guest]) == ["disk: g on hv1 has 4 records, it had 5"]
    assert invariants.count(seen, guest) == 4
    network["content"] = {"count": 7, "problem": None}
    assert invariants.contents(seen, [guest]) == []
    assert invariants.count(seen, guest) == 7


def test_the_permission_that_an_operator_gave_may_stay(seen, model):
    path = "/etc/salt/pki/master/virtkeys/hv1/s1-g5"
    step = [{"verb": "init", "name": "s1-g5", "via": "state", "host": "hv1", "seeded": True}]
    before = copy.deepcopy(seen)
    seen["master"]["files"] += [path, "/etc/salt/pki/master/virtkeys", path.rpartition("/")[0]]
    seen["master"]["files"] += ["/etc/salt/pki/master/virt-accepted"]
    model.prepare(step, [{"kind": "cut"}])
    model.guests["s1-g5"].status = "gone"
    assert broken(seen, model) == []
    assert invariants.same_as_before(seen, before, model.guests["s1-g5"].may_stay) == []
    model.guests["s1-g5"].may_stay.clear()
    assert broken(seen, model) == [f"left: {path} on master"]
    assert list(act.before(step[0], None)) == [["salt-run", "virt.authorize", "s1-g5", "hv1"]]


def test_a_seeded_guest_can_move_when_its_volume_was_ejected():
    moves = [op for step in steps.draw(4, 60) for op in step["ops"] if op["verb"] == "migrate"]
    ejected = [list(act.before(op, lambda name: "hv2")) for op in moves if op.get("eject")]
    assert 0 < len(ejected) < len(moves)
    assert all(argv[0][3:5] == ["hv2", "virt.seed_eject"] for argv in ejected)


@pytest.mark.parametrize(("faults", "needed"), [([], True), ([{"kind": "cut"}], False)])
def test_a_host_that_makes_a_guest_by_itself_hands_its_key_in_if_it_can(model, faults, needed):
    one = {"verb": "init", "name": "h", "via": "host", "host": "hv1", "seeded": True}
    model.prepare([one], faults)
    assert model.guests["h"].seeded is needed


def test_a_guest_that_its_host_moved_is_known_to_have_strayed(model):
    model.end([done("migrate", name="g")])
    assert not model.guests["g"].strayed
    one = done("migrate", name="g")
    one.op["via"] = "host"
    model.end([one])
    assert model.guests["g"].strayed


def test_whom_nobody_heard_of_again_is_written_down_until_a_purge_by_the_runner(model):
    model.end([done("init", ok=False, name="g")])
    assert model.guests["g"].may_stay == {"/var/cache/salt/master/virt/begun/g"}
    model.end([done("purge", name="g")])
    assert model.guests["g"].may_stay == set()


@pytest.mark.parametrize(("verb", "via", "stays"), [
    ("purge", "host", True), ("rename", "runner", True), ("purge", "runner", False),
])  # fmt: skip
def test_what_a_caller_who_was_killed_was_not_told_may_stay(model, verb, via, stays):
    """A disk that other hosts may have; the runner's purge has asked them before."""
    model.end([done(verb, killed=True, name="g", new="h", via=via)])
    assert ("/srv/gluster/g_system" in model.guests["g"].may_stay) is stays


def test_of_a_purged_guest_nothing_is_left_but_what_the_purge_named(seen, model):
    model.guests["s1-g1"] = Guest("s1-g1", "gone")
    seen["hv2"]["files"] += ["/srv/local/s1-g1_system.qcow2", "/srv/local/s1-g10_system.qcow2"]
    assert broken(seen, model) == ["left: /srv/local/s1-g1_system.qcow2 on hv2"]
    model.guests["s1-g1"].named = "kept: /srv/local/s1-g1_system.qcow2"
    assert broken(seen, model) == []


def test_mounts_loops_sockets_and_files_that_came_are_named(seen):
    before = copy.deepcopy(seen)
    seen["hv1"]["mounts"].append("/mnt")
    seen["hv1"]["loops"].append("/x")
    seen["hv2"]["sockets"].append("port 49152")
    seen["hv2"]["files"].append("/srv/local/part")
    assert len(invariants.same_as_before(seen, before)) == 4
    named = "kept: /srv/local/part (other hosts may use it)"
    assert len(invariants.same_as_before(seen, before, named=named)) == 3


@pytest.mark.parametrize(
    "path",
    ["/var/lib/salt-virt/making", "/var/lib/libvirt/qemu/channel/target/domain-7-g/agent.0"],
)
def test_empty_folders_of_ours_and_what_libvirt_leaves_at_a_power_loss_stay(seen, path):
    before = copy.deepcopy(seen)
    seen["hv1"]["files"].append(path)
    assert invariants.same_as_before(seen, before) == []


@pytest.mark.parametrize(("load", "found"), [(0.5, 1), (2, 1), (5, 2.5), (90, 10)])
def test_a_guest_may_boot_longer_on_a_machine_that_is_busy(load, found):
    assert invariants.slowness(load, 2) == found


def test_locks_of_the_master_stay_wherever_they_are(seen, tmp_path):
    before = copy.deepcopy(seen)
    opts = {"cachedir": str(tmp_path), "virt": {}}
    with (
        lock.guest(opts, "g", "virt.start"), lock.deployment(opts, "chaos"),
        slots.deploying(opts, print, "virt.init of g"),
    ):  # fmt: skip
        location_cache.store(opts, "g", "hv1")
    there = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(there) >= 4
    seen["master"]["files"] += [
        str(path).replace(str(tmp_path), "/var/cache/salt/master") for path in there
    ]
    assert invariants.same_as_before(seen, before) == []


def done(verb, ok=True, killed=False, **op):
    rc = None if killed else int(not ok)
    return act.Done({"verb": verb, "via": "runner", **op}, rc, "{}", "", 1.0)


@pytest.mark.parametrize(
    ("ended", "status"),
    [
        ([done("purge", name="g")], "gone"),
        ([done("purge", ok=False, name="g")], "unsure"),
        ([done("purge", killed=True, name="g")], "unsure"),
        ([done("migrate", ok=False, name="g")], "alive"),
        ([done("purge", name="g"), done("migrate", ok=False, name="g")], "gone"),
        ([done("rename", name="g", new="h")], "gone"),
    ],
)
def test_what_became_of_a_guest(model, ended, status):
    model.prepare([{**one.op, "disk": "local"} for one in ended])
    model.end(ended)
    assert model.guests["g"].status == status


def test_a_new_guest_is_alive_only_when_it_was_said(model):
    for name, one in {"a": done("init", name="a"), "b": done("init", ok=False, name="b"),
                      "c": done("init", killed=True, name="c"),
                      "d": done("clone", name="g", new="d")}.items():  # fmt: skip
        model.prepare([{**one.op, "disk": "thin"}])
        model.end([one])
        assert model.guests[name].status == ("alive" if one.ok else "unsure")
    assert model.guests["d"].floor == model.guests["g"].floor


@pytest.mark.parametrize(
    ("one", "word"),
    [
        (act.Done({"verb": "x", "via": "runner"}, 1, '{"comment": "no"}', "", 1.0), None),
        (act.Done({"verb": "x", "via": "runner"}, 1, '{"comment": "a\\nb"}', "", 1.0), "lines"),
        (act.Done({"verb": "x", "via": "runner"}, 2, '{"comment": "no"}', "", 1.0), "exit"),
        (act.Done({"verb": "x", "via": "runner"}, 0, '{"result": false}', "", 1.0), "exit"),
        (act.Done({"verb": "x", "via": "runner"}, 1, "", "", 1.0), "silent"),
        (act.Done({"verb": "x", "via": "runner"}, 1, "", act.TRACE, 1.0), "traceback"),
        (act.Done({"verb": "x", "via": "runner"}, -9, "", "", 900.0, True), "wait"),
        (act.Done({"verb": "x", "via": "runner"}, None, "", "", 1.0), None),
    ],
)
def test_how_a_failure_is_told(one, word):
    found = act.wrong_form(one)
    assert [line.partition(":")[0] for line in found] == ([word] if word else [])


def record(number, filler=None, magic=b"SALTVIRT"):
    body = inside.RECORD.pack(magic, number, 1, 1, b"boot", bytes([number & 255]) * 432, 0)[:-8]
    if filler is not None:
        body = body[:72] + filler + body[73:]
    return body + inside.checksum(body).to_bytes(8, "little")


@pytest.mark.parametrize(
    ("records", "found"),
    [
        ([record(0), record(1)], (2, None)),
        ([], (0, None)),
        ([record(0), record(2)], (1, "record 1 has the number 2")),
        ([record(0), bytes(512), record(2)], (1, "a record is missing after 1")),
        ([record(0), record(1, b"x")], (1, "record 1 is torn")),
        ([record(0), record(1)[:-1] + b"x"], (1, "record 1 has a wrong sum")),
    ],
)
def test_the_pattern_of_a_disk(tmp_path, records, found):
    path = tmp_path / "raw"
    path.write_bytes(bytes(inside.START) + b"".join(records) + bytes(4096))
    with open(path, "rb") as file:
        assert inside.pattern(file, 0) == found


def test_how_large_a_disk_may_become_is_read_from_its_header(tmp_path):
    thin, raw, short = tmp_path / "thin", tmp_path / "raw", tmp_path / "short"
    thin.write_bytes(b"QFI\xfb" + bytes(20) + (64 * 1024**2).to_bytes(8, "big") + bytes(4064))
    raw.write_bytes(bytes(8192))
    short.write_bytes(b"QFI\xfb")
    assert inside.sizes(thin)["size"] == 64 * 1024**2
    assert 4096 <= inside.sizes(thin)["has"] < 64 * 1024
    assert inside.sizes(raw)["size"] == 8192
    assert inside.sizes(short) == inside.sizes(tmp_path / "none") == {}


def test_a_disk_is_read_from_its_definition():
    text = ("<disk type='volume' device='disk'><driver type='raw'/><source pool='data' volume='v'/>"
            "<target dev='vda'/></disk>")  # fmt: skip
    read = inside.disk_of(inside.ET.fromstring(text))
    assert (read["kind"], read["path"], read["format"]) == ("file", "/srv/gluster/v", "raw")
    network = SimpleNamespace(text="<disk type='network'><source protocol='iscsi' name='i/1'/>"
                                   "<target dev='vda'/></disk>")  # fmt: skip
    read = inside.disk_of(inside.ET.fromstring(network.text))
    assert (read["kind"], read["path"]) == ("network", "i/1")
    assert json.dumps(read)
