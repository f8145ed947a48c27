"""Crashes, full disks and concurrency with real processes: everything works afterwards."""

import multiprocessing
import os
import subprocess
import tempfile
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import x25519

pytest.importorskip("salt")
from saltvirt.errors import PkiError
from saltvirt.pki.authority import crl, policy, request_rules, responder, rotation
from saltvirt.pki.authority.store import USES, CertificateStore
from saltvirt.pki.common import certs
from saltvirt.pki.host import converge
from tests.functional.steps import killed_at_every_step

RAM = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
RULES = policy.CertificatePolicy(hosts="*")
FORK = multiprocessing.get_context("fork")


def give(folder, host="hv1", rules=RULES, **arguments):
    asked = request_rules.parse("_", arguments, {})
    return responder._respond(CertificateStore(folder), rules, host, asked, {})


def assert_good(given):
    """Each pair fits, and is signed by the CA that is given with it."""
    for use in USES:
        prefix = "qemu-" if use.authority == "qemu" else ""
        key = certs.load_key(given[f"libvirt.{use.key}"].encode())
        cert = certs.load_certs(given[f"libvirt.{use.cert}"].encode())[0]
        issuers = certs.load_certs(given[f"libvirt.{prefix}cacert.pem"].encode())
        assert certs.belong_together(cert, key)
        assert any(certs.signed_by(cert, issuer) for issuer in issuers)


def assert_tidy(folder):
    """No file is empty, and no writer's temporary file is left."""
    for path in Path(folder).rglob("*"):
        if path.is_file() and path.name not in (".lock", ".turn"):
            assert path.stat().st_size, path
            assert not path.name.startswith(".saltvirt-"), path


@pytest.fixture
def ram():
    """A folder in memory: thousands of fsyncs are slow on a disk, and prove no more there."""
    with tempfile.TemporaryDirectory(dir=RAM) as folder:
        yield Path(folder)


# crowds


def _ask(folder, host, start, found):
    start.wait()
    found.put((host, give(folder, host)))


def test_fifty_hypervisors_at_once_the_first_time_one_ca_and_fifty_pairs(tmp_path):
    start, found = FORK.Barrier(50), FORK.Queue()
    children = [
        FORK.Process(target=_ask, args=(tmp_path, f"hv{n}", start, found)) for n in range(50)
    ]
    for child in children:
        child.start()
    given = dict(found.get(timeout=600) for _ in children)
    for child in children:
        child.join()
    assert len({pillar["libvirt.cacert.pem"] for pillar in given.values()}) == 1
    assert len({pillar["libvirt.qemu-cacert.pem"] for pillar in given.values()}) == 1
    assert len({pillar["libvirt.serverkey.pem"] for pillar in given.values()}) == 50
    for pillar in given.values():
        assert_good(pillar)
    assert_tidy(tmp_path)


def test_one_hypervisor_asking_from_twenty_processes_gets_the_same_every_time(tmp_path):
    start, found = FORK.Barrier(20), FORK.Queue()
    children = [FORK.Process(target=_ask, args=(tmp_path, "hv1", start, found)) for _ in range(20)]
    for child in children:
        child.start()
    given = [found.get(timeout=600)[1] for _ in children]
    for child in children:
        child.join()
    assert all(pillar == given[0] for pillar in given)


# kill -9


def fresh(ram):
    """(a function that gives an unused folder next, one that gives it again)."""
    folders = []

    def new():
        folders.append(ram / str(len(folders)))
        return folders[-1]

    return new, lambda: folders[-1]


def test_killed_while_the_ca_is_made_and_certificates_are_issued(ram):
    new, folder = fresh(ram)

    def check():
        given = give(folder())
        assert_good(given)
        assert give(folder()) == given
        assert_tidy(folder())

    assert killed_at_every_step(lambda: give(folder()), check, before=new) > 50


def test_killed_while_certificates_are_renewed(ram):
    new, folder = fresh(ram)
    changed = policy.CertificatePolicy(hosts="*", names={"hv1": ["10.0.0.1"]})

    def before():
        give(new())

    def check():
        assert_good(give(folder(), rules=changed))
        assert_tidy(folder())

    assert killed_at_every_step(lambda: give(folder(), rules=changed), check, before) > 30


@pytest.mark.parametrize("step", ["begin", "swap", "finish"])
def test_killed_in_the_middle_of_a_rotation(ram, step):
    new, folder = fresh(ram)
    steps = {
        "begin": lambda store: rotation.begin(store, RULES),
        "swap": rotation.swap,
        "finish": rotation.finish,
    }
    order = list(steps)

    def before():
        give(new())
        for earlier in order[: order.index(step)]:
            steps[earlier](CertificateStore(folder()))

    def check():
        assert_good(give(folder()))
        store = CertificateStore(folder())
        responder.prepare(store, RULES)
        rotation.begin(store, RULES)
        if rotation.phase(store) == rotation.TRUST:
            rotation.swap(store)
        assert_good(give(folder()))
        rotation.finish(store)
        assert_good(give(folder()))
        assert len(certs.load_certs(give(folder())["libvirt.cacert.pem"].encode())) == 1
        assert_tidy(folder())

    assert killed_at_every_step(lambda: steps[step](CertificateStore(folder())), check, before) > 3


