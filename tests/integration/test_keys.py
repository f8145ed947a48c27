"""Certificates between real hypervisors: issued, renewed, rotated, revoked, and never disclosed."""

import json
import re

import pytest

from tests.integration import manual
from tests.lab.sh import LabError

pytestmark = pytest.mark.lab

STORE = "/etc/salt/pki/master/libvirt"
KEYS = "/etc/pki/libvirt/private/*.pem /etc/pki/qemu/*key.pem"
STATE = ("state.single", "virt.keys", "name=libvirt_keys")


@pytest.fixture(scope="module")
def cloud(lab):
    """Two hypervisors of the formula."""
    answers = lab.salt("hv*", "state.apply", "libvirt", timeout=120)
    for host, states in answers.items():
        assert all(state["result"] for state in states.values()), (host, states)
    return lab


def keys(cloud, host, **kwargs):
    """What virt.keys says there."""
    (ret,) = cloud.call(host, *STATE, timeout=300, **kwargs).values()
    return ret


def talk(cloud, one, two):
    """Can the first be a client of the second's libvirt?"""
    argv = ["virsh", "-c", f"qemu+tls://{two}/system", "hostname"]
    done = cloud.exec(one, argv, check=False)
    return done.returncode == 0 and done.stdout.strip() == two


def all_talk(cloud):
    return all(talk(cloud, *pair) for pair in (("hv1", "hv2"), ("hv2", "hv1")))


def back(cloud):
    """Waits until master and hosts talk to each other, while Salt's own command still fails."""

    def ready():
        try:
            answers = cloud.salt("hv*", "test.ping", timeout=10)
        except LabError:
            return False
        return all(answers.get(host) is True for host in cloud.hosts)

    cloud.wait(ready, "all minions back", timeout_s=180)


def restart(cloud, host):
    """Salt's daemon there anew."""
    unit = f"salt-{'master' if host == 'master' else 'minion'}"
    cloud.exec(host, f"systemctl restart {unit} || {{ sleep 5; systemctl restart {unit}; }}")


def leave(cloud, host):
    """The host is away: its minion answers no more, its libvirt does."""
    cloud.exec(host, "systemctl stop salt-minion")


def come_back(cloud, host):
    cloud.exec(host, "systemctl start salt-minion")
    back(cloud)


def configure(cloud, text):
    """The master with that as its ``virt:`` configuration, restarted."""
    path = "/etc/salt/master.d/virt.conf"
    cloud.exec("master", f"cat > {path}", input=text)
    restart(cloud, "master")
    cloud.reconnected()
    back(cloud)


@pytest.fixture
def master_config(cloud):
    """A function that configures the master; afterwards it is as it was."""
    before = cloud.exec("master", "cat /etc/salt/master.d/virt.conf").stdout
    yield lambda text: configure(cloud, text)
    configure(cloud, before)
    for host in cloud.hosts:
        keys(cloud, host)


def test_both_at_once_the_first_time_give_one_ca_and_mutual_tls(cloud):
    cloud.exec("master", f"rm -rf {STORE}")
    cloud.exec("hv1", "rm -rf /etc/pki/CA /etc/pki/libvirt /etc/pki/qemu")
    cloud.exec("hv2", "rm -rf /etc/pki/CA /etc/pki/libvirt /etc/pki/qemu")
    for states in cloud.salt("hv*", *STATE, timeout=300).values():
        assert all(state["result"] for state in states.values()), states
    for path in ("/etc/pki/CA/cacert.pem", "/etc/pki/qemu/ca-cert.pem"):
        sums = {cloud.exec(host, f"sha256sum < {path}").stdout for host in cloud.hosts}
        assert len(sums) == 1
    assert all_talk(cloud)
    for host in cloud.hosts:
        assert keys(cloud, host)["changes"] == {}


def test_only_its_owner_can_read_a_key(cloud):
    modes = cloud.exec("hv1", f"stat -c '%a %U %n' {KEYS}").stdout.splitlines()
    owner = {"libvirt": "root", "qemu": "libvirt-qemu"}
    configured = cloud.exec("hv1", "grep -s '^user *=' /etc/libvirt/qemu.conf || true").stdout
    if configured:
        owner["qemu"] = re.search('"(.*)"', configured)[1]
    assert len(modes) == 4
    for line in modes:
        mode, user, path = line.split()
        assert mode == "600"
        assert user == owner[path.split("/")[3]]
    readable = cloud.exec("master", f"find {STORE} -perm /077").stdout
    assert readable == ""


