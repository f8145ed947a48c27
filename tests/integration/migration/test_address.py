"""The example of docs/how-to/migration.md, with the network of the lab."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import yaml

from tests.functional.docs.test_samples import samples

pytestmark = pytest.mark.lab

CONF = "/etc/salt/minion.d/migration.conf"
NETWORK = "10.77.0.0/24"


@pytest.fixture
def configured(cloud):
    sample = samples("migration.md")[0]
    assert sample["virt"]["migration"]["address"] != NETWORK
    sample["virt"]["migration"]["address"] = NETWORK
    for host in cloud.hosts:
        cloud.exec(host, f"cat > {CONF}", input=yaml.safe_dump(sample))
    cloud.restart_minion(*cloud.hosts)
    yield cloud
    for host in cloud.hosts:
        cloud.exec(host, ["rm", CONF])
    cloud.restart_minion(*cloud.hosts)


@pytest.mark.slow
def test_the_documented_settings_move_guests_with_their_disks_two_at_once(configured, guests):
    cloud = configured
    made = [guests(f"addr{i}").define("hv1").fill("hv1", 5) for i in (1, 2)]
    for guest in made:
        guest.start("hv1")
    with ThreadPoolExecutor() as pool:
        ended = [*pool.map(lambda one: cloud.run("virt.migrate", one.name, "hv2"), made)]
    assert [done.rc for done in ended] == [0, 0], ended
    for guest in made:
        guest.is_whole_on("hv2")
