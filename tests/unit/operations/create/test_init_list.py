"""``salt-run virt.init`` of several names: one plan from one inventory, and one line for each
guest. tests/counted.py defines what counts as a job."""

import importlib.util

import pytest

pytest.importorskip("salt")

from saltvirt import errors, names
from saltvirt.fleet.answer import FAILED, Answer
from saltvirt.fleet.keys import KeyStore
from saltvirt.operations.cluster import find
from saltvirt.operations.core import operation
from saltvirt.operations.create import init_list
from saltvirt.operations.create.init import Init
from saltvirt.operations.create.init_list import InitList
from saltvirt.operations.create.request import InitRequest
from saltvirt.operations.journal import lock
from saltvirt.placement import policy
from saltvirt.spec import single_guest as of_one
from tests.counted import NEEDS, Cloud
from tests.lab.paths import REPOSITORY

POLICY = policy.from_config(None, None)
MANY = [f"web{number}" for number in range(40)]
WEB1 = {"vcpus": 1, "memory_kib": 1 << 20, "state": "running"}


@pytest.fixture
def deploy(monkeypatch):
    """(what the runner gives back, its exit code) of several guests on a Cloud."""

    def run(cloud, several, test=False, screen=None, **more):
        monkeypatch.setattr(init_list, "Fleet", cloud)
        given = {"image": None, "start": True, **more}
        arguments = {"seed": False, **given.pop("arguments", {})}
        wishes = [InitRequest(n, 1, 512, arguments=dict(arguments), **given) for n in several]
        found = operation.perform(InitList(cloud, POLICY, wishes, 4, screen), test)
        return found, found.pop("retcode", 0)

    return run


# -- which names --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ("web1,web2", ["web1", "web2"]), ("web1, web2", ["web1", "web2"]), ("web1", None),
        (["web1"], ["web1"]), (["web1", 7], ["web1", "7"]), (7, None), (None, None),
        ({"web1": 1}, None),
    ],
)  # fmt: skip
def test_several_names_are_a_list_or_a_text_with_commas(said, found):
    assert names.guest_list(said) == found


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("web1,", "'' cannot be a guest's name"), ([], "the list of names is empty"),
        (["web1", None], "None cannot be a guest's name: give a list of names"),
        ([True], "True cannot be"), ([["web1"]], "cannot be a guest's name"),
        ("a/b,c", "'a/b' cannot be a guest's name"), ("a,b,a", "a is given twice"),
    ],
)  # fmt: skip
def test_a_list_with_one_that_is_no_name_is_refused(said, words):
    with pytest.raises(errors.InvalidInput, match=words):
        names.guest_list(said)


# -- what cannot be of all of them --------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "own"),
    [
        ({"interfaces": [{"name": "eth0"}, {"name": "eth1", "mac": "x"}]}, ["interfaces: mac"]),
        ({"interfaces": [{"addresses": ["192.0.2.1/24"]}]}, ["interfaces: addresses"]),
        ({"disks": [{"name": "system", "source_file": "/x"}]}, ["disks: source_file"]),
        ({"disks": [{"source_file": "/x.iso", "device": "cdrom"}]}, []),
        ({"disks": [{"source_file": "/x", "shareable": True}]}, []),
        ({"disks": [{"source_file": "/x", "read_only": True}]}, []),
        ({"disks": [{"source_file": "/x", "read_only": False}]}, ["disks: source_file"]),
        ({"graphics": {"type": "vnc", "port": 5900}}, ["graphics: port"]),
        ({"graphics": {"type": "vnc"}}, []), ({"graphics": None}, []), ({"disks": "x"}, []),
        ({"serials": [{"type": "tcp", "port": 22222}], "consoles": [{"port": 1, "path": "/p"}]},
         ["serials: port", "consoles: port", "consoles: path"]),
        ({"config": {"id": "web1", "master": "m"}, "priv_key": "k"}, ["priv_key", "config: id"]),
        ({"cpu": 1, "disk": "big", "nic": "lan", "pub_key": None}, []),
    ],
)  # fmt: skip
def test_what_is_one_guests_own_is_named(arguments, own):
    assert of_one.unique_arguments(arguments) == own