def test_without_a_certificate_nobody_gets_in(cloud):
    argv = "virsh -c 'qemu+tls://hv2/system?pkipath=/nonexistent' hostname"
    assert cloud.exec("hv1", argv, check=False).returncode != 0


def test_qemus_certificate_does_not_open_libvirt(cloud):
    cloud.exec(
        "hv1",
        "mkdir -p /tmp/q && cp /etc/pki/qemu/client-cert.pem /tmp/q/clientcert.pem && "
        "cp /etc/pki/qemu/client-key.pem /tmp/q/clientkey.pem && "
        "cp /etc/pki/CA/cacert.pem /tmp/q/",
    )
    argv = "virsh -c 'qemu+tls://hv2/system?pkipath=/tmp/q' hostname"
    done = cloud.exec("hv1", argv, check=False)
    cloud.exec("hv1", "rm -rf /tmp/q")
    assert done.returncode != 0


def test_test_mode_makes_nothing_on_either_side(cloud):
    cloud.exec("hv1", "mv /etc/pki/libvirt /etc/pki/away")
    cloud.exec("master", f"mv {STORE}/hv1 /root/away")
    ret = keys(cloud, "hv1", test=True)
    assert ret["result"] is None
    assert ret["changes"]["serverkey"] == "new"
    assert cloud.exec("hv1", "test -e /etc/pki/libvirt", check=False).returncode
    assert cloud.exec("master", f"test -e {STORE}/hv1", check=False).returncode
    cloud.exec("master", f"mv /root/away {STORE}/hv1")
    cloud.exec("hv1", "mv /etc/pki/away /etc/pki/libvirt")
    assert keys(cloud, "hv1", test=True)["changes"] == {}


def woken(cloud):
    """libvirtd of hv1 runs, and not at the end of the two minutes after which it sleeps."""
    cloud.exec("hv1", "systemctl start libvirtd; virsh -q list")


def pid(cloud, host):
    return cloud.exec(host, "systemctl show -p MainPID --value libvirtd").stdout.strip()


def test_a_running_daemon_takes_new_certificates_without_a_restart(cloud):
    woken(cloud)
    before = pid(cloud, "hv1")
    cloud.exec("master", f"rm {STORE}/hv1/servercert.pem")
    ret = keys(cloud, "hv1")
    assert ret["result"] is True
    assert ret["changes"]["tls"] == "verified with a TLS handshake"
    assert pid(cloud, "hv1") == before
    assert all_talk(cloud)


def test_a_daemon_that_was_left_behind_is_told_again(cloud):
    """A crash after the files were written and before the daemon was told."""
    woken(cloud)
    cloud.exec("master", f"rm {STORE}/hv1/servercert.pem")
    assert keys(cloud, "hv1", reload=False)["changes"]
    ret = keys(cloud, "hv1")
    assert ret["changes"] == {"tls": "verified with a TLS handshake"}


def test_a_certificate_of_another_ca_on_one_host_is_seen_and_mended(cloud):
    cloud.exec(
        "hv1",
        "cd /etc/pki/libvirt && openssl req -x509 -newkey rsa:2048 -nodes -days 9 -subj /CN=hv1 "
        "-keyout private/serverkey.pem -out servercert.pem 2>/dev/null",
    )
    seen = cloud.run("virt.certs", "hv1")
    assert seen.rc == 1
    assert "the host has a different one (CN=hv1): apply virt.keys" in seen.stdout
    assert keys(cloud, "hv1")["result"] is True
    assert cloud.run("virt.certs").rc == 0
    assert all_talk(cloud)
    kept = cloud.exec("hv1", "ls /etc/pki/libvirt/private").stdout.split()
    assert len([name for name in kept if name.startswith("serverkey.pem.")]) == 1


def test_certs_tells_of_every_host_what_it_has_and_until_when(cloud):
    found = cloud.run_json("virt.certs")["certificates"]
    assert set(found["hosts"]) >= set(cloud.hosts)
    server = found["hosts"]["hv1"]["certificates"]["server"]
    assert server["names"] == ["hv1"]
    assert 360 <= server["days_left"] <= 365
    assert server["issuer"] == found["CA"]["libvirt"]["subject"]
    assert found["hosts"]["hv1"]["daemon"] in ("serves", "does not listen")


# who gets none


def test_the_manual_about_the_master(cloud):
    """Its backup, what is typed after a restore, and an upgrade to the version that is there."""
    followed = ["Back up the master", "Restore the master", "Upgrade Salt Virt"]
    here = {"hyper1": "hv1", "hyper*": "hv*"}
    manual.Page(cloud, "master.md", here, only=followed).follow()
    kept = cloud.exec("master", "tar -tzf /root/salt-master.tgz").stdout.splitlines()
    assert {STORE.lstrip("/") + "/", "etc/salt/master", "var/cache/salt/master/virt/"} <= set(kept)


