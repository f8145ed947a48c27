"""Keys of guests that hypervisors submit, and the certificates of the hypervisors."""

import os

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa


@pytest.fixture(scope="module")
def key():
    """A guest's public key, as PEM."""
    made = rsa.generate_private_key(65537, 2048).public_key()
    kind = serialization.PublicFormat.SubjectPublicKeyInfo
    return made.public_bytes(serialization.Encoding.PEM, kind).decode()


@pytest.fixture
def web1(cloud):
    """Where the master has the key of the guest web1, when it accepted one."""
    path = os.path.join(cloud.opts()["pki_dir"], "minions", "web1")
    yield path
    if os.path.exists(path):
        os.unlink(path)


def hand_in(cloud, host, key):
    """Whether the master says that it took the key; Salt 3008 hides what is in a pillar."""
    found = cloud.salt(host, "pillar.ext", {"virtkey": ["web1", key]})
    return found[host]["virtkey"]["web1"] is not False


def test_a_key_is_taken_once_from_the_host_that_may(cloud, key, web1):
    assert hand_in(cloud, "hv1", key) is False
    assert cloud.run("virt.authorize", "web1", "hv1")["web1"]["result"] is True
    assert hand_in(cloud, "hv2", key) is False
    assert not os.path.exists(web1)
    assert hand_in(cloud, "hv1", key) is True
    with open(web1, encoding="ascii") as file:
        assert file.read().split() == key.split()
    assert hand_in(cloud, "hv1", key) is False


def test_no_host_has_its_own_name_for_a_guest(cloud):
    said = cloud.run("virt.authorize", "hv7", "hv1")
    assert "hv7 cannot be a guest's name" in str(said)


@pytest.fixture
def keys(cloud):
    """What the state ``virt.keys`` says on hv1, of a folder of its own."""

    def apply(**named):
        given = {"name": "k", "basepath": str(cloud.root / "pki"), **named}
        [found] = cloud.salt("hv1", "state.single", "virt.keys", **given)["hv1"].values()
        return found

    return apply


def test_certificates_come_by_the_pillar_and_stay(cloud, keys):
    planned = keys(test=True)
    assert planned["result"] is None
    assert not (cloud.root / "pki").exists()
    made = keys()
    assert made["result"] is True, made
    assert made["changes"]["serverkey"] == "new"
    private = cloud.root / "pki/libvirt/private/serverkey.pem"
    assert private.stat().st_mode & 0o777 == 0o600
    assert keys()["changes"] == {}
    assert "hv1" in str(cloud.run("virt.certs", "hv1", ask=False))


def test_a_revoked_host_gets_none_until_that_is_undone(cloud, keys):
    assert keys()["result"] is True
    cloud.run("virt.revoke", "hv1", force=True)
    try:
        refused = keys()
        assert refused["result"] is False
        assert "salt-run virt.revoke hv1 undo=True" in refused["comment"]
    finally:
        cloud.run("virt.revoke", "hv1", undo=True)
    assert keys()["result"] is True