def test_and_refused_in_one_line_before_anything_is_asked(tmp_path, deploy):
    cloud = Cloud(tmp_path, 3)
    words = r"^interfaces: mac: only a single guest can have that, and these are 40: deploy one, or"
    with pytest.raises(errors.InvalidInput, match=words):
        deploy(cloud, MANY, arguments={"interfaces": [{"name": "eth0", "mac": "x"}]})
    with pytest.raises(errors.InvalidInput, match="web1 and WEB1: host names do not differ by"):
        deploy(cloud, ["web1", "WEB1"])
    with pytest.raises(errors.InvalidInput, match="group_policy 'x'"):
        deploy(cloud, MANY, group_policy="x")
    with pytest.raises(errors.InvalidInput, match="high availability is not configured"):
        deploy(cloud, MANY, ha=True)
    assert cloud.published == []


def test_a_host_that_is_none_is_said_once(tmp_path, deploy):
    cloud = Cloud(tmp_path, 3)

    def hosts(only=None):
        if only:
            raise errors.NotFound(f"{only!r} is not a hypervisor of this master")
        return list(cloud.names)

    cloud.hosts = hosts
    with pytest.raises(errors.NotFound, match="'hv9' is not a hypervisor"):
        deploy(cloud, MANY, host="hv9")


# -- a plan -------------------------------------------------------------------------------------


def test_a_test_shows_the_plan_for_all_and_asks_all_hosts_once(tmp_path, deploy):
    cloud = Cloud(tmp_path, 20)
    found, code = deploy(cloud, MANY, test=True)
    assert (list(found), code) == (MANY, 0)
    assert {one["result"] for one in found.values()} == {None}
    web0 = found["web0"]
    assert web0["comment"] == (
        f"web0 would be created on {web0['host']}: 1 vCPU, 512 MiB of memory, 10 GiB of disk"
    )
    assert web0["changes"]["created"]["host"] == web0["host"]
    assert "table" not in web0
    assert len({one["host"] for one in found.values()}) == 20  # each sees those before it
    assert cloud.jobs == {"virt.inventory": 1}


def test_a_test_says_why_one_would_not_be(tmp_path, deploy):
    cloud = Cloud(tmp_path, 3, {"hv001": {"web1": WEB1}})
    with lock.guest(cloud.opts, "web2", "virt.clone"):
        found, code = deploy(cloud, ["web1", "web2", "web3"], test=True)
    assert code == 1
    assert [one["result"] for one in found.values()] == [False, False, None]
    assert found["web1"]["comment"] == "web1 already exists, on hv001"
    assert "web2: virt.clone" in found["web2"]["comment"]
    found, code = deploy(cloud, ["web4"], test=True, pillar={"a": 1})
    assert code == 1
    assert found["web4"]["comment"].startswith("this master does not serve the pillar")


# -- what is made -------------------------------------------------------------------------------


def test_each_is_made_where_it_was_planned_and_none_is_asked_about_alone(tmp_path, deploy):
    cloud = Cloud(tmp_path, 20)
    found, code = deploy(cloud, MANY)
    assert (list(found), code) == (MANY, 0)
    where = {name: host for host, guests in cloud.guests.items() for name in guests}
    assert {name: one["host"] for name, one in found.items()} == where
    assert found["web7"]["comment"] == f"web7 is running on {where['web7']}"
    of_all = [fun for fun, hosts in cloud.published if len(hosts) == 20]
    assert of_all.count("virt.inventory") == 1
    # its own host: init, start and the look; and its part of the looks at all hosts
    assert len(cloud.published) / len(MANY) <= 4


def test_a_host_is_told_by_which_policy_and_account_it_was_chosen(tmp_path, deploy):
    cloud, told = Cloud(tmp_path, 2), {}
    init = cloud.virt_init

    def asked(host, name, **kwarg):
        told[name] = kwarg["placement"]
        return init(host, name, **kwarg)

    cloud.virt_init = asked
    deploy(cloud, ["web1", "web2"])
    assert set(told) == {"web1", "web2"}
    for terms in told.values():
        assert terms["policy"]["memory_ratio"] == POLICY.memory_ratio


