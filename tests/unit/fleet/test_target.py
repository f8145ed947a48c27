"""The names that ``virt:hosts`` reserves for hypervisors, as Salt reads a compound target."""

import socket

import pytest

pytest.importorskip("salt")

import salt.config

from saltvirt import errors
from saltvirt.fleet import client, target

GROUPS = {"cloud": "L@hv1,hv2", "wide": "N@cloud or rack*", "list": ["L@hv1"]}


def opts(hosts):
    return {"virt": {"hosts": hosts} if hosts else {}, "nodegroups": GROUPS}


@pytest.mark.parametrize(
    ("hosts", "name"),
    [
        ("hyper*", "hyper7"),
        ("hyper[0-9]", "hyper7"),
        ("hv1", "hv1"),
        ("L@hv1,hv2", "hv2"),
        (r"E@hyper\d+", "hyper7"),
        (r"E@hyper\d+", "hyper7-web"),  # Salt's E@ is not anchored at its end
        (r"E@(?i)hyper", "HYPER7"),
        ("N@cloud", "hv2"),
        ("N@wide", "rack-web"),
        ("N@list", "hv1"),
        ("web1 or ( hyper* and not hyper9 )", "hyper7"),
        ("G@virt_host:hypervisor:True or hyper*", "hyper7"),
        # the rest of what it asks for the guest could claim
        ("hyper* and G@virt_host:hypervisor:True", "hyper7"),
        ("hyper* and not G@role:spare", "hyper7"),
        ("hyper* and I@role:host", "hyper7"),
        ("hyper* and S@10.0.0.0/8", "hyper7"),
        ("G@a:b and hyper* and not P@c:d", "hyper7"),
        ("*", "web1"),
        ("not web*", "db1"),
    ],
)
def test_a_name_of_hypervisors_is_no_guests(hosts, name):
    with pytest.raises(errors.InvalidInput, match=f"{name} cannot be a guest's name: virt:hosts"):
        target.refuse_host(opts(hosts), name)


@pytest.mark.parametrize(
    ("hosts", "name"),
    [
        (None, "hyper7"),
        ("hyper*", "web1"),
        ("hyper*", "myhyper7"),
        ("hyper[0-9]", "hyper77"),
        ("L@hv1,hv2", "hv3"),
        (r"E@hyper\d+$", "hyper7-web"),
        ("N@cloud", "hv3"),
        ("N@unknown", "hv3"),
        ("hyper* and not hyper9", "hyper9"),
        ("G@virt_host:hypervisor:True", "hyper7"),
        ("G@virt_host:hypervisor:True or hyper*", "web1"),
        ("not web*", "web1"),
        ("* and not web*", "web1"),
        ("G@virt_host:hypervisor:True and not web*", "db1"),
    ],
)
def test_other_names_are_free(hosts, name):
    assert target.refuse_host(opts(hosts), name) == name


def test_a_claim_alone_makes_no_hypervisor_by_name():
    assert not target.by_name(opts(None), "hv1")
    assert not target.by_name(opts("hv* and G@virt_host:hypervisor:True"), "hv1")
    assert target.by_name(opts("hv*"), "hv1")
    assert target.by_name(opts("hv* or G@virt_host:hypervisor:True"), "hv1")
    assert target.by_name({"virt.hosts": "N@cloud", "nodegroups": GROUPS}, "hv2")
    assert not target.by_name({"virt.hosts": "N@cloud", "nodegroups": None}, "hv2")


def test_a_resource_of_salt_3008_is_no_hypervisor(monkeypatch):
    """Any minion registers resources under any id, and Salt lists them beside the minions."""
    salts = target.salt.utils.minions.CkMinions
    monkeypatch.setattr(salts, "__init__", lambda self, opts: None)
    monkeypatch.setattr(salts, "_pki_minions", lambda self: {"hv1", "web1"})
    found = {"minions": ["hv1", "hv9"], "missing": []}
    monkeypatch.setattr(salts, "check_minions", lambda self, *args, **kwargs: found)
    assert target.hosts(opts("L@hv1,hv9")) == ["hv1"]


def test_a_target_that_is_no_text_is_refused():
    for wrong in (["hv1"], 5, {"hv1": True}):
        with pytest.raises(errors.InvalidInput, match="virt:hosts must be a compound target"):
            target.expression(opts(wrong))


@pytest.fixture
def asked(monkeypatch):
    """What Salt's reading of targets was asked, on a master with the minions hv1 and web1."""
    salts = target.salt.utils.minions.CkMinions
    found = []
    monkeypatch.setattr(salts, "__init__", lambda self, opts: None)
    monkeypatch.setattr(salts, "_pki_minions", lambda self: {"hv1", "web1"})

    def check(self, expr, tgt_type, greedy):
        found.append((expr, tgt_type, greedy))
        return {"minions": ["web1", "hv1"], "missing": []}

    monkeypatch.setattr(salts, "check_minions", check)
    monkeypatch.setattr(
        salts, "connected_ids", lambda self, subset=None: found.append(subset) or ["hv1"]
    )
    return found


