"""The address at which a host receives guests, from its own configuration; the former meaning still
works."""

import pytest

from saltvirt.errors import InvalidInput
from saltvirt.migration import flags, incoming_address, options

NAMES = {"hv1-fast": "10.9.0.1", "hv2-fast": "10.9.0.2", "hv3-fast": "10.9.0.3"}


def host(*addresses):
    def own(name=None):
        return [a for a in addresses if name is None or NAMES.get(name, name) == a]

    return own


HV1, HV2, HV3 = (host(f"192.0.2.{n}", f"10.9.0.{n}", f"fd00::{n}") for n in (1, 2, 3))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (None, None),
        ("10.9.0.2", "10.9.0.2"),
        ("hv2-fast", "hv2-fast"),
        ("10.9.0.0/24", "10.9.0.2"),
        ("fd00::/64", "fd00::2"),
        ("172.16.0.0/12", None),
        (["172.16.0.0/12", "10.9.0.0/24"], "10.9.0.2"),
        ("10.9.0.1", None),
        ("hv1-fast", None),
    ],
)
def test_a_host_says_only_what_is_its_own(given, said):
    assert incoming_address.advertised(given, HV2) == said


def test_three_hosts_with_one_network_in_a_common_pillar():
    for target, address in ((HV1, "10.9.0.1"), (HV2, "10.9.0.2"), (HV3, "10.9.0.3")):
        told = incoming_address.advertised("10.9.0.0/24", target)
        for source in (HV1, HV2, HV3):
            assert incoming_address.target_address(told, "10.9.0.0/24", source) == address


def test_two_hosts_that_name_each_other_as_before():
    assert incoming_address.advertised("10.9.0.1", HV2) is None
    assert incoming_address.target_address(None, "10.9.0.2", HV1) == "10.9.0.2"


def test_a_source_that_names_itself_does_not_send_the_guest_to_itself():
    assert incoming_address.target_address(None, "10.9.0.1", HV1) is None
    assert incoming_address.target_address(None, "10.9.0.0/24", HV1) is None
    assert incoming_address.target_address("10.9.0.3", "10.9.0.1", HV1) == "10.9.0.3"


def test_what_is_no_network_is_refused():
    with pytest.raises(
        InvalidInput, match=r"virt:migration:address: '10.9.0.0/99' is not a network"
    ):
        incoming_address.advertised("10.9.0.0/99", HV1)


@pytest.mark.parametrize(
    ("address", "uri"), [("10.9.0.2", "tcp://10.9.0.2"), ("fd00::2", "tcp://[fd00::2]")]
)
def test_as_libvirt_wants_it(address, uri):
    assert (
        flags.parameters(options.parse({}), [], options.MigrationSettings(address=address))["URI"]
        == uri
    )


@pytest.mark.parametrize("told", ["10.9.0.2/x", "a b", "-x", "hv2?x=1", "\n"])
def test_what_a_target_says_is_an_address_or_it_is_refused(told):
    with pytest.raises(InvalidInput, match="neither an address nor a name"):
        incoming_address.target_address(told, None, HV1)


@pytest.mark.parametrize("given", [5, [5], ["10.9.0.2", None], "a b", ["hv2?x=1"], {"a": 1}])
def test_a_setting_that_is_no_address_is_named(given):
    with pytest.raises(InvalidInput, match="virt:migration:address must be an address, a name"):
        incoming_address.advertised(given, HV2)


def test_a_network_may_be_written_with_an_address_in_it():
    assert incoming_address.advertised("10.9.0.77/24", HV2) == "10.9.0.2"
