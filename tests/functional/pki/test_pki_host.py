"""The files of a hypervisor, the certificate that its daemon serves, and the treatment of faults.
Real files, real programs and a real TLS server, without libvirt."""

import contextlib
import datetime
import os
import socket
import ssl
import threading

import pytest

pytest.importorskip("salt")

from saltvirt.errors import InvalidInput, PkiError
from saltvirt.pki.common import certs
from saltvirt.pki.host import converge, daemon, info, layout, request
from tests.functional.pki.test_pki_faults import give, host

OLD = datetime.datetime(2020, 1, 1, tzinfo=datetime.timezone.utc)
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="the owner of a file is root's to change")


@pytest.fixture
def etc(tmp_path):
    """The folder of a host that has all its certificates."""
    converge.converge(host(tmp_path / "master", tmp_path / "etc"))
    return tmp_path / "etc"


@pytest.fixture
def by_hand(tmp_path):
    """What an operator put into the pillar himself: libvirt's own five, and no list."""
    found = {
        name: text
        for name, text in give(tmp_path / "theirs").items()
        if "qemu" not in name and not name.endswith("cacrl.pem")
    }
    return {name: text for name, text in found.items() if name.endswith(".pem")}


def of_pillar(pillar, folder, **more):
    return converge.TlsHost("hv1", lambda _: pillar, str(folder), {}, **{"reload": False, **more})


# -- what was asked for


def test_a_parameter_of_nobodys_is_refused():
    known = {"country": "DE", "state": None, "expiration_days": 5}
    assert converge.requests(known) == {"country": "DE", "expiration_days": 5}
    with pytest.raises(InvalidInput, match=r"unknown parameter colour, size: virt.keys takes base"):
        converge.requests({**known, "size": 1, "colour": "red"})


@pytest.mark.parametrize("base", ["etc/pki", "", None, "/a\nb", 5, "/" + "a" * 300])
def test_a_folder_that_is_no_absolute_path_is_refused(base):
    with pytest.raises(PkiError, match=r"^basepath .* is not the absolute path of a folder$"):
        layout.tls_files(base)


@pytest.mark.parametrize(
    ("conf", "owner"),
    [
        ('user = "+107"\ngroup = "+36"\n', (107, 36)),
        ('user = "root"\ngroup = "no-such-group"\n', (0, 0)),
        ('user = "54321"\ngroup = "no-such-group"\n', (54321, 0)),
        ('user = "no-such-user"\n', (0, 0)),
    ],
)
def test_who_qemu_runs_as(tmp_path, conf, owner):
    """Of one that is not there nobody gets a key: it is root's."""
    (tmp_path / "qemu.conf").write_text(conf)
    assert layout.qemu_owner(str(tmp_path / "qemu.conf")) == owner


# -- what the master, or an operator, gives


def test_a_master_that_names_no_hypervisors_says_why():
    with pytest.raises(PkiError, match=r"^the CA is damaged$"):
        request.hosts(lambda _: {"libvirt.error": "the CA is damaged"})
    with pytest.raises(PkiError, match="the pillar has no libvirt certificates for this minion"):
        request.hosts(lambda _: {})


def test_a_pillar_that_was_made_by_hand_is_enough(tmp_path, by_hand):
    here = of_pillar(by_hand, tmp_path / "etc")
    planned, done = converge.plan(here).changes, converge.converge(here).changes
    assert set(planned) == set(done)
    assert set(done) == {"cacert", "servercert", "serverkey", "clientcert", "clientkey"}
    assert (converge.plan(here).changes, converge.converge(here).changes) == ({}, {})


