"""The master's key store, with Salt's own code on the other side."""

import functools
import os
import pathlib
import pwd
import threading

import pytest

pytest.importorskip("salt.key")

import salt.config
import salt.key
import salt.utils.event

from saltvirt import errors
from saltvirt.fleet import authorization, pillars
from saltvirt.fleet.keys import KeyStore
from saltvirt.seed import keys

NAME = "web1.example.org"


@functools.cache
def _generated():
    """They take a second, and all tests of a process may have the same."""
    return [keys.generate()[1] for _ in range(3)]


@pytest.fixture
def pairs():
    return list(_generated())


@pytest.fixture(params=["this Salt", "files of 3006"])
def opts(request, tmp_path):
    found = salt.config.master_config(None)
    found.update(
        pki_dir=str(tmp_path / "pki"),
        cachedir=str(tmp_path / "cache"),
        sock_dir=str(tmp_path / "sock"),
        user="root",
        conf_file=str(tmp_path / "master"),
    )
    for folder in ("sock", "cache"):
        (tmp_path / folder).mkdir()
    if request.param == "files of 3006":
        found["keys.cache_driver"] = None
    for folder in ("minions", "minions_pre", "minions_rejected", "minions_denied"):
        (tmp_path / "pki" / folder).mkdir(parents=True)
    return found


class Events:
    """What was fired, instead of a running master's bus."""

    def __init__(self, monkeypatch):
        self.fired, self.opened = [], []
        monkeypatch.setattr(salt.utils.event, "get_event", self.open)

    def open(self, role, sock_dir, listen=None, **_more):
        self.opened.append((role, sock_dir, listen))
        return self

    def __enter__(self):
        return self

    def __exit__(self, *_exc):
        pass

    def fire_event(self, data, tag, **_kwargs):
        self.fired.append((tag, data))

    def destroy(self):
        pass


@pytest.fixture
def events(monkeypatch):
    return Events(monkeypatch)


@pytest.fixture
def store(opts, events):
    return KeyStore(opts)


def on_disk(opts, state="minions"):
    return sorted(p.name for p in pathlib.Path(opts["pki_dir"], state).iterdir())


def test_exactly_this_key_for_exactly_this_id(opts, store, events, pairs):
    assert store.status(NAME) is None
    assert store.accept(NAME, pairs[0]) is True
    assert store.status(NAME) == "accepted"
    assert events.fired == [("salt/key", {"result": True, "act": "accept", "id": NAME})]
    assert events.opened == [("master", opts["sock_dir"], False)], "it hears nothing"
    assert on_disk(opts) == [NAME]
    assert store.accept(NAME, pairs[0] + "\n") is False
    assert len(events.fired) == 1


def test_of_an_id_without_a_key_nothing_is_known(store):
    assert (store.status(NAME), store.public(NAME), store.accepted(NAME)) == (None, None, None)


@pytest.mark.parametrize("opts", ["this Salt"], indirect=True)
def test_keys_are_where_the_masters_driver_has_them(opts, events, pairs):
    """And what has no key in it is none."""
    if "keys.cache_driver" not in opts:
        pytest.skip("this Salt has files only")
    opts["keys.cache_driver"] = "localfs"
    store = KeyStore(opts)
    assert store.accept(NAME, pairs[0]) is True
    assert store.status(NAME) == "accepted"
    assert on_disk(opts) == []
    salt.cache.Cache(opts, driver="localfs").store("keys", NAME, {"state": "accepted", "pub": ""})
    assert store.status(NAME) is None


def test_salt_sees_it_as_its_own(opts, store, pairs):
    store.accept(NAME, pairs[0])
    if opts.get("keys.cache_driver", True):
        with salt.key.Key(opts) as salts:
            assert salts.list_keys()["minions"] == [NAME]
            assert salts.key_str(NAME)["minions"][NAME].strip() == pairs[0].strip()


def test_another_accepted_key_stays_unless_told(store, pairs):
    store.accept(NAME, pairs[0])
    with pytest.raises(errors.KeyRefused, match=f"salt-key -d {NAME}"):
        store.accept(NAME, pairs[1])
    assert store.public(NAME).strip() == pairs[0].strip()
    store.accept(NAME, pairs[1], replace=True)
    assert store.public(NAME).strip() == pairs[1].strip()


