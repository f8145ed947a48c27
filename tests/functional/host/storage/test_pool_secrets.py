"""The secret for a storage pool's password: stored once, changes detected, and not shared."""

# ruff: noqa: F811
import base64
import os
from pathlib import Path

import pytest

libvirt = pytest.importorskip("libvirt")
pytest.importorskip("salt")

from saltvirt import errors
from saltvirt.design import secret as design
from saltvirt.host.storage import pool_state, secret
from saltvirt.revert import UndoStack
from saltvirt.spec.pool import PoolAuthSpec, PoolSpec
from saltvirt.xml.storage.pool import Pool
from tests.functional.daemon import libvirtd  # noqa: F401

CEPH = base64.b64encode(b"key").decode()


def spec(password="one", type="chap", name="store"):
    return PoolSpec(
        name=name, type="rbd" if type == "ceph" else "iscsi",
        source_auth=PoolAuthSpec(type=type, username="u", password=password),
    )  # fmt: skip


@pytest.fixture
def conn(libvirtd, tmp_path, monkeypatch):
    monkeypatch.setattr(secret, "KEY", str(tmp_path / "state" / "secret-key"))
    found = libvirt.open(libvirtd.uri)
    found.values = Path(f"/proc/{libvirtd.process.pid}/root/etc/libvirt/secrets")
    yield found
    for one in found.listAllSecrets():
        one.undefine()
    found.close()


def store(conn, wanted):
    with UndoStack() as undo:
        uuid = secret.store_for_pool(conn, wanted, undo)
        undo.success()
    return uuid


def value(conn, uuid):
    return base64.b64decode((conn.values / f"{uuid}.base64").read_bytes())


def test_a_password_is_stored_and_known_again(conn):
    assert not secret.is_stored(conn, spec())
    assert secret.uuid_for_pool(conn, spec()) is None
    uuid = store(conn, spec())
    assert (secret.uuid_for_pool(conn, spec()), value(conn, uuid)) == (uuid, b"one")
    assert secret.is_stored(conn, spec())
    assert not secret.is_stored(conn, spec("two"))
    [found] = conn.listAllSecrets()
    assert (found.usageID(), found.usageType()) == ("pool_store", 3)
    assert "one" not in found.XMLDesc()
    assert store(conn, spec()) == uuid
    assert store(conn, spec("two")) == uuid, "the same secret, with another value"
    assert value(conn, uuid) == b"two"
    assert (secret.is_stored(conn, spec("two")), secret.is_stored(conn, spec())) == (True, False)


def test_the_key_of_a_ceph_user_is_what_its_base64_says(conn):
    uuid = store(conn, spec(CEPH, "ceph"))
    assert value(conn, uuid) == b"key"
    assert secret.is_stored(conn, spec(CEPH, "ceph"))
    assert conn.secretLookupByUUIDString(uuid).usageType() == 2
    with pytest.raises(errors.InvalidInput, match="pool store: the password of a Ceph user must"):
        store(conn, spec("no base64", "ceph"))


def test_who_gives_no_password_has_no_secret(conn):
    without = (
        PoolSpec(name="store", type="iscsi"),
        PoolSpec(name="store", type="iscsi", source_auth=PoolAuthSpec(type="chap", username="u")),
    )
    store(conn, spec())
    for one in without:
        assert store(conn, one) is None
        assert secret.uuid_for_pool(conn, one) is None
    assert len(conn.listAllSecrets()) == 1


def test_a_secret_that_was_just_made_goes_when_the_pool_fails(conn):
    with UndoStack() as undo:
        secret.store_for_pool(conn, spec(), undo)
        assert len(conn.listAllSecrets()) == 1
    assert conn.listAllSecrets() == []
    store(conn, spec())
    with UndoStack() as undo:
        secret.store_for_pool(conn, spec("two"), undo)
    assert len(conn.listAllSecrets()) == 1, "it was there before"