def test_which_minions_are_asked_for(asked):
    """Not greedily: a minion without grains would match a grain and be waited for."""
    assert target.hosts(opts("hv*")) == ["hv1", "web1"]
    assert target.hosts(opts("hv*"), "db*") == ["hv1", "web1"]
    assert target.accepted(opts("hv*")) == ["hv1", "web1"]
    assert asked == [(text, "compound", False) for text in ("hv*", "db*", "*")]


def test_who_is_connected(asked):
    assert target.connected(opts("hv*")) == {"hv1"}
    assert target.connected(opts("hv*"), ["hv1", "hv2"]) == {"hv1"}
    assert target.connected(opts("hv*"), []) == {"hv1"}
    assert asked == [None, {"hv1", "hv2"}, set()]


def test_who_has_reported(monkeypatch):
    grains = {"hv1": ("hv1", {"id": "hv1"}, None), "hv2": (None, None, {"pillar": 1})}
    monkeypatch.setattr(
        target.salt.utils.minions, "get_minion_data", lambda minion_id, opts: grains[minion_id]
    )
    assert target.reported(opts("hv*"), "hv1") is True
    assert target.reported(opts("hv*"), "hv2") is False


def mixed(count):
    """A target of so many claims, of which some must hold and some must not, and a name."""
    words = (f"{'not ' if number % 2 else ''}G@a:{number}" for number in range(count))
    return f"{' and '.join(words)} and hyper*"


def test_of_many_claims_all_or_none_are_tried():
    """Six claims have 64 combinations; of seven none is tried one by one."""
    for target_text in (mixed(1), mixed(6), mixed(6).replace("not ", ""),
                        mixed(7).replace("not ", ""), mixed(9).replace("not ", "")):  # fmt: skip
        with pytest.raises(errors.InvalidInput, match="hyper7 cannot be a guest's name"):
            target.refuse_host(opts(target_text), "hyper7")
    assert target.refuse_host(opts(mixed(7)), "hyper7") == "hyper7"


@pytest.mark.parametrize("kept", [True, False, None])
def test_what_an_earlier_minion_told_is_forgotten_where_the_master_keeps_it(monkeypatch, kept):
    gone = []
    cache = type("Cache", (), {"flush": lambda _self, bank, key: gone.append((bank, key))})
    monkeypatch.setattr(target.salt.cache, "factory", lambda opts: cache())
    target.forget({} if kept is None else {"minion_data_cache": kept}, "web1")
    banks = [("minions/web1", "data"), ("grains", "web1"), ("pillar", "web1")]
    assert gone == (banks if kept else [])


def test_without_a_hypervisor_it_is_said_what_makes_one(monkeypatch):
    monkeypatch.setattr(target, "hosts", lambda _opts: [])
    fleet = client.Fleet(opts("hyper*"))
    with pytest.raises(errors.NotFound, match=r"no accepted minion matches virt:hosts, 'hyper\*'"):
        fleet.hosts()
    with pytest.raises(errors.NotFound, match=r"virt:hosts is not set .* no accepted minion"):
        client.Fleet({}).hosts()
    with pytest.raises(errors.NotFound, match=r"'hyper1' is not a hypervisor .*; known: none"):
        fleet.hosts("hyper1")


def test_who_tells_of_something_is_not_ended_by_a_master_that_has_stopped(tmp_path, caplog):
    found = salt.config.master_config(None)
    found.update(sock_dir=str(tmp_path), cachedir=str(tmp_path))
    path = tmp_path / "master_event_pull.ipc"
    with client.Fleet(found) as fleet:
        with socket.socket(socket.AF_UNIX) as bus:
            bus.bind(str(path))
            bus.listen()
            fleet.fire_event("salt/virt/x/step", {"guest": "web1"})
            bus.accept()[0].close()
        path.unlink()
        for _ in range(2):
            fleet.fire_event("salt/virt/x/failed", {"guest": "web1"})
    assert "the event salt/virt/x/failed was not sent: " in caplog.text


def test_a_client_reads_the_key_of_a_user_that_there_is():
    """In what a reactor begins Salt has put the word ``Reactor`` there."""
    import getpass

    found = client._with_user({"user": "Reactor", "x": 1})
    assert found == {"user": getpass.getuser(), "x": 1}
    assert client._with_user({"user": "nobody"})["user"] == "nobody"
    assert client._with_user({})["user"] == "root"