def test_a_pending_key_of_another_goes(opts, store, pairs, tmp_path):
    (tmp_path / "pki/minions_pre" / NAME).write_text(pairs[2])
    assert store.status(NAME) == "pending"
    store.accept(NAME, pairs[0])
    assert on_disk(opts, "minions_pre") == []
    assert store.public(NAME).strip() == pairs[0].strip()


def test_a_rejected_id_stays_rejected(store, pairs, tmp_path):
    (tmp_path / "pki/minions_rejected" / NAME).write_text(pairs[0])
    with pytest.raises(errors.KeyRefused, match="rejected"):
        store.accept(NAME, pairs[0])


@pytest.mark.parametrize("name", ["../x", "a/b", "", ".x", "a b"])
def test_a_bad_id_reaches_no_file(store, pairs, name):
    for call in (lambda: store.accept(name, pairs[0]), lambda: store.delete(name)):
        with pytest.raises(errors.InvalidInput):
            call()


def test_what_is_no_key_is_refused(opts, store):
    with pytest.raises(errors.KeyRefused, match="not a public key"):
        store.accept(NAME, "ssh-rsa AAAA")
    assert on_disk(opts) == []


# deleting is Salt's own code, which here is 3008's
@pytest.mark.parametrize("opts", ["this Salt"], indirect=True)
def test_delete_takes_back_this_key_only(opts, store, pairs, monkeypatch):
    store.accept(NAME, pairs[0])
    assert store.delete(NAME, pairs[1]) is False
    assert store.delete(NAME, pairs[0]) is True
    assert store.status(NAME) is None
    assert store.delete(NAME) is False


def test_a_permission_is_good_once_for_one_host_and_name(opts, store, pairs):
    grants = authorization.Authorizations(opts)
    grants.grant("hv1", NAME)
    assert authorization.submit_key(opts, store, "hv2", NAME, pairs[0]) is False
    assert authorization.submit_key(opts, store, "hv1", "web2", pairs[0]) is False
    assert authorization.submit_key(opts, store, "hv1", NAME, pairs[0]) is True
    assert authorization.submit_key(opts, store, "hv1", NAME, pairs[0]) is False
    assert store.status("web2") is None


def test_a_permission_ends(opts, store, pairs):
    authorization.Authorizations(opts).grant("hv1", NAME, lifetime_s=-1)
    assert authorization.submit_key(opts, store, "hv1", NAME, pairs[0]) is False
    assert store.status(NAME) is None


def test_a_permission_never_replaces_an_accepted_key(opts, store, pairs):
    store.accept(NAME, pairs[0])
    authorization.Authorizations(opts).grant("hv1", NAME)
    assert authorization.submit_key(opts, store, "hv1", NAME, pairs[1]) is False
    assert store.public(NAME).strip() == pairs[0].strip()