def test_what_cannot_be_asked_is_an_error(conn):
    class Cut:
        def secretLookupByUsage(self, kind, usage):
            raise libvirt.libvirtError("client socket is closed")

    with pytest.raises(libvirt.libvirtError):
        secret.find(Cut(), design.for_pool(spec()))


def pool(name="store", type="chap", **source):
    found = Pool(type="iscsi", name=name)
    for key, text in source.items():
        setattr(found.source, key, text)
    found.source.auth_type = type
    return found


@pytest.mark.parametrize("type", ["chap", "ceph"])
def test_with_a_pool_goes_the_secret_that_was_made_for_it(conn, type):
    wanted = spec(CEPH, type)
    mine, other = store(conn, wanted), store(conn, spec(CEPH, type, name="db"))
    for stays in (
        pool(type=type), pool("web", type, auth_uuid=mine), pool(type=type, auth_uuid=other),
        pool(type="ceph" if type == "chap" else "chap", auth_uuid=mine),
    ):  # fmt: skip
        secret.forget_for_pool(conn, stays)
        assert len(conn.listAllSecrets()) == 2
    secret.forget_for_pool(conn, pool(type=type, auth_uuid=mine))
    assert [one.UUIDString() for one in conn.listAllSecrets()] == [other]
    secret.forget_for_pool(conn, pool("db", type, auth_usage="pool_db"))
    assert conn.listAllSecrets() == []


def test_the_key_of_the_marks_is_the_systems_own(tmp_path, monkeypatch):
    path = tmp_path / "state" / "secret-key"
    monkeypatch.setattr(secret, "KEY", str(path))
    assert secret._key() is None
    assert secret._mark(spec(), None) == "-"
    key = secret._key(make=True)
    assert (len(key), path.read_bytes()) == (32, key)
    assert secret._key() == secret._key(make=True) == key
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert os.listdir(path.parent) == ["secret-key"]
    mark = secret._mark(spec(), key)
    assert len(mark) == 32
    assert mark == secret._mark(spec(), key) != secret._mark(spec("two"), key)
    assert mark != secret._mark(spec(), bytes(32))


def test_of_two_that_make_the_key_at_once_the_first_has_made_it(tmp_path, monkeypatch):
    path = tmp_path / "state" / "secret-key"
    monkeypatch.setattr(secret, "KEY", str(path))
    real = secret.secrets.token_bytes

    def late(size):
        path.write_bytes(b"first")
        return real(size)

    monkeypatch.setattr(secret.secrets, "token_bytes", late)
    assert secret._key(make=True) == b"first"
    assert os.listdir(path.parent) == ["secret-key"]


def test_a_longer_part_of_a_killed_process_is_not_what_is_left_of_it(tmp_path, monkeypatch):
    path = tmp_path / "secret-key"
    monkeypatch.setattr(secret, "KEY", str(path))
    (tmp_path / f"secret-key.{os.getpid()}").write_bytes(b"x" * 64)
    assert len(secret._key(make=True)) == 32


@pytest.mark.parametrize("persistent", [True, False])
def test_a_pool_is_purged_with_its_folder(conn, tmp_path, persistent):
    """libvirt forgets a transient one when it is stopped, before what it is made of is deleted."""
    folder = tmp_path / "there"
    folder.mkdir()
    text = f"<pool type='dir'><name>store</name><target><path>{folder}</path></target></pool>"
    made = conn.storagePoolDefineXML(text) if persistent else conn.storagePoolCreateXML(text)
    if persistent:
        made.create()
    made.createXML("<volume><name>a</name><capacity>1024</capacity></volume>", 0)
    (folder / "b").touch()  # libvirt has not seen it yet
    found = pool_state.remove(conn, "store", purge=True)
    wanted = {"stopped": True, "deleted_volumes": ["a", "b"], "deleted": True, "undefined": True}
    assert found.changes == wanted
    assert not folder.exists()
    assert conn.listAllStoragePools() == []
