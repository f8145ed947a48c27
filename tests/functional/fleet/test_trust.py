"""A host's report about a guest's key decides nothing: the key is submitted through the ext_pillar,
and only for a guest that this host was asked to create."""

import os
import pathlib
import subprocess
import sys
import time
from unittest import mock

import pytest

pytest.importorskip("salt.key")

from saltvirt import errors
from saltvirt.fleet import authorization, secret
from saltvirt.operations.cluster import shared_storage_check
from saltvirt.operations.create import deploy
from saltvirt.operations.create.identity import CloneGuest, RenameGuest
from saltvirt.operations.create.init import Init
from saltvirt.operations.create.request import InitRequest
from saltvirt.operations.guest.purge import Purge
from saltvirt.pki.authority import crl
from saltvirt.pki.authority.store import CertificateStore
from saltvirt.placement import policy
from saltvirt.revert import UndoStack
from tests.functional.cloud import Fleet
from tests.functional.fleet.test_keys import events, opts, pairs, store  # noqa: F401


class Host(Fleet):
    """A cloud of hv1, whose functions are those below: it hands in a key when it makes a guest."""

    def __init__(self, opts, store, key):  # noqa: F811
        self.guests, self.key, self.asked, self.told = {}, key, [], None
        self.opts, self.store = opts, store
        self.host = self.submitter = "hv1"
        self.answers_as, self.hands_in = None, ()
        self.fails = None
        self.modules = {
            "virt.init": self.make, "virt.clone": self.clone, "virt.rename": self.rename,
            "virt.vm_state": lambda vm_=None: dict(self.guests),
            "virt.shared_disks": lambda vm_: {},
            "virt.purge": self.purge,
            "virt.inventory": lambda **_more: {"cpus": 1, "memory_kib": 2**20},
            "virt.power": self.power,
        }  # fmt: skip

    def make(self, name, **_more):
        self.guests[name] = "shutdown"
        for handed in self.hands_in or [name]:
            authorization.submit_key(self.opts, self.store, self.submitter, handed, self.key)
        if self.fails:
            raise self.fails
        return {"name": self.answers_as or name, "pub_key": self.key, "disks": []}

    def power(self, name, **_more):
        before, self.guests[name] = self.guests[name], "running"
        return {"before": before, "after": "running"}

    def purge(self, vm_, test=False, **_more):
        if test:
            return {"delete": [], "keep": {}}
        self.guests.pop(vm_)
        return True

    def clone(self, vm_, name, test=False, **_more):
        return {} if test else self.make(name)

    def rename(self, vm_, name, test=False, **_more):
        if test:
            return {}
        self.guests[name] = self.guests.pop(vm_)
        return self.make(name)


@pytest.fixture
def cloud(opts, store, pairs):  # noqa: F811
    opts["virt"] = {"hosts": "hv1 or hyper*"}
    found = Host(opts, store, pairs[0])
    found.guests["db1"] = "shutdown"
    return found


def create(cloud, name="web1", **more):
    wanted = InitRequest(name, 1, 64, "/a", arguments={"seed": True}, **more)
    with UndoStack() as undo:
        placed = Init(cloud, policy.PlacementPolicy(), wanted, cloud.report(name, "init"))
        placed.slot, placed.cluster = mock.Mock(), mock.Mock(terms=lambda _host: None)
        done = placed.create_on("hv1", undo, mock.Mock())
        undo.success()
    return done


def undeletable(cloud):
    """Deleting is Salt's own code, which here is 3008's and does not know the files of 3006."""
    return cloud.opts.get("keys.cache_driver", "") is None


def no_permission(cloud):
    found = authorization.Authorizations(cloud.opts)
    return not any(found.revoke("hv1", name) for name in ("web1", "web2", "hyper99", "db1"))


def test_the_key_that_came_in_for_what_was_asked_is_accepted(cloud, store, pairs):  # noqa: F811
    create(cloud)
    assert store.accepted("web1").split() == pairs[0].split()
    assert store.host_of("web1") == "hv1"
    assert no_permission(cloud)
    assert authorization.submit_key(cloud.opts, store, "hv1", "web1", pairs[1]) is False


ANOTHER = "hv1 was asked for web1 and answered for"