def test_killed_while_a_host_is_revoked_it_is_revoked_or_not_and_a_second_try_does_it(ram):
    new, folder = fresh(ram)

    def before():
        give(new())
        give(folder(), "hv2")

    def check():
        store = CertificateStore(folder())
        assert_good(give(folder(), "hv2"))
        crl.revoke(store, "hv1")
        responder.prepare(store, RULES)
        assert not crl.outdated(store)
        assert "libvirt.cacrl.pem" in give(folder(), "hv2")
        assert_tidy(folder())

    assert (
        killed_at_every_step(lambda: crl.revoke(CertificateStore(folder()), "hv1"), check, before)
        > 10
    )


def host(folder, etc):
    def pillar_ext(external):
        return give(folder, **external["libvirt"])

    return converge.TlsHost("hv1", pillar_ext, str(etc), {}, reload=False)


@pytest.mark.parametrize("mode", ["pillar", "csr"])
def test_killed_while_certificates_are_placed(ram, mode):
    rules = policy.CertificatePolicy(hosts="*", mode=mode)
    new, etc = fresh(ram)

    def placed():
        def pillar_ext(external):
            return give(etc() / "master", rules=rules, **external["libvirt"])

        return converge.converge(converge.TlsHost("hv1", pillar_ext, str(etc()), {}, reload=False))

    def check():
        placed()
        assert placed().changes == {}
        assert_tidy(etc())

    assert killed_at_every_step(placed, check, before=new) > 30


# a full disk


@pytest.fixture
def small(tmp_path):
    """A file system of 40 pages. ``fill(n)`` leaves n of them free."""
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=160k", "tmpfs", str(folder)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("tmpfs cannot be mounted here")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder, free):
    (folder / "full").unlink(missing_ok=True)
    left = os.statvfs(folder).f_bavail - free
    if left > 0:
        (folder / "full").write_bytes(b"x" * (4096 * left))


def test_a_full_disk_on_the_master_is_said_and_spoils_nothing(small):
    failures = 0
    for free in range(0, 24):
        fill(small, free)
        try:
            assert_good(give(small))
        except PkiError as exc:
            failures += 1
            assert "No space left on device" in str(exc)
        assert_tidy(small)
    assert failures > 3
    fill(small, 40)
    assert_good(give(small))


def test_a_full_disk_on_the_host_leaves_the_old_certificates_in_place(small, tmp_path):
    master, etc = tmp_path / "master", small / "etc"
    converge.converge(host(master, etc))
    before = {path: path.read_bytes() for path in etc.rglob("*.pem")}
    crl.revoke(CertificateStore(master), "hv1")
    crl.readmit(CertificateStore(master), "hv1")
    fill(small, 2)
    with pytest.raises(PkiError, match="No space left on device"):
        converge.converge(host(master, etc))
    assert {path: path.read_bytes() for path in etc.rglob("*.pem")} == before
    (small / "full").unlink()
    assert converge.converge(host(master, etc)).changes


# other people's files on a host


def test_a_certificate_of_another_ca_is_replaced_and_kept(tmp_path):
    ours, theirs, etc = tmp_path / "ours", tmp_path / "theirs", tmp_path / "etc"
    converge.converge(host(theirs, etc))
    old = (etc / "libvirt/private/serverkey.pem").read_bytes()
    changes = converge.converge(host(ours, etc)).changes
    assert {"cacert", "servercert", "serverkey"} <= set(changes)
    kept = [p for p in (etc / "libvirt/private").iterdir() if p.read_bytes() == old]
    assert len(kept) == 1
    assert kept[0].stat().st_mode & 0o777 == 0o600
    assert converge.converge(host(ours, etc)).changes == {}


@pytest.mark.parametrize("damage", [b"", b"-----BEGIN PRIVATE KEY-----\nMIG"])
@pytest.mark.parametrize("mode", ["pillar", "csr"])
def test_a_damaged_key_on_a_host_is_replaced(tmp_path, damage, mode):
    rules, etc = policy.CertificatePolicy(hosts="*", mode=mode), tmp_path / "etc"

    def pillar_ext(external):
        return give(tmp_path / "master", rules=rules, **external["libvirt"])

    here = converge.TlsHost("hv1", pillar_ext, str(etc), {}, reload=False)
    converge.converge(here)
    path = etc / "libvirt/private/serverkey.pem"
    path.write_bytes(damage)
    assert converge.plan(here).changes.get("serverkey") == "update"
    assert converge.converge(here).changes["serverkey"] == "update"
    cert = certs.load_certs((etc / "libvirt/servercert.pem").read_bytes())[0]
    assert certs.belong_together(cert, certs.load_key(path.read_bytes()))
    kept = [p for p in path.parent.iterdir() if p != path and p.name.startswith("serverkey")]
    assert [p.read_bytes() for p in kept] == ([damage] if damage else [])


def test_no_word_about_a_change_shows_a_key(tmp_path):
    outcome = converge.converge(host(tmp_path / "master", tmp_path / "etc"))
    assert "BEGIN" not in repr(outcome)
    keys = [p.read_text() for p in (tmp_path / "etc").rglob("*key*.pem")]
    assert keys
    for text in keys:
        assert all(line not in repr(outcome) for line in text.splitlines()[1:-1])


def test_a_key_that_cannot_sign_is_no_key_of_a_certificate():
    pem = certs.key_pem(x25519.X25519PrivateKey.generate())
    with pytest.raises(PkiError, match="cannot sign"):
        certs.load_key(pem)