def test_jobs_are_told_how_many_guests_come_to_each_host(tmp_path, deploy, monkeypatch):
    jobs = []

    class Seen(init_list.BatchedJobs):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            jobs.append(self)

    monkeypatch.setattr(init_list, "BatchedJobs", Seen)
    cloud = Cloud(tmp_path, 3)
    deploy(cloud, MANY)
    assert jobs[0].coming == {host: len(guests) for host, guests in cloud.guests.items()}


def test_one_that_fails_stops_no_other_and_makes_the_exit_code_1(tmp_path, deploy, monkeypatch):
    cloud = Cloud(tmp_path, 3, {"hv001": {"web1": WEB1}})
    monkeypatch.setattr(KeyStore, "status", lambda _k, name: "accepted" if name == "web3" else None)
    init = cloud.virt_init
    cloud.virt_init = lambda host, name, **asked: (
        Answer(host, error="image is broken", kind=FAILED)
        if name == "web4"
        else init(host, name, **{**asked, "pub_key": None})
    )
    found, code = deploy(cloud, ["web1", "web2", "web4"])
    assert code == 1
    assert [one["result"] for one in found.values()] == [False, True, False]
    assert found["web1"]["comment"] == "web1 already exists, on hv001"
    assert found["web4"]["comment"].endswith("image is broken")
    with_key, code = deploy(cloud, ["web3"], arguments={"seed": True})
    assert code == 1
    assert "the master already has an accepted key for web3" in with_key["web3"]["comment"]


def test_a_host_that_refuses_is_passed_over_and_the_next_ones_know(tmp_path, deploy):
    cloud = Cloud(tmp_path, 3)
    cloud.full_kib = {"hv000": 1 << 20}
    found, code = deploy(cloud, MANY)
    assert code == 0
    assert len(cloud.guests["hv000"]) == 2
    assert ("virt.inventory", ["hv000"]) in cloud.published, "it alone says what it has"
    assert sum(map(len, cloud.guests.values())) == 40
    assert {one["result"] for one in found.values()} == {True}


def test_where_there_is_no_room_for_all_those_that_fit_are_made(tmp_path, deploy):
    cloud = Cloud(tmp_path, 2)
    found, code = deploy(cloud, [f"web{n}" for n in range(5)], labels={"rack": "a"})
    assert code == 1
    assert "no host can take web0: " in found["web0"]["comment"]
    assert cloud.jobs == {"virt.inventory": 1}


@pytest.mark.parametrize("test", [True, False])
@pytest.mark.parametrize(
    ("dead", "host", "words"),
    [
        ({"hv000", "hv001"}, None, "no host can take web1: hv000, hv001: down: no connection to"),
        ({"hv001"}, "hv001", "hv001: down: no connection to the master"),
    ],
)
def test_why_a_silent_host_takes_none_is_said_of_each(tmp_path, deploy, dead, host, words, test):
    cloud = Cloud(tmp_path, 2)
    cloud.dead = dead
    found, code = deploy(cloud, ["web1", "web2"], test, host=host, name_is_free=True)
    assert code == 1
    assert words in found["web1"]["comment"]
    assert words.replace("web1", "web2") in found["web2"]["comment"]
    assert "hv000: down" not in found["web1"]["comment"] or host is None


@pytest.mark.parametrize("test", [True, False])
def test_of_the_host_that_is_asked_for_alone_it_is_said_why(tmp_path, deploy, test):
    cloud = Cloud(tmp_path, 2)
    found, code = deploy(cloud, ["web1", "web2"], test, host="hv001", labels={"rack": "none"})
    assert code == 1
    for name in ("web1", "web2"):
        assert "no host can take" in found[name]["comment"] and "hv001" in found[name]["comment"]
        assert "hv000" not in found[name]["comment"]


def test_a_name_that_may_be_on_a_silent_host_is_refused(tmp_path, deploy):
    cloud = Cloud(tmp_path, 3, dead=["hv002"])
    found, code = deploy(cloud, ["web1", "web2"])
    assert code == 1
    assert all("it may be on a host that does not answer" in f["comment"] for f in found.values())
    assert cloud.jobs == {"virt.inventory": 1, "virt.names_on_disk": 1}
    found, code = deploy(cloud, ["web1", "web2"], name_is_free=True)
    assert code == 0
    assert not cloud.guests["hv002"]