@pytest.mark.parametrize(
    ("name", "error", "words"),
    [
        ("hyper99", errors.OperationFailed, ANOTHER), ("web9", errors.OperationFailed, ANOTHER),
        ("../web9", errors.OperationFailed, ANOTHER),
        (7, errors.ConnectionFailed, "hv1: its answer .*: name is not text"),
        (None, errors.ConnectionFailed, "hv1: its answer .*: it is not a mapping"),
        ({"web1": 1}, errors.ConnectionFailed, "hv1: its answer .*: name is not text"),
    ],
)  # fmt: skip
def test_a_host_cannot_choose_the_name(cloud, store, name, error, words):  # noqa: F811
    cloud.answers_as = name
    cloud.hands_in = [name] if isinstance(name, str) else ["web1"]
    if name is None:
        cloud.make = lambda **_more: None
        cloud.modules["virt.init"] = cloud.make
    with pytest.raises(error, match=words):
        create(cloud)
    assert undeletable(cloud) or store.guest_ids() == []
    assert no_permission(cloud)


@pytest.mark.parametrize("verb", [CloneGuest, RenameGuest])
def test_nor_of_a_copy_or_a_new_name(cloud, store, verb):  # noqa: F811
    cloud.answers_as = "hyper99"
    cloud.hands_in = ["hyper99"]
    with pytest.raises(errors.OperationFailed, match="asked for web2 and answered for 'hyper99'"):
        verb(cloud, cloud.report("web2", "x"), "db1", "web2").run()
    assert store.guest_ids() == []
    assert no_permission(cloud)


def test_a_key_is_never_accepted_on_the_word_of_a_return(cloud, store):  # noqa: F811
    cloud.hands_in = ["other"]
    with pytest.raises(
        errors.KeyRefused, match=r"did not get the key of .* through the ext_pillar virtkey"
    ):
        create(cloud)
    assert store.guest_ids() == []


def test_a_return_that_speaks_of_another_key_undoes_it(cloud, store, pairs):  # noqa: F811
    cloud.modules["virt.init"] = lambda **more: {**cloud.make(**more), "pub_key": pairs[1]}
    with pytest.raises(errors.KeyRefused, match="did not get the key"):
        create(cloud)
    assert undeletable(cloud) or store.status("web1") is None


def test_another_host_hands_nothing_in(cloud, store):  # noqa: F811
    cloud.submitter = "hv2"
    with pytest.raises(errors.KeyRefused, match="did not get the key"):
        create(cloud)
    assert store.guest_ids() == []


def test_a_host_below_a_syndic_hands_the_key_to_its_own_master(cloud, monkeypatch):
    cloud.opts["order_masters"] = True
    monkeypatch.setattr(authorization.target, "accepted", lambda _opts: ["hv2"])
    with pytest.raises(errors.Unsupported, match="hv1 is below a syndic"):
        create(cloud)
    assert cloud.asked == []


@pytest.mark.parametrize("name", ["hyper7", "hv1"])
def test_no_guest_is_named_like_a_hypervisor(cloud, store, pairs, name):  # noqa: F811
    words = f"{name} cannot be a guest's name: virt:hosts"
    wanted = InitRequest(name, 1, 64, "/a", arguments={"seed": True})
    tries = [
        lambda: Init(cloud, policy.PlacementPolicy(), wanted, cloud.report(name, "init")).run(),
        lambda: CloneGuest(cloud, cloud.report(name, "clone"), "db1", name).run(),
        lambda: RenameGuest(cloud, cloud.report(name, "rename"), "db1", name).run(),
        lambda: authorization.Authorizations(cloud.opts).grant("hv1", name),
        lambda: store.accept(name, pairs[0]),
    ]
    for call in tries:
        with pytest.raises(errors.InvalidInput, match=words):
            call()
    assert cloud.asked == []
    assert store.status(name) is None


def test_a_permission_from_before_virt_hosts_changed_is_void(cloud, store, pairs):  # noqa: F811
    authorization.Authorizations(cloud.opts).grant("hv1", "web1")
    cloud.opts["virt"]["hosts"] = "hv1 or web*"
    assert authorization.submit_key(cloud.opts, store, "hv1", "web1", pairs[0]) is False
    assert store.status("web1") is None


