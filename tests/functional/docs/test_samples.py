"""Each sample of configuration in migration.md and networks.md is read by the code that
reads the configuration. tests/integration/migration/test_address.py tries those of migration."""

import re

import pytest
import salt.utils.yaml

from saltvirt import settings
from saltvirt.migration import incoming_address, options
from saltvirt.operations.journal import slots
from saltvirt.spec import network, profiles
from tests.lab import paths
from tests.tools import api


def samples(page):
    """What each YAML block of the page says."""
    text = paths.page(page).read_text(encoding="utf-8")
    blocks = re.findall(r"```yaml\n(.*?)```", text, re.S)
    return [salt.utils.yaml.safe_load(block) for block in blocks]


def keys(section, begin=""):
    """The setting that each value of ``virt`` belongs to; its path where it is no setting."""
    for word, value in section.items():
        path = f"{begin}{word}"
        if path in settings.KEYS or not isinstance(value, dict):
            yield path
        else:
            yield from keys(value, f"{path}:")


CONFIGURED = [
    (page, sample)
    for page in ("migration.md", "networks.md")
    for sample in samples(page)
    if "virt" in sample
]


def test_the_pages_have_their_samples():
    assert [page for page, _ in CONFIGURED] == ["migration.md", "migration.md", "networks.md"]


@pytest.mark.parametrize(("page", "sample"), CONFIGURED)
def test_each_setting_of_a_sample_is_one(page, sample):
    assert set(keys(sample["virt"])) <= set(settings.KEYS)


def test_the_samples_of_migration_are_read():
    host, master = (sample for page, sample in CONFIGURED if page == "migration.md")
    get = settings.of_master(host)
    given = host["virt"]["migration"]
    found = options.configured(get)
    read = {name: getattr(found, name) for name in given if name != "address"}
    assert read == {name: value for name, value in given.items() if name != "address"}
    own = {None: ["10.77.0.11", "10.9.0.7"]}
    assert incoming_address.advertised(given["address"], own.get) == "10.9.0.7"
    limits = master["virt"]["migration"]
    assert slots.limits(master) == (limits["at_once"], limits["at_once_per_host"])


def test_the_samples_of_networks_are_read():
    sls, configured = samples("networks.md")
    for name, body in sls.items():
        [arguments] = [body["virt.network_running"]]
        given = {key: value for one in arguments for key, value in one.items()}
        assert set(given) <= of_state("network_running")
        assert network.parse(name, **given).forward == given["forward"]
    found = profiles.read(settings.of_master(configured))
    for name in configured["virt"]["nic"]:
        devices = profiles.nics(found, name, hypervisor="kvm")
        assert [nic["source"] for nic in devices] == ["br0", "inside"]


def of_state(name):
    """The names of its parameters."""
    [found] = [one for one in api.ours("states.virt") if one.name == name]
    return {parameter.partition("=")[0] for parameter in found.parameters}