def test_a_guest_of_another_master_is_found_as_ever(tmp_path, deploy):
    cloud = Cloud(tmp_path, 3)

    def appears(_host, fun, asked):
        if fun == "virt.init" and asked["name"] == "web1":
            cloud.guests["hv000"]["web1"] = {**WEB1, "state": "shutdown"}
            cloud.guests["hv001"]["web1"] = {**WEB1, "state": "shutdown"}

    cloud.first = appears
    found, code = deploy(cloud, ["web1", "web2"], host="hv002")
    assert code == 1
    assert "web1 was created on hv000" in found["web1"]["comment"]
    assert found["web2"]["result"] is True
    assert "web1" not in cloud.guests["hv002"]


def test_steps_are_lines_that_say_which_guest(tmp_path, deploy):
    class Screen:
        def __init__(self):
            self.lines = []

        def line(self, text):
            self.lines.append(text)

    cloud, screen = Cloud(tmp_path, 2, dead=["hv001"]), Screen()
    deploy(cloud, ["web1", "web2"], name_is_free=True, screen=screen)
    assert {f"web{n}: creating it on hv000" for n in (1, 2)} < set(screen.lines)
    assert len([line for line in screen.lines if "without hv001" in line]) == 1


def test_one_that_is_there_is_found_by_the_others_of_its_group(tmp_path, deploy):
    cloud = Cloud(tmp_path, 3)
    found, _ = deploy(cloud, MANY[:4], test=True, groups=("g",), group_policy="separate")
    assert [one["result"] for one in found.values()] == [None, None, None, False]


def test_who_cannot_be_made_takes_no_others_place(tmp_path, deploy):
    cloud = Cloud(tmp_path, 1, {"hv000": {"web1": WEB1}})
    cloud.virt_inventory = lambda host, guest=None, ask=cloud.virt_inventory: {
        **ask(host, guest), "memory_kib": 5 << 19,  # for one more, beside what a host keeps
    }  # fmt: skip
    for test in (True, False):
        found, code = deploy(cloud, ["web1", "web2", "web3"], test=test)
        assert code == 1
        assert [one["result"] for one in found.values()] == [False, None if test else True, False]
        assert "no host can take web3" in found["web3"]["comment"]


def test_a_plan_says_what_the_chosen_host_would_give(tmp_path, deploy):
    cloud = Cloud(tmp_path, 2)
    cloud.virt_inventory = lambda host, guest=None, ask=cloud.virt_inventory: {
        **ask(host, guest),
        **({"guest": {**NEEDS, "disk_bytes": (1 + (host == "hv000")) << 30}} if guest else {}),
    }  # fmt: skip
    found, _ = deploy(cloud, MANY[:6], test=True)
    took = {(one["host"], one["changes"]["created"]["disk_bytes"]) for one in found.values()}
    assert took == {("hv000", 2 << 30), ("hv001", 1 << 30)}


def test_a_test_names_a_key_that_is_another_machines_and_a_secret_for_an_unproven_host(
    tmp_path, deploy, monkeypatch
):
    cloud = Cloud(tmp_path, 2)
    status = KeyStore.status
    monkeypatch.setattr(KeyStore, "status", lambda keys, name: "accepted")
    found, code = deploy(cloud, ["web1"], test=True, arguments={"seed": True})
    assert (found["web1"]["result"], code) == (False, 1)
    assert "the master already has an accepted key for web1" in found["web1"]["comment"]
    monkeypatch.setattr(KeyStore, "status", status)

    def refuse(_init, hosts):
        raise errors.InvalidInput(f"priv_key: may be secret, and {hosts[0]} is none by name")

    monkeypatch.setattr(Init, "check_secrets", refuse)
    found, code = deploy(cloud, ["web1"], test=True)
    assert (found["web1"]["result"], code) == (False, 1)
    assert found["web1"]["comment"].startswith("priv_key: may be secret, and hv00")


@pytest.mark.parametrize(("seed", "turns"), [(True, 4), (False, init_list.THREADS)])
def test_a_look_at_all_hosts_is_for_as_many_guests_as_there_are_hosts(
    tmp_path, deploy, monkeypatch, seed, turns
):
    cloud, told = Cloud(tmp_path, 20, dead=["hv003"]), []
    each = init_list.create_each
    monkeypatch.setattr(
        init_list, "create_each", lambda *asked: told.append(asked[2:]) or each(*asked)
    )
    deploy(cloud, ["web1"], name_is_free=True, arguments={"seed": seed})
    assert told == [(turns, 20)]