def test_of_many_who_redeem_at_once_one_succeeds(opts):
    grants = authorization.Authorizations(opts)
    grants.grant("hv1", NAME)
    won = []
    threads = [
        threading.Thread(target=lambda: won.append(grants.redeem("hv1", NAME))) for _ in range(20)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len([one for one in won if one]) == 1
    assert grants.revoke("hv1", NAME) is False


@pytest.mark.parametrize("host", ["", "../x", "a/b", ".x"])
def test_a_bad_host_reaches_no_file(opts, store, pairs, host):
    assert authorization.submit_key(opts, store, host, NAME, pairs[0]) is False


# -- the pillar of one guest ------------------------------------------------------------------


def served(opts, store, name=NAME):
    return pillars.Pillars(opts).load(name, store.accepted)


def test_a_guests_pillar_is_its_own_and_goes_with_it(opts, store, pairs, tmp_path):
    kept = pillars.Pillars(opts)
    kept.store(NAME, pairs[0], {"role": "store", "token": "s3cret"})
    assert served(opts, store) == {}  # its key is not accepted yet
    store.accept(NAME, pairs[0])
    store.accept("web2", pairs[1])
    assert served(opts, store) == {"role": "store", "token": "s3cret"}
    assert served(opts, store, "web2") == {}
    for name in ("../virtpillars/" + NAME, ".x", "", f"{NAME}/"):
        assert served(opts, store, name) == {}
    [path] = (tmp_path / "pki" / "virtpillars").iterdir()
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert list(kept.orphans(store.accepted)) == []
    assert list(kept.orphans(lambda _name: None)) == [NAME]
    assert kept.remove(NAME)
    assert served(opts, store) == {}
    assert not kept.remove(NAME)


def test_another_machine_of_the_name_does_not_get_the_pillar(opts, store, pairs):
    store.accept(NAME, pairs[0])
    pillars.Pillars(opts).store(NAME, pairs[0], {"role": "store"})
    store.accept(NAME, pairs[1], replace=True)
    assert served(opts, store) == {}


def test_a_permission_carries_the_pillar(opts, store, pairs, caplog):
    authorization.Authorizations(opts).grant("hv1", NAME, pillar={"token": "s3cret"})
    assert authorization.submit_key(opts, store, "hv1", NAME, pairs[0])
    assert served(opts, store) == {"token": "s3cret"}
    assert "s3cret" not in caplog.text


@pytest.mark.parametrize("pillar", ["text", ["list"], {"x": object()}])
def test_what_is_no_pillar_is_refused(opts, pillar):
    opts["ext_pillar"] = [{"virtkey": "_"}]
    with pytest.raises(errors.InvalidInput, match="pillar"):
        pillars.check(opts, pillar)


def test_a_master_that_would_not_serve_it_says_so(opts):
    opts["ext_pillar"] = [{"git": []}]
    with pytest.raises(errors.Unsupported, match="ext_pillar: "):
        pillars.check(opts, {"role": "store"})


@pytest.mark.parametrize("bank", [(f"minions/{NAME}", "data"), ("grains", NAME)])
def test_what_an_earlier_minion_of_the_id_told_is_forgotten(opts, store, pairs, bank):
    opts["minion_data_cache"] = True
    cache = salt.cache.factory(opts)
    cache.store(*bank, {"grains": {"id": NAME}})
    store.accept(NAME, pairs[0])
    assert not cache.fetch(*bank)
    cache.store(*bank, {"grains": {"id": NAME}})
    store.accept(NAME, pairs[0])
    assert cache.fetch(*bank), "the same key again is the same minion"


# -- whose key it is, and where it lies ------------------------------------------------------


def kept_file(opts, name=NAME):
    return pathlib.Path(opts["pki_dir"], "virt-accepted", name)


def test_a_key_is_bound_to_the_host_it_was_accepted_for(opts, store, pairs):
    assert (store.host_of(NAME), store.guest_ids(), store.hosts()) == (None, [], set())
    store.accept(NAME, pairs[0], host="hv1")
    store.accept("web0", pairs[1])
    (kept_file(opts, ".part")).write_text("hv9\n")
    (kept_file(opts, "web9")).write_text("hv9\n")  # its key was deleted by salt-key
    assert store.guest_ids() == ["web0", NAME]
    assert (store.host_of(NAME), store.host_of("web0")) == ("hv1", "")
    assert store.hosts() == {"hv1"}
    assert "another machine" in store.retain_reason("web7", "hv1")
    assert "for a guest of hv1" in store.retain_reason(NAME, "hv2")
    assert store.retain_reason(NAME, "hv1") is None
    assert store.retain_reason("web0", "hv2") is None
    kept_file(opts).write_text("hv1\nanother key")
    assert store.host_of(NAME) is None
    assert store.guest_ids() == ["web0"]


def test_the_key_moves_with_its_guest_alone(store, pairs):
    store.accept(NAME, pairs[0], host="hv1")
    store.rebind(NAME, "hv2", "hv3")
    assert store.host_of(NAME) == "hv1"
    store.rebind(NAME, "hv1", "hv3")
    assert store.host_of(NAME) == "hv3"
    store.rebind("web7", None, "hv3")
    assert store.host_of("web7") is None


def test_only_a_guest_of_the_same_host_replaces_a_key(store, pairs):
    store.accept(NAME, pairs[0], host="hv1")
    with pytest.raises(errors.KeyRefused, match=r"\(accepted\)"):
        store.accept(NAME, pairs[1], replace=True, host="hv2")
    with pytest.raises(errors.KeyRefused, match=r"\(accepted\)"):
        store.accept(NAME, pairs[1], host="hv1")
    assert store.accept(NAME, pairs[1], replace=True, host="hv1") is True
    assert store.accepted(NAME).strip() == pairs[1].strip()


def test_the_same_key_that_waits_is_accepted(store, pairs, events, tmp_path):
    (tmp_path / "pki/minions_pre" / NAME).write_text(pairs[0])
    assert (store.accepted(NAME), store.of_host(NAME)) == (None, None)
    assert store.public(NAME).strip() == pairs[0].strip()
    assert store.accept(NAME, pairs[0]) is True
    assert len(events.fired) == 1
    assert store.of_host(NAME).strip() == pairs[0].strip()
    assert store.of_host("web7") is None
    assert store.of_host("../minions/" + NAME) is None


@pytest.mark.parametrize("again", [False, True])
def test_the_pillar_is_kept_with_the_key(opts, store, pairs, again):
    if again:
        store.accept(NAME, pairs[0], pillar={"role": "old"})
    store.accept(NAME, pairs[0], pillar={"role": "store"})
    assert served(opts, store) == {"role": "store"}
    store.accept(NAME, pairs[0])
    assert served(opts, store) == {"role": "store"}


@pytest.mark.parametrize("opts", ["this Salt"], indirect=True)
def test_with_the_key_goes_what_is_kept_with_it(opts, store, pairs):
    store.accept(NAME, pairs[0], host="hv1", pillar={"role": "store"})
    assert store.delete(NAME) is True
    assert not kept_file(opts).exists()
    assert not pillars.Pillars(opts).remove(NAME)
    store.accept(NAME, pairs[0])
    kept_file(opts).unlink()
    assert store.delete(NAME) is True


@pytest.mark.parametrize("opts", ["this Salt"], indirect=True)
def test_a_key_that_salt_does_not_delete_keeps_its_record(opts, store, pairs, monkeypatch):
    store.accept(NAME, pairs[0], host="hv1")
    monkeypatch.setattr(salt.key.Key, "delete_key", lambda *_a, **_k: None, raising=False)
    with pytest.raises(errors.OperationFailed, match="could not delete the key"):
        store.delete(NAME)
    assert kept_file(opts).exists()


@pytest.mark.parametrize("opts", ["this Salt"], indirect=True)
def test_the_key_of_a_hypervisor_is_neither_taken_nor_deleted(opts, store, pairs):
    store.accept(NAME, pairs[0], host="hv1")
    opts["virt"] = {"hosts": NAME}
    with pytest.raises(errors.KeyRefused, match="it belongs to a hypervisor"):
        store.delete(NAME)
    with pytest.raises(errors.InvalidInput):
        store.accept(NAME, pairs[0], host="hv1")
    assert store.status(NAME) == "accepted"


@pytest.mark.parametrize("opts", ["files of 3006"], indirect=True)
def test_a_cluster_of_masters_has_one_store(opts, pairs, events, tmp_path):
    opts["cluster_pki_dir"] = str(tmp_path / "cluster")
    KeyStore(opts).accept(NAME, pairs[0])
    assert on_disk(opts) == [NAME]
    assert "pub" not in events.fired[-1][1]
    opts["cluster_id"] = "one"
    KeyStore(opts).accept(NAME, pairs[0])
    assert [p.name for p in (tmp_path / "cluster" / "minions").iterdir()] == [NAME]
    assert events.fired[-1][1]["pub"].strip() == pairs[0].strip()
    opts["cluster_pki_dir"] = None
    assert KeyStore(opts).status(NAME) == "accepted"


@pytest.mark.parametrize("opts", ["files of 3006"], indirect=True)
@pytest.mark.parametrize(("user", "uid"), [("nobody", None), (None, 0), ("no such user", 0)])
def test_the_file_of_a_key_is_the_masters_own(opts, pairs, events, tmp_path, user, uid):
    opts["user"] = user
    if os.getuid():
        pytest.skip("another owner is root's to give")
    for name in (NAME, "web2"):
        KeyStore(opts).accept(name, pairs[0])
    seen = (tmp_path / "pki" / "minions" / NAME).stat()
    assert seen.st_mode & 0o777 == 0o640
    assert seen.st_uid == (pwd.getpwnam(user).pw_uid if uid is None else uid)
    assert seen.st_gid == os.getgid()


@pytest.mark.parametrize("opts", ["files of 3006"], indirect=True)
def test_the_folder_of_keys_is_the_masters_alone(opts, pairs, events, tmp_path):
    (tmp_path / "pki" / "minions").rmdir()
    KeyStore(opts).accept(NAME, pairs[0])
    assert (tmp_path / "pki" / "minions").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("opts", ["files of 3006"], indirect=True)
def test_a_rejected_key_is_replaced_by_none(opts, store, pairs, tmp_path):
    store.accept(NAME, pairs[0], host="hv1")
    (tmp_path / "pki/minions_rejected" / NAME).write_text(pairs[0])
    with pytest.raises(errors.KeyRefused, match=r"\(rejected\)"):
        store.accept(NAME, pairs[0], replace=True, host="hv1")
