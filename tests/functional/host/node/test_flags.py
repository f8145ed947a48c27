"""Boolean arguments as text, from salt-api or a quoted value in an SLS: ``False`` permits nothing.
With libvirt's test driver."""

import pytest

libvirt = pytest.importorskip("libvirt")
pytest.importorskip("salt")

from saltvirt import errors
from saltvirt.host.node import maintenance
from tests.functional.host.provision.test_init import host, image, names  # noqa: F401


@pytest.fixture
def guest(host, image):  # noqa: F811
    """The modules of a host that has the guest ``web1``, which is off."""
    host.init("web1", image=image, disks=[{"name": "system", "size": 16}])
    return host


def test_a_copy_is_neither_started_nor_seeded(guest):
    given = {"seed": "False", "start": "False", "autostart": "no", "test": "False"}
    assert guest.modules["virt.clone"]("web1", "web2", **given)["pub_key"] is None
    dom = guest.conn.lookupByName("web2")
    assert not dom.isActive() and not dom.autostart()


def test_a_new_name_leaves_the_system_as_it_is(guest):
    renamed = guest.modules["virt.rename"]("web1", "web2", seed="False", test="False")
    assert renamed["pub_key"] is None and names(guest) == ["test", "web2"]


@pytest.mark.parametrize("verb", ["clone", "rename"])
def test_what_is_neither_is_refused(guest, verb):
    with pytest.raises(errors.VirtError, match="seed 'perhaps' is not true or false"):
        guest.modules[f"virt.{verb}"]("web1", "web2", seed="perhaps")
    assert names(guest) == ["test", "web1"]


def test_what_is_no_test_starts_it(guest):
    assert guest.modules["virt.start"]("web1", test="False") is True
    assert guest.conn.lookupByName("web1").isActive()


def test_a_change_for_the_next_start_waits(guest):
    dom = guest.conn.lookupByName("test")
    before = dom.info()[2]
    asked = {"mem": {"boot": 8192, "current": 1024}, "overcommit": True, "live": "False"}
    guest.modules["virt.update"]("test", **asked, test="False")
    assert dom.info()[2] == before, "it runs, and nothing is changed on it now"
    assert "<currentMemory unit='KiB'>1048576<" in dom.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE)


def test_the_mark_of_maintenance_stays(guest, monkeypatch):
    done = []
    monkeypatch.setattr(maintenance, "read", lambda: None)
    monkeypatch.setattr(maintenance, "clear", lambda: done.append("clear"))
    monkeypatch.setattr(maintenance, "write", lambda words, _kept: done.append(words))
    mark = guest.modules["virt.maintenance"]
    mark(off="False")
    mark("new disks", off="False")
    assert done == ["new disks"]
    mark(off="True")
    assert done == ["new disks", "clear"]


def test_what_is_no_test_cleans(guest):
    """With test=True nothing is reported where nothing is left."""
    clean = guest.modules["virt.migrate_clean"]
    assert clean("web1", test="False") == {"deleted": [], "retained": {}}
    assert clean("web1", test="True") == {}
