"""The master's part in images and guests: the queue of copies, and a pillar for one guest."""

import json

import pytest

from tests.integration.seeding.host import PYTHON, Host

pytestmark = pytest.mark.lab

IMAGE = "/var/lib/libvirt/images/debian.qcow2"
DROP_IN = "/etc/salt/master.d/seeding.conf"
CONFIG = "virt: {hosts: 'hv*', image_copies: 1}\next_pillar: [{virtkey: _}]\n"
QUEUE = "/var/cache/salt/master/virt/copies"
# the most that copied at once while the hosts fetched, and what each said
FETCH = """
import json, os, sys, time
import salt.client, salt.config, salt.utils.event
client = salt.client.LocalClient()
bus = salt.utils.event.get_event("master", opts=client.opts, listen=True)
bus.subscribe("salt/virt/images/wait")
# one that was silent for 25 s; after 60 it is out, and both hosts have come by then
os.makedirs(os.path.dirname(sys.argv[1]), exist_ok=True)
with open(sys.argv[1], "w") as queue:
    silent = {"host": "hv9", "image": "a" * 40, "copies": True, "last_seen_s": time.time() - 25}
    json.dump([silent], queue)
job = client.run_job(["hv1", "hv2"], "virt.image_fetch", tgt_type="list",
    kwarg={"source": "salt://turns.qcow2"})
most, said, found, end = 0, [], {}, time.time() + 900
while len(found) < 2 and time.time() < end:
    try:
        queue = json.load(open(sys.argv[1]))
    except (OSError, ValueError):
        queue = []
    most = max(most, sum(place["copies"] for place in queue))
    event = bus.get_event(wait=0.01, tag="salt/virt/images/wait", full=True)
    if event:
        said.append(event["data"]["id"])
    found.update(client.get_cache_returns(job["jid"]))
print(json.dumps({"most": most, "said": said, "found": found}))
"""


def python(lab, script):
    return lab.exec("master", [PYTHON, "-c", script, QUEUE], timeout=1800).stdout


@pytest.fixture(scope="module")
def hosts(lab):
    """hv1 and hv2, of a master that lets one host copy at a time and serves guests' pillars."""
    lab.exec("master", ["sh", "-c", f"cat > {DROP_IN} <<'EOF'\n{CONFIG}EOF"])
    lab.exec("master", ["sh", "-c", "cp /srv/salt/debian.qcow2 /srv/salt/turns.qcow2"])
    lab.restart_master()
    found = [Host(lab, name) for name in ("hv1", "hv2")]
    found[0].configure("virt:\n  seed: {backend: fuse}")
    yield found
    found[0].configure(None)
    lab.exec("master", ["rm", "-f", DROP_IN, "/srv/salt/turns.qcow2"])
    lab.restart_master()


def forget(hosts):
    for host in hosts:
        host.sh("rm -rf /srv/salt-images/_base/turns-* /srv/salt-images/_base/.index")


def test_one_host_copies_at_a_time_and_one_that_died_holds_nobody_up(lab, hosts):
    forget(hosts)
    done = json.loads(python(lab, FETCH))
    assert sorted(done["found"]) == ["hv1", "hv2"], done
    paths = {one["ret"]["path"] for one in done["found"].values()}
    assert len(paths) == 1
    assert done["most"] == 1
    assert sorted(done["said"]) == ["hv1", "hv2"]
    assert python(lab, "import sys; print(open(sys.argv[1]).read())").strip() == "[]"
    forget(hosts)


def as_minion(host, name, key, *words):
    """What a machine that calls itself so, with this private key, hears from the master."""
    folder = "/root/forged"
    host.sh(
        f"rm -rf {folder}; mkdir -p {folder}/pki; umask 077\n"
        f"cat > {folder}/pki/minion.pem <<'EOF'\n{key}\nEOF\n"
        f"cd {folder}/pki; openssl rsa -in minion.pem -pubout -out minion.pub 2>/dev/null\n"
        f"cat > {folder}/minion <<'EOF'\n"
        f"master: master\nid: {name}\npki_dir: {folder}/pki\ncachedir: {folder}/cache\n"
        "auth_tries: 1\nauth_timeout: 60\nrequest_channel_tries: 1\nacceptance_wait_time: 1\n"
        "acceptance_wait_time_max: 1\nmaster_tries: 1\nlog_file: /dev/null\nEOF"
    )
    call = ["timeout", "300", "/opt/salt/bin/salt-call", "-c", folder, "--out=json", *words]
    done = host.lab.exec(host.name, call, check=False)
    host.sh(f"rm -rf {folder}")
    try:
        return json.loads(done.stdout)["local"]
    except ValueError:
        return None


def in_no_job_of_minions(lab, hv1):
    """A secret of the arguments reached the guest, and no minion could read it on its way."""
    told = hv1.inside("/srv/salt-images/store7_system.qcow2", "/etc/salt/minion")
    assert "hush9" in told["/etc/salt/minion"]
    cache = "/var/cache/salt/master"
    found = f"grep -rl hush9 {cache}/jobs | xargs -r grep -l virt.answer"
    assert lab.exec("master", ["sh", "-c", found], check=False).stdout == ""
    found = f"grep -rl hush9 {cache} /etc/salt/pki/master --exclude-dir=jobs"
    assert lab.exec("master", ["sh", "-c", found], check=False).stdout == ""


def test_a_pillar_reaches_the_guest_it_was_given_to_and_nobody_else(lab, hosts):
    hv1 = hosts[0]
    pillar = {"store": {"id": 7, "token": "s3cret"}}
    given = {"host": "hv1", "start": False, "nic": None, "pillar": pillar}
    given["config"] = {"store_token": "hush9"}
    done = lab.run("virt.init", "store7", 1, 64, IMAGE, **given)
    assert done.rc == 0, done.stdout + done.stderr
    inside = hv1.inside("/srv/salt-images/store7_system.qcow2", "/etc/salt/pki/minion/minion.pem")
    key = inside["/etc/salt/pki/minion/minion.pem"]
    in_no_job_of_minions(lab, hv1)
    assert as_minion(hv1, "store7", key, "pillar.raw", "store") == pillar["store"]
    hv1.sh("! grep -raq s3cret /srv/salt-images /etc/salt /var/log/salt /etc/libvirt")
    own = hv1.sh("cat /etc/salt/pki/minion/minion.pem")
    assert lab.call("hv1", "pillar.ext", {"virtkey": "_"}).get("store") is None
    assert as_minion(hv1, "store7", own, "pillar.raw", "store") is None  # another's key
    assert as_minion(hv1, "store7x", key, "pillar.raw", "store") is None  # another id
    assert lab.exec("master", ["sh", "-c", "! grep -rl s3cret /var/log/salt"]).stdout == ""
    assert lab.run("virt.purge", "store7", "force=True").rc == 0
    assert lab.exec("master", ["ls", "/etc/salt/pki/master/virtpillars"]).stdout == ""
    lab.exec("master", ["salt-key", "-yd", "store7*"], check=False)


def test_a_pillar_without_seed_is_refused(lab, hosts):
    given = {"host": "hv1", "start": False, "nic": None, "seed": False, "pillar": {"a": 1}}
    done = lab.run("virt.init", "store8", 1, 64, IMAGE, **given)
    assert done.rc == 1
    assert "only with seed" in done.stdout + done.stderr