def test_a_minion_that_is_not_named_gets_nothing_and_the_state_says_what_to_do(
    cloud, master_config
):
    cloud.exec("master", f"mv {STORE}/hv2 /root/away")
    master_config("virt: {hosts: 'hv1'}\n")
    ret = keys(cloud, "hv2")
    assert ret["result"] is False
    assert "virt:hosts" in ret["comment"]
    forged = '{"libvirt": {"minion_id": "hv1", "hosts": "*"}}'
    pillar = cloud.call("hv2", "pillar.ext", forged, pillar={"virt": {"hosts": "*"}})
    pillar.pop("_errors", None)  # where Salt before 3008 says that it takes no second minion_id
    assert "libvirt" not in json.dumps(pillar).replace("virt.hosts", "")
    assert cloud.exec("master", f"test -e {STORE}/hv2", check=False).returncode
    assert "virt:hosts (hv1)" in cloud.exec("master", "journalctl -u salt-master").stdout
    cloud.exec("master", f"mv /root/away {STORE}/hv2")


THIEF = """
import salt.channel.client, salt.config, sys

class Load(dict):
    def __setitem__(self, key, value):
        if key != "id":  # Salt's own client puts the minion's true id in here
            super().__setitem__(key, value)

opts = salt.config.minion_config("/etc/salt/minion")
opts["master_uri"] = "tcp://10.77.0.1:4506"
load = Load(id=sys.argv[1], grains={"id": sys.argv[1]}, saltenv="base", pillarenv=None,
            pillar_override={}, extra_minion_data={}, ver="2", cmd="_pillar",
            ext={"libvirt": "_"})
with salt.channel.client.ReqChannel.factory(opts) as channel:
    print(channel.crypted_transfer_decode_dictentry(load, dictkey="pillar", tries=1, timeout=90))
"""


def test_a_minion_that_asks_in_anothers_name_gets_nothing(cloud):
    def steal(name):
        argv = ["timeout", "300", "/opt/salt/bin/python", "-", name]
        return cloud.exec("hv2", argv, check=False, input=THIEF)

    assert "libvirt.serverkey.pem" in steal("hv2").stdout  # the script itself works
    assert "BEGIN" not in steal("hv1").stdout


# without the binding, and without a master


def test_the_state_loads_without_the_binding(cloud):
    where = cloud.exec("hv1", "/opt/salt/bin/python -c 'import libvirt; print(libvirt.__file__)'")
    path = where.stdout.strip()
    cloud.exec("hv1", f"mv {path} {path}.away")
    argv = ["salt-call", "--out=json", "state.single", "virt.keys", "name=k"]
    done = cloud.exec("hv1", argv, check=False)
    old = cloud.exec("hv1", ["salt-call", "--out=json", "state.single", "libvirt.keys", "name=k"])
    cloud.exec("hv1", f"mv {path}.away {path}")
    for text in (done.stdout, old.stdout):
        (ret,) = json.loads(text)["local"].values()
        assert ret["result"] is True, ret


def test_without_a_master_it_works_with_the_pillar_at_hand_or_says_what_is_missing(cloud):
    local = ["salt-call", "--local", "--out=json", "--pillar-root=/tmp/pillar"]
    state = ["state.single", "virt.keys", "name=k", "basepath=/tmp/pki"]
    done = cloud.exec("hv1", [*local, *state], check=False)
    (ret,) = json.loads(done.stdout)["local"].values()
    assert ret["result"] is False
    assert "Without a master, put libvirt.cacert.pem" in ret["comment"]
    pillar = {}
    for name, path in (("cacert", "CA/cacert"), ("servercert", "libvirt/servercert"),
                       ("serverkey", "libvirt/private/serverkey"),
                       ("clientcert", "libvirt/clientcert"),
                       ("clientkey", "libvirt/private/clientkey")):  # fmt: skip
        pillar[f"libvirt.{name}.pem"] = cloud.exec("hv1", f"cat /etc/pki/{path}.pem").stdout
    cloud.exec(
        "hv1", "mkdir -p /tmp/pillar && cat > /tmp/pillar/keys.sls", input=json.dumps(pillar)
    )
    cloud.exec("hv1", "cat > /tmp/pillar/top.sls", input="base: {'*': [keys]}")
    done = cloud.exec("hv1", [*local, *state], check=False)
    (ret,) = json.loads(done.stdout)["local"].values()
    assert ret["result"] is True, ret
    assert cloud.exec("hv1", "cat /tmp/pki/libvirt/private/serverkey.pem").stdout
    cloud.exec("hv1", "rm -rf /tmp/pillar /tmp/pki")