def test_what_does_not_fit_together_is_placed_nowhere(tmp_path, by_hand):
    other = give(tmp_path / "others")
    lacking = {name: text for name, text in by_hand.items() if "serverkey" not in name}
    qemu = {name: text for name, text in other.items() if "qemu-" in name and "cacert" not in name}
    for pillar, why in (
        (lacking, r"^the pillar lacks libvirt.serverkey.pem$"),
        ({**lacking, "libvirt.servercert.pem": ""}, "lacks libvirt.serverkey.pem and libvirt.serv"),
        ({**by_hand, **qemu}, "^the pillar lacks libvirt.qemu-cacert.pem$"),
        ({**by_hand, "libvirt.serverkey.pem": by_hand["libvirt.clientkey.pem"]},
         "^libvirt.serverkey.pem does not belong to libvirt.servercert.pem$"),
        ({**by_hand, "libvirt.cacert.pem": other["libvirt.cacert.pem"]},
         "^libvirt.servercert.pem is not signed by libvirt.cacert.pem$"),
    ):  # fmt: skip
        with pytest.raises(PkiError, match=why):
            converge.converge(of_pillar(pillar, tmp_path / "etc"))
    assert not (tmp_path / "etc").exists()


# -- what is in the files


def test_a_damaged_file_is_said_and_replaced(tmp_path, etc):
    here = host(tmp_path / "master", etc)
    (etc / "CA" / "cacert.pem").write_text("nothing")
    (said,) = converge.plan(here).changes.values()
    assert said.startswith("update: was unreadable, now valid until 20")
    assert converge.converge(here).changes == {"cacert": said}


@root_only
def test_rights_and_owners_are_put_right(tmp_path, etc):
    here = host(tmp_path / "master", etc)
    private, cert = etc / "libvirt" / "private", etc / "libvirt" / "servercert.pem"
    private.chmod(0o755)
    (private / "serverkey.pem").chmod(0o644)
    os.chown(cert, 1, 2)
    assert converge.converge(here).changes == {
        "serverkey": "mode 0644 to 0600",
        "servercert": "owner 1:2 to 0:0",
        str(private): "mode 0755 to 0700",
    }
    assert converge.converge(here).changes == {}
    assert (private / "serverkey.pem").stat().st_mode & 0o777 == 0o600
    assert private.stat().st_mode & 0o777 == 0o700
    assert (cert.stat().st_uid, cert.stat().st_gid) == (0, 0)


def test_a_list_that_is_no_longer_given_goes(tmp_path, by_hand):
    here, path = of_pillar(by_hand, tmp_path / "etc"), tmp_path / "etc" / "CA" / "cacrl.pem"
    converge.converge(here)
    path.write_text("a list")
    assert converge.converge(here).changes == {"cacrl": "removed"}
    assert not path.exists()


@pytest.mark.parametrize("damage", [None, b"nothing"])
def test_a_key_of_which_nobody_can_tell_whose_it_is_is_kept(tmp_path, damage):
    """Its certificate is gone or cannot be read: it may be the only copy."""
    etc = tmp_path / "etc"
    converge.converge(host(tmp_path / "theirs", etc))
    key, cert = etc / "libvirt/private/serverkey.pem", etc / "libvirt/servercert.pem"
    old = key.read_bytes()
    cert.unlink() if damage is None else cert.write_bytes(damage)
    converge.converge(host(tmp_path / "ours", etc))
    kept = {path.read_bytes() for path in key.parent.iterdir() if path != key}
    assert old in kept
    beside = [path.read_bytes() for path in cert.parent.glob("servercert.pem.*")]
    assert beside == ([damage] if damage else [])


def test_what_is_wrong_with_the_files_is_said(tmp_path, etc):
    assert info.info("hv1", str(etc))["problems"] == []
    libvirt, qemu, private = etc / "libvirt", etc / "qemu", etc / "libvirt" / "private"
    (private / "serverkey.pem").chmod(0o640)
    (libvirt / "clientcert.pem").write_text("nothing")
    (qemu / "server-key.pem").write_bytes((qemu / "client-key.pem").read_bytes())
    key = certs.new_key()
    (qemu / "client-key.pem").write_bytes(certs.key_pem(key))
    old = certs.self_signed(key, certs.subject("hv1"), 1, OLD)
    (qemu / "client-cert.pem").write_bytes(certs.cert_pem(old))
    found = info.info("hv1", str(etc))
    said = "\n".join(found["problems"])
    for line in (
        f"{private}/serverkey.pem can be read by others (mode 0640): apply virt.keys",
        f"{libvirt}/clientcert.pem with {private}/clientkey.pem: ",
        f"{qemu}/server-key.pem does not belong to {qemu}/server-cert.pem: apply virt.keys",
        f"{qemu}/client-cert.pem expired on 2020-01-02",
    ):
        assert line in said
    assert len(found["problems"]) == 4
    assert set(found["certs"]) == {"server", "qemu-server", "qemu-client"}
    assert "PRIVATE" not in repr(found)


