"""An update from the previous release while guests run: docs/how-to/master.md, in its order.

Slow: a lab of its own. `make test-matrix` has it in each pair.
"""

import pytest

from tests.integration.migration import counter
from tests.lab import released, sync

pytestmark = [pytest.mark.lab, pytest.mark.slow]

CERTIFICATES = "openssl x509 -noout -serial -in /etc/pki/libvirt/servercert.pem"


@pytest.fixture(scope="module")
def cloud(fresh_lab, tmp_path_factory):
    """A lab of the previous release, with a guest that counts and one that is off."""
    old = tmp_path_factory.mktemp("previous") / "tree"
    released.tree(old)
    publish_old(fresh_lab, old)
    counter.install(fresh_lab)
    yield fresh_lab
    for host in fresh_lab.hosts:
        fresh_lab.exec(host, "virsh destroy upd1; virsh destroy upd2; true")


def publish_old(cloud, tree):
    released.publish(tree, cloud.repository)
    for command in sync.MASTER:
        cloud.exec("master", ["salt-run", *command])
    answers = sync.sync_all(cloud, ["-t", "120", "hv*"])
    assert set(answers) == set(cloud.hosts)


def publish_new(cloud):
    """The master alone has the new one; the hosts have the old one."""
    sync.publish.publish(sync.paths.REPOSITORY, cloud.repository)
    for command in sync.MASTER:
        cloud.exec("master", ["salt-run", *command])


def ok(cloud, *words, **asked):
    done = cloud.run(*words, **asked)
    assert done.rc == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    return done.stdout


def test_guests_run_on_and_everything_of_the_old_release_is_the_new_ones(cloud):
    running = counter.Counter(cloud, "upd1").define("hv1").fill("hv1", 5).start("hv1")
    made = cloud.call("hv1", "virt.init", "upd2", 1, 64, disks=[{"name": "system", "size": 8}],
                      start=False, seed=False, interfaces=[])  # fmt: skip
    assert isinstance(made, dict), made
    moved = cloud.run("virt.migrate", "upd1", "hv2")
    assert moved.rc == 0, moved.stdout
    serials = {host: cloud.exec(host, CERTIFICATES).stdout for host in cloud.hosts}

    publish_new(cloud)
    # between the two: hosts of the old release are asked as before, or say what they lack
    listed = cloud.run("virt.list")
    assert "Traceback" not in listed.stdout + listed.stderr
    lag = cloud.run("virt.versions")
    assert lag.rc == 1
    assert "hv1" in lag.stdout and "hv2" in lag.stdout
    running.is_whole_on("hv2")

    answers = sync.sync_all(cloud, ["-t", "120", "hv*"])
    assert set(answers) == set(cloud.hosts)
    ok(cloud, "virt.versions")
    found = cloud.run_json("virt.list")
    assert found["hv2"]["running"] == ["upd1"]
    running.is_whole_on("hv2")

    # nothing is to do to what the old one made
    for host in cloud.hosts:
        answer = cloud.call(host, "state.apply", "libvirt", timeout=240)
        assert all(state["result"] for state in answer.values()), answer
    assert {host: cloud.exec(host, CERTIFICATES).stdout for host in cloud.hosts} == serials
    ok(cloud, "virt.migrate", "upd1", "hv1")
    running.is_whole_on("hv1")
    ok(cloud, "virt.repair")
    ok(cloud, "virt.purge", "upd2", "force=True")
    done = cloud.exec("hv1", "virsh list --all --name; ls /srv/salt-images", check=False).stdout
    assert "upd2" not in done


def test_the_old_release_published_again_is_the_way_back(cloud, tmp_path):
    old = tmp_path / "tree"
    released.tree(old)
    publish_old(cloud, old)
    listed = cloud.run("virt.list")
    assert listed.rc == 0, listed.stdout
    assert "upd1" in listed.stdout
    ok(cloud, "virt.migrate", "upd1", "hv2")
    cloud.sync()
    ok(cloud, "virt.versions")