def test_a_permission_of_an_operation_ends_with_its_process(opts, store, pairs):  # noqa: F811
    """What kill -9 leaves is a file without the lock."""
    found = authorization.Authorizations(opts)
    left = authorization.Permission(time.time() + 60, process_bound=True)
    os.close(found._write("hv1", "web1", left))
    assert list(authorization.Authorizations(opts).expired()) == [("hv1", "web1")]
    assert authorization.submit_key(opts, store, "hv1", "web1", pairs[0]) is False
    assert list(authorization.Authorizations(opts).expired()) == []
    with authorization.Authorizations(opts).temporary("hv1", "web1"):
        assert list(authorization.Authorizations(opts).expired()) == []
        assert authorization.submit_key(opts, store, "hv1", "web1", pairs[0]) is True


KILLED = """
import os, sys
sys.path.insert(0, sys.argv[3])
from saltvirt.fleet import authorization, private
opts = {"pki_dir": sys.argv[1], "minimum_auth_version": 3, "virt": {"hosts": "hv*"}}
if sys.argv[2] == "half written":
    os.replace = lambda *_, **_options: os._exit(9)
found = authorization.Authorizations(opts)
with found.temporary("hv1", "web9", {"p": "hush"}, secret={"x": "hush"}):
    os._exit(9)
"""


@pytest.mark.parametrize("when", ["half written", "at work"])
@pytest.mark.parametrize("who", ["host", "operation", "hand in", "another's pillar"])
def test_no_secret_of_a_killed_operation_stays(opts, store, pairs, tmp_path, when, who):  # noqa: F811
    root = pathlib.Path(opts["pki_dir"], "virtkeys")
    library = pathlib.Path(authorization.__file__).parents[2]
    given = [sys.executable, "-c", KILLED, opts["pki_dir"], when, str(library)]
    assert subprocess.run(given, check=False).returncode == 9

    def files():
        return [path for path in root.rglob("*") if path.is_file()]

    [left] = files()
    assert "hush" in left.read_text()
    os.utime(left, (1, 1))
    found = authorization.Authorizations(opts)
    with found.temporary("hv1", "web8", secret={"x": "mine"}):
        found.grant("hv2", "web7")
        {
            "host": lambda: found.secret("hv1", "web9"),
            "operation": lambda: found.grant("hv1", "web6"),
            "hand in": lambda: authorization.submit_key(opts, store, "hv1", "web9", pairs[0]),
            "another's pillar": lambda: authorization.submit_key(
                opts, store, "hv1", "web5", pairs[0]
            ),
        }[who]()
        assert not [path for path in files() if "hush" in path.read_text()]
        assert found.secret("hv1", "web8") == {"x": "mine"}
        assert found.redeem("hv2", "web7")


@pytest.mark.parametrize("shape", ["ec", "dsa", "edwards", "short", "around", "twice", "long"])
def test_only_a_key_that_salt_would_make_is_accepted(opts, store, pairs, shape):  # noqa: F811
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import dsa, ec, ed25519, rsa

    def pem(key):
        how = serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        return key.public_key().public_bytes(*how).decode()

    given = {
        "ec": lambda: pem(ec.generate_private_key(ec.SECP256R1())),
        "dsa": lambda: pem(dsa.generate_private_key(2048)),
        "edwards": lambda: pem(ed25519.Ed25519PrivateKey.generate()),
        "short": lambda: pem(rsa.generate_private_key(65537, 1024)),
        "around": lambda: f"x: y\n{pairs[0]}",
        "twice": lambda: pairs[0] + pairs[1],
        "long": lambda: pairs[0].replace("\n-----END", "\n" + "A" * 20000 + "\n-----END"),
    }[shape]()
    with pytest.raises(errors.KeyRefused, match="the submitted minion key is not"):
        store.accept("web1", given)
    assert store.status("web1") is None


# -- whose key goes with a guest ---------------------------------------------------------------


@pytest.fixture
def deleted(monkeypatch, store):  # noqa: F811
    """The names whose keys were deleted; the deleting is Salt's own code."""
    found = []
    monkeypatch.setattr(type(store), "delete", lambda _self, name, pub=None: found.append(name))
    return found


def test_the_key_of_its_own_guest_goes(cloud, store, pairs, deleted):  # noqa: F811
    store.accept("db1", pairs[1], host="hv1")
    checked = Purge(cloud, "db1").check()
    assert checked.changes["key"] is True
    assert checked.comment.endswith(" and its key")
    assert Purge(cloud, "db1").run().comment.endswith("hv1 and its key from the master")
    assert deleted == ["db1"]


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (None, "it was not accepted here for a guest, and another machine may use it"),
        ("hv2", "it was accepted for a guest of hv2, which may use it"),
    ],
)
def test_any_other_key_stays_and_is_named(cloud, store, pairs, deleted, made, why):  # noqa: F811
    if made:
        store.accept("db1", pairs[1], host=made)
    else:
        store._store.store("db1", pairs[1])
    assert Purge(cloud, "db1").check().changes["key"] is False
    for call in (Purge(cloud, "db1").check, Purge(cloud, "db1").run):
        assert call().comment.endswith(f"; its key stays: {why}")
    assert deleted == []