# -- the daemon


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """A function that puts a shell script where programs are looked for; nothing else is there."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))

    def put(name, text):
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)

    return put


def test_a_daemon_that_does_not_run_reads_them_later(programs):
    later = "the daemon is not running; it loads the certificates when it starts"
    assert daemon.reload() == later  # there is no systemctl
    programs("systemctl", "exit 3")
    assert daemon.reload() == later


RESTART = 'case $1 in is-active) [ $3 = libvirtd.service ];; *) echo "$@" >&2; exit {};; esac'


def test_a_daemon_that_cannot_be_told_is_restarted(programs, monkeypatch):
    programs("systemctl", RESTART.format(0))
    restarted = "libvirtd was restarted (virt-admin: {})"
    assert daemon.reload() == restarted.format("virt-admin is not installed")
    programs("virt-admin", "echo no such server >&2; exit 1")
    assert daemon.reload() == restarted.format("no such server")
    programs("systemctl", RESTART.format(1))
    with pytest.raises(PkiError, match=r"could not reload its certificates: no such server; res"):
        daemon.reload()
    programs("systemctl", RESTART.format(0))
    programs("virt-admin", "exec /bin/sleep 600")
    monkeypatch.setattr(daemon, "_TIMEOUT_S", 3)
    assert daemon.reload() == restarted.format("virt-admin took more than 3 s")


@pytest.fixture
def server():
    """A function that serves a host's certificates by TLS and says one word to each client whose
    certificate it trusts; its port."""
    with contextlib.ExitStack() as ends:

        def serve(etc, word=b"\x01"):
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            libvirt = etc / "libvirt"
            context.load_cert_chain(libvirt / "servercert.pem", libvirt / "private/serverkey.pem")
            context.load_verify_locations(etc / "CA" / "cacert.pem")
            context.verify_mode = ssl.CERT_REQUIRED
            listening = ends.enter_context(socket.create_server(("127.0.0.1", 0)))

            def answer():
                with contextlib.suppress(OSError):
                    while True:
                        plain, _ = listening.accept()
                        with (
                            contextlib.suppress(OSError),
                            plain,
                            context.wrap_socket(plain, server_side=True) as tls,
                        ):
                            tls.sendall(word)

            threading.Thread(target=answer, daemon=True).start()
            ends.callback(listening.shutdown, socket.SHUT_RDWR)
            return listening.getsockname()[1]

        yield serve


def client(etc):
    libvirt = etc / "libvirt"
    return [
        etc / "CA" / "cacert.pem",
        libvirt / "clientcert.pem",
        libvirt / "private" / "clientkey.pem",
    ]


def test_a_handshake_ends_with_the_daemons_word(etc, server):
    found = daemon.handshake("hv1", client(etc), port=server(etc))
    wanted = certs.load_certs((etc / "libvirt/servercert.pem").read_bytes())[0]
    assert certs.fingerprint(found) == certs.fingerprint(wanted)
    for word in (b"", b"\x00"):
        port = server(etc, word)
        with pytest.raises(PkiError, match=f":{port} refused the host's client certificate$"):
            daemon.handshake("hv1", client(etc), port=port)


def test_certificates_that_are_placed_and_not_served_are_a_failure(
    tmp_path, etc, server, programs, monkeypatch
):
    """What answers on the port still has those of another authority."""
    converge.converge(host(tmp_path / "theirs", tmp_path / "old"))
    port = server(tmp_path / "old")
    monkeypatch.setattr(daemon.listens, "__defaults__", ("127.0.0.1", port))
    monkeypatch.setattr(daemon.handshake, "__defaults__", ("127.0.0.1", port))
    programs("systemctl", RESTART.format(0))
    programs("virt-admin", "exit 0")
    here = host(tmp_path / "master", etc)
    here = converge.TlsHost(here.id, here.pillar_ext, str(etc), {}, reload=True)
    with pytest.raises(PkiError, match=r"^the certificates are installed but not in use: TLS with"):
        converge.converge(here)