@pytest.mark.parametrize(
    ("arguments", "shared"),
    [
        ({}, True), ({"graphics": {"type": "vnc", "password": "x"}}, False),
        ({"seed": True}, False),
    ],
)  # fmt: skip
def test_guests_without_a_key_or_a_secret_share_the_jobs_of_their_hosts(
    tmp_path, deploy, monkeypatch, arguments, shared
):
    monkeypatch.setattr(Init, "check_secrets", lambda _init, _hosts: None)
    cloud = Cloud(tmp_path, 3)
    found, code = deploy(cloud, MANY[:12], arguments=arguments)
    assert code == 0 and all(found[name]["result"] for name in MANY[:12]), found
    fewest = min(cloud.jobs["virt.init"], cloud.jobs["virt.power"])
    assert fewest == 12 if not shared else fewest < 12, cloud.jobs
    assert {one["state"] for mine in cloud.guests.values() for one in mine.values()} == {"running"}


def test_whoever_says_nothing_of_seeding_is_seeded_and_shares_no_job():
    assert not init_list._are_light(InitRequest("web1", 1, 512, None))
    assert init_list._are_light(InitRequest("web1", 1, 512, None, arguments={"seed": False}))


def test_one_of_a_shared_job_that_its_host_refuses_is_made_elsewhere(tmp_path, deploy):
    cloud = Cloud(tmp_path, 3)
    cloud.refuses["hv001"] = "refused: hv001: another is here"
    found, code = deploy(cloud, MANY[:9])
    assert code == 0, found
    assert not cloud.guests["hv001"]
    assert {found[name]["host"] for name in MANY[:9]} == {"hv000", "hv002"}


# -- the runner's function ----------------------------------------------------------------------


@pytest.fixture
def runner(tmp_path, monkeypatch):
    """virt.init over a Cloud, whose ``typed`` is what a user of salt-run gets."""
    spec = importlib.util.spec_from_file_location("runner", REPOSITORY / "_runners/virt.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    cloud = Cloud(tmp_path, 3)
    module.__opts__, module.__salt__ = cloud.opts, {"event.send": lambda *_a, **_k: None}
    monkeypatch.setattr(module, "Fleet", cloud)
    monkeypatch.setattr(init_list, "Fleet", cloud)
    module.cloud = cloud
    return module


@pytest.mark.parametrize("said", ["web1,web2", ["web1", "web2"]])
def test_a_list_and_a_text_with_commas_are_the_same_to_the_runner(runner, said):
    asked = {"cpu": 1, "mem": 512, "image": None, "seed": False}
    planned = runner.init(said, test=True, **asked)["data"]
    assert [one["result"] for one in planned.values()] == [None, None]
    data = runner.init(said, at_once=2, **asked)["data"]
    assert [one["comment"] for one in data.values()] == [
        f"{name} is running on {data[name]['host']}" for name in ("web1", "web2")
    ]
    assert find.locate(runner.cloud, "web2")[1] == "running"
    again = runner.init(said, **asked)["data"]
    assert again.pop("retcode") == 1
    assert "already exists" in again["web1"]["comment"]


def test_a_wrong_list_is_one_line_of_the_runner(runner):
    data = runner.init(["web1", "web1"], cpu=1, mem=512, image=None)["data"]
    assert data["retcode"] == 1
    [line] = [one for one in data.values() if isinstance(one, dict)]
    assert line["comment"] == "web1 is given twice"
    data = runner.init("web1,web2", cpu=1, mem=512, image=None, at_once="x")["data"]
    assert "at_once" in data["web1,web2"]["comment"]


def test_one_name_is_as_ever_and_other_verbs_take_no_list(runner):
    data = runner.init("web1", cpu=1, mem=512, image=None, seed=False)["data"]
    assert data["web1"]["comment"].startswith("web1 is running on hv00")
    data = runner.explain(["web1"], 1, 512)["data"]
    [line] = [one for one in data.values() if isinstance(one, dict)]
    assert line["comment"].startswith("name must be a name, not ")
