"""libvirt accepts our definitions, and reading them back shows no difference."""

import pytest

from saltvirt.design import network, pool
from saltvirt.diff import network_changes, pool_changes
from saltvirt.spec import network as network_spec
from saltvirt.spec import pool as pool_spec
from saltvirt.xml.network.network import Network
from saltvirt.xml.storage.pool import Pool
from tests.golden.cases import NETWORKS, POOLS, SECRET

libvirt = pytest.importorskip("libvirt")


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_defined_again_is_the_same(conn, name):
    spec = network_spec.parse(name, **NETWORKS[name])
    defined = conn.networkDefineXML(network.build(spec).tostring())
    actual = Network.fromstring(defined.XMLDesc())
    assert network_changes.changes(network.build(spec, actual), actual) == []
    conn.networkDefineXML(network.build(spec, actual).tostring())


@pytest.mark.parametrize("name", POOLS)
def test_a_pool_defined_again_is_the_same(conn, name):
    kind, arguments = POOLS[name]
    spec = pool_spec.parse(name, kind, **arguments)
    defined = conn.storagePoolDefineXML(pool.build(spec, secret_uuid=SECRET).tostring())
    actual = Pool.fromstring(defined.XMLDesc())
    assert pool_changes.changes(pool.build(spec, actual, SECRET), actual) == []


def test_a_network_goes_from_nat_to_every_mode(conn):
    spec = network_spec.parse("nat", **NETWORKS["nat"])
    actual = Network.fromstring(conn.networkDefineXML(network.build(spec).tostring()).XMLDesc())
    for arguments in NETWORKS.values():
        wanted = network.build(network_spec.parse("nat", **arguments), actual)
        defined = conn.networkDefineXML(wanted.tostring())
        actual = Network.fromstring(defined.XMLDesc())
        assert actual.uuid == wanted.uuid
        assert network_changes.changes(wanted, actual) == []