# nothing leaks


def test_the_search_finds_a_key_that_leaks(cloud):
    """Asked for in the clear, on the command line: Salt keeps it in its pillar cache."""
    cloud.salt("hv1", "pillar.ext", '{"libvirt": "_"}')
    found = files_with(cloud, "master", fragments(cloud))
    assert [path for path in found if path.startswith("/var/cache/salt/master/")]
    for host in cloud.hosts:  # tests before this one may have asked in the clear, too
        assert keys(cloud, host)["result"] is True  # compiles the pillar anew
    left = files_with(cloud, "master", fragments(cloud))
    # Salt before 3008 keeps what a person was shown: the return of that job
    assert [path for path in left if not path.startswith("/var/cache/salt/master/jobs/")] == []


def fragments(cloud):
    """A line of each private key that exists anywhere, which is in no certificate."""
    texts = [cloud.exec(host, f"cat {KEYS}").stdout for host in cloud.hosts]
    texts.append(cloud.exec("master", f"cat {STORE}/*cakey.pem {STORE}/*/*key.pem || true").stdout)
    found = set()
    for text in texts:
        for body in re.findall(r"BEGIN[A-Z ]* KEY-----\n(.*?)\n-----END", text, re.DOTALL):
            found.add(body.splitlines()[1])
    return sorted(found)


EXPECTED = {
    "master": ("/etc/salt/pki/master/libvirt/",),
    "hv": ("/etc/pki/libvirt/private/", "/etc/pki/qemu/"),
}


def files_with(cloud, host, lines):
    """Files outside of where keys belong in which one of the lines is."""
    pattern = "\n".join(lines)
    argv = ("grep -rlFf - /etc /var /root /tmp /run /srv /opt/salt/var --devices=skip "
            "--exclude-dir=lib --exclude-dir=debugfs 2>/dev/null || true")  # fmt: skip
    found = cloud.exec(host, argv, input=pattern).stdout.split()
    found += cloud.exec(
        host, "grep -rlFf - /var/lib/salt /var/cache/salt 2>/dev/null || true", input=pattern
    ).stdout.split()
    allowed = EXPECTED["master" if host == "master" else "hv"]
    return sorted({path for path in found if not path.startswith(allowed)})


def trace(cloud, on):
    """Masters and minions log everything they can to files, or what they did before."""
    for host in cloud.names():
        kind = "master" if host == "master" else "minion"
        path = f"/etc/salt/{kind}.d/trace.conf"
        text = f"log_level: all\nlog_level_logfile: all\nlog_file: /var/log/salt/{kind}\n"
        cloud.exec(host, f"mkdir -p /etc/salt/{kind}.d /var/log/salt; rm -f {path}")
        if on:
            cloud.exec(host, f"cat > {path}", input=text)
        restart(cloud, host)
    back(cloud)


def recorded(cloud, words):
    """Waits until the recorder of events has written down these words, which are said now: what
    was said before is written down then, too."""

    def heard():
        cloud.salt("hv1", "test.echo", words)
        return words in cloud.exec("master", "cat /var/log/events 2>/dev/null || true").stdout

    cloud.wait(heard, words)


@pytest.fixture(params=["pillar", "csr"])
def traced(cloud, request):
    """Everything is logged, and the event bus is recorded. The mode is the parameter."""
    path = "/etc/salt/master.d/zz-mode.conf"
    text = f"virt: {{hosts: 'hv*', pki: {{mode: {request.param}}}}}\n"
    cloud.exec("master", f"cat > {path}", input=text)
    trace(cloud, True)
    cloud.exec(
        "master",
        "systemd-run --unit=record-events --collect sh -c "
        "'exec salt-run state.event pretty=True > /var/log/events 2>&1'",
    )
    recorded(cloud, "the recorder hears")
    yield cloud
    cloud.exec("master", f"systemctl stop record-events; rm -f {path}", check=False)
    trace(cloud, False)
    cloud.exec("master", "rm -f /var/log/events /var/log/salt/master")
    for host in cloud.hosts:
        cloud.exec(host, "rm -f /var/log/salt/minion")