def test_the_guest_takes_its_key_along(cloud, store, pairs, deleted):  # noqa: F811
    store.accept("db1", pairs[1], host="hv7")
    store.rebind("db1", "hv8", "hv1")
    assert store.host_of("db1") == "hv7"
    store.rebind("db1", "hv7", "hv1")
    assert Purge(cloud, "db1").run().comment.endswith("hv1 and its key from the master")


def test_the_key_of_a_hypervisor_is_never_deleted(cloud, store, pairs):  # noqa: F811
    store._store.store("hyper2", pairs[1])
    with pytest.raises(errors.KeyRefused, match="cannot delete the key of hyper2"):
        store.delete("hyper2")
    assert store.status("hyper2") == "accepted"


@pytest.mark.parametrize("opts", ["this Salt"], indirect=True)
def test_a_host_that_made_guests_and_is_not_matched_any_more_is_known(
    opts,  # noqa: F811
    store,  # noqa: F811
    pairs,  # noqa: F811
):
    """By the key of its guest, or by the permission for one; not when its own key was taken back:
    what it may have is not deleted on the word of the others."""
    store.accept("db1", pairs[0], host="hv2")
    authorization.Authorizations(opts).grant("hv3", "web1")
    assert shared_storage_check.unmatched(opts, ["hv1"]) == {}, "no minions of this master any more"
    for host in ("hv1", "hv2", "hv3", "hv4"):
        store._store.store(host, pairs[1])
    known = shared_storage_check.unmatched(opts, ["hv1"])
    assert known.keys() == {"hv2", "hv3"}
    assert known["hv2"] == (
        "virt:hosts does not match it, but guests were created on it; if it is no longer a "
        "hypervisor: salt-run virt.revoke hv2"
    )
    assert shared_storage_check.unmatched(opts, ["hv1", "hv3"]).keys() == {"hv2"}
    assert shared_storage_check.unmatched(opts, ["hv2", "hv3"]) == {}
    pki = CertificateStore(opts["pki_dir"])
    pki.base.mkdir(parents=True, exist_ok=True)
    pki.write_record(crl.RECORD, {"hosts": ["hv2"], "serials": {}})
    assert shared_storage_check.unmatched(opts, ["hv1"]).keys() == {"hv3"}, "virt.revoke ends it"


def test_a_host_lists_guests_of_others_and_nothing_of_theirs_goes(
    cloud,
    store,  # noqa: F811
    pairs,  # noqa: F811
    deleted,
):
    """With the mark of a deployment on them: S7."""
    cloud.guests.update({"hyper2": "running", "fileserver": "running"})
    marked = {"vcpus": 1, "memory_kib": 1024, "state": "running", "deployment": "default"}
    says = {"cpus": 1, "memory_kib": 2**20, "guests": dict.fromkeys(cloud.guests, marked)}
    cloud.modules["virt.inventory"] = lambda **_more: says
    store._store.store("hyper2", pairs[1])
    store._store.store("fileserver", pairs[1])
    found = deploy.DeployPlan(unlisted={"hyper2": "hv1", "fileserver": "hv1", "db1": "hv3"})
    deploying = deploy.Deploy(cloud, policy.PlacementPolicy(), ["something"], remove=True)
    deploying.mark_unlisted(found)
    deploying.purge(found)
    assert deleted == []
    assert found.failed == {"db1": "db1 is on hv1 now, not on hv3: it stays"}
    assert "db1" in cloud.guests


# -- what is secret of the arguments -----------------------------------------------------------

SECRET = {
    "config": {"token": "hush-1"}, "user_data": "password: hush-2", "priv_key": "hush-3",
    "autosign_grains": {"uuid": "hush-4"}, "graphics": {"type": "vnc", "password": "hush-5"},
}  # fmt: skip