@pytest.mark.slow
def test_no_private_key_is_anywhere_but_in_its_file(traced, request):
    cloud, mode = traced, request.node.callspec.params["traced"]
    cloud.exec("master", f"rm -rf {STORE}")
    for host in cloud.hosts:
        assert keys(cloud, host)["result"] is True
        assert keys(cloud, host)["changes"] == {}
    cloud.salt("*", "saltutil.refresh_pillar")
    pillars = cloud.salt("*", "pillar.items")
    assert cloud.run("virt.certs").rc == 0
    cloud.salt("hv*", "virt.tls_info")
    recorded(cloud, "all was recorded")
    lines = fragments(cloud)
    assert len(lines) == 2 + 8
    assert not [line for line in lines if line in json.dumps(pillars)]
    logged = cloud.exec("master", "cat /var/log/salt/master /var/log/events").stdout
    assert "virt.keys" in logged
    assert "libvirt.servercert.pem" in logged or "libvirt" in logged
    for host in cloud.names():
        assert files_with(cloud, host, lines) == []
        journal = cloud.exec(host, "journalctl --no-pager -o cat").stdout
        assert not [line for line in lines if line in journal]
    if mode == "csr":
        left = cloud.exec("master", f"ls {STORE}/hv1").stdout
        assert "key.pem" not in left
    assert all_talk(cloud)


# rotation and revocation


def test_a_rotation_waits_for_a_host_that_is_away_and_nobody_is_locked_out(cloud):
    old = cloud.exec("hv1", "sha256sum < /etc/pki/CA/cacert.pem").stdout
    leave(cloud, "hv2")
    waiting = cloud.run("virt.rotate_ca")
    assert waiting.rc == 1
    assert "phase 'trust' for hv2" in waiting.stdout
    assert all_talk(cloud)  # hv1 trusts both, hv2 the old one
    come_back(cloud, "hv2")
    done = cloud.run("virt.rotate_ca")
    assert done.rc == 0, done.stdout
    assert all_talk(cloud)
    assert cloud.exec("hv1", "sha256sum < /etc/pki/CA/cacert.pem").stdout != old
    assert cloud.exec("hv1", "grep -c BEGIN /etc/pki/CA/cacert.pem").stdout.strip() == "1"
    assert cloud.run("virt.certs").rc == 0


GUEST = """
<domain type='qemu'><name>probe</name><memory unit='MiB'>64</memory><vcpu>1</vcpu>
<os><type arch='x86_64' machine='pc'>hvm</type></os>
<devices><emulator>/usr/bin/qemu-system-x86_64</emulator></devices></domain>
"""


@pytest.mark.slow
def test_guests_migrate_over_tls_in_the_middle_of_a_rotation(cloud):
    cloud.exec("hv1", "cat > /tmp/probe.xml && virsh create /tmp/probe.xml", input=GUEST)
    try:
        leave(cloud, "hv2")
        assert cloud.run("virt.rotate_ca").rc == 1
        come_back(cloud, "hv2")
        move(cloud, "hv1", "hv2")
        assert cloud.run("virt.rotate_ca").rc == 0
        move(cloud, "hv2", "hv1")
    finally:
        come_back(cloud, "hv2")
        for host in cloud.hosts:
            cloud.exec(host, "virsh destroy probe", check=False)


def move(cloud, source, target):
    uri = f"qemu+tls://{target}/system"
    argv = ["virsh", "migrate", "--live", "--p2p", "--tls", "probe", uri]
    cloud.exec(source, argv)
    assert "running" in cloud.exec(target, ["virsh", "domstate", "probe"]).stdout


def test_a_revoked_host_is_shut_out_and_can_come_back_with_new_certificates(cloud):
    assert cloud.run("virt.revoke", "hv2").rc == 0
    assert not talk(cloud, "hv2", "hv1")
    assert not talk(cloud, "hv1", "hv2")
    ret = keys(cloud, "hv2")
    assert ret["result"] is False
    assert "salt-run virt.revoke hv2 undo=True" in ret["comment"]
    assert cloud.run("virt.revoke", "hv2", undo=True).rc == 0
    assert keys(cloud, "hv2")["result"] is True
    assert all_talk(cloud)


def test_revoking_tells_of_hosts_that_do_not_know_it_yet(cloud):
    leave(cloud, "hv1")
    try:
        told = cloud.run("virt.revoke", "hv2")
    finally:
        come_back(cloud, "hv1")
    assert told.rc == 1
    assert "hv1 (" in told.stdout
    assert "apply virt.keys there" in told.stdout
    assert cloud.run("virt.revoke", "hv2", undo=True).rc == 0
    for host in cloud.hosts:
        assert keys(cloud, host)["result"] is True
    assert all_talk(cloud)


def test_revoking_a_host_that_does_not_exist_is_one_line(cloud):
    told = cloud.run("virt.revoke", "hv77")
    assert told.rc == 1
    assert told.stdout.strip().splitlines() == [
        "hv77 never had a certificate; hosts with certificates: hv1, hv2"
    ]