def make_with_secrets(cloud, verb="init"):
    """(what the host could know meanwhile, what came of it)."""
    known = []

    def make(name, **asked):
        known.append(authorization.Authorizations(cloud.opts).secret("hv1", name))
        known.append(authorization.Authorizations(cloud.opts).secret("hv2", name))
        return cloud.make(name, **asked)

    cloud.modules["virt.init"] = make
    cloud.modules["virt.clone"] = lambda vm_, name, test=False, **more: (
        {} if test else make(name, **more)
    )
    if verb == "init":
        wanted = InitRequest("web1", 1, 64, "/a", arguments={"seed": True, "disk": "big", **SECRET})
        with UndoStack() as undo:
            init = Init(cloud, policy.PlacementPolicy(), wanted, cloud.report("web1", "init"))
            init.slot, init.cluster = mock.Mock(), mock.Mock(terms=lambda _host: None)
            init.check_secrets(["hv1"])
            answer = init.create_on("hv1", undo, mock.Mock())
            undo.success()
    else:
        given = dict(SECRET)
        answer = CloneGuest(
            cloud, cloud.report("web1", "clone"), "db1", "web1", options=given
        ).run()
    return known, answer


def test_every_secret_argument_is_given_here():
    assert set(SECRET) == {*secret.ARGUMENTS, "graphics"}


@pytest.mark.parametrize("verb", ["init", "clone"])
def test_what_is_secret_is_no_argument_of_a_job(cloud, verb, caplog, monkeypatch):
    """Nor in its return, its events or the log."""
    caplog.set_level(0)
    fired = []
    monkeypatch.setattr(cloud, "fire_event", lambda *event: fired.append(event))
    known, answer = make_with_secrets(cloud, verb)
    assert fired
    assert "hush" not in f"{cloud.asked!r} {answer!r} {fired!r} {caplog.text}"
    assert any(asked.get("from_master") for _, asked in cloud.asked if asked)
    assert known == [SECRET, {}]
    assert authorization.Authorizations(cloud.opts).secret("hv1", "web1") == {}


def test_a_host_by_its_own_word_gets_no_secret(cloud):
    cloud.opts["virt"]["hosts"] = "G@virt_host:hypervisor:True"
    words = "may be secret, and hv1 only claims to be a hypervisor.*set virt:hosts"
    for verb in ("init", "clone"):
        with pytest.raises(errors.InvalidInput, match=words):
            make_with_secrets(cloud, verb)
    assert not any(fun == "virt.init" for fun, _ in cloud.asked)
    cloud.opts["virt"]["pki"] = {"trust_grains": True}
    assert make_with_secrets(cloud)


def test_no_host_is_told_a_password_to_say_what_a_guest_takes_of_it():
    wanted = InitRequest("web1", 1, 64, "/a", arguments=dict(SECRET))
    assert "hush" not in repr(wanted.sizing_arguments())
    assert wanted.sizing_arguments()["graphics"] == {"type": "vnc"}


def test_the_pillar_gives_it_to_that_host_alone_and_sealed(tmp_path):
    from saltvirt.fleet import seal
    from tests.functional.pki_master import Master

    master = Master(tmp_path, hosts="hv*").accept("hv1", "hv2")
    receiver = seal.Receiver("hv1")

    def ask(minion, name="web1"):
        asked = {"virtkey": {"name": name, "seal": receiver.public}}
        return master.pillar(minion, ext=asked).get("virtkey", {}).get("sealed")

    assert ask("hv1") is None
    with authorization.Authorizations(master.opts).temporary("hv1", "web1", secret=SECRET):
        found = ask("hv1")
        assert "hush" not in found
        assert receiver.open(found) == SECRET
        assert ask("hv2") is None
        assert ask("hv1", "web2") is None
    assert ask("hv1") is None


@pytest.mark.parametrize("version", [2, 0, None, "3"])
def test_where_salt_does_not_prove_who_asks_no_key_is_taken(opts, store, pairs, version):  # noqa: F811
    """With minimum_auth_version below 3 an accepted minion may ask in the name of another."""
    permissions = authorization.Authorizations(opts)
    permissions.grant("hv1", "web1")
    opts["minimum_auth_version"] = version
    assert authorization.submit_key(opts, store, "hv1", "web1", pairs[0]) is False
    assert store.status("web1") is None
    with pytest.raises(errors.Unsupported, match="set it to 3 and restart the master"):
        permissions.grant("hv1", "web2")
    del opts["minimum_auth_version"]
    with pytest.raises(errors.Unsupported, match="update Salt"):
        permissions.grant("hv1", "web2")
