"""A guest that left this host is not created here again by the host's own SLS."""

import stat

import pytest

pytest.importorskip("libvirt")
pytest.importorskip("salt")

from saltvirt import errors
from saltvirt.host.migration import departures
from saltvirt.states import guests
from tests.functional.host.provision.test_init import host, image  # noqa: F401

GIVEN = {
    "cpu": 1, "mem": 64, "seed": False, "update": True, "live": True, "detach": False,
    "disk_profile": None, "disks": [], "interfaces": [],
}  # fmt: skip


class Host:
    """What a state sees of the hypervisor."""

    test = False

    def __init__(self, modules):
        self.modules = modules

    def ha_reason(self, _name):
        return ""

    def call(self, function, *args, **kwargs):
        return self.modules[f"virt.{function}"](*args, **kwargs)


def test_a_guest_that_moved_away_is_not_made_again(host, tmp_path):  # noqa: F811
    name = "moved-away-1"
    folder = departures.FOLDER
    departures.record_departure(name, "hv2")
    try:
        with pytest.raises(errors.VirtError, match=rf"{name} was migrated from here to hv2 on 2"):
            guests.running(Host(host.modules), name, **GIVEN)
        assert name not in host.modules["virt.list_domains"]()
        host.init(name, disk=None)  # whoever says so gets it
        assert departures.departure_reason(name) is None
        departures.record_departure(name, "hv2", folder)
        host.modules["virt.purge"](name)
        assert departures.departure_reason(name) is None
        assert guests.defined(Host(host.modules), name, **GIVEN)["result"] is True
        host.modules["virt.purge"](name)
    finally:
        departures.forget(name)


def test_a_note_is_roots_alone_and_goes_where_it_lies(tmp_path):
    folder = tmp_path / "moved"
    departures.record_departure("web1", "hv2", str(folder))
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    departures.forget("web1", str(folder))
    assert departures.departure_reason("web1", str(folder)) is None and list(folder.iterdir()) == []


def test_a_note_that_cannot_be_read_is_none(tmp_path):
    (tmp_path / "web1").write_text("{")
    assert departures.departure_reason("web1", str(tmp_path)) is None
    departures.record_departure("web1", "hv2", str(tmp_path))
    assert "to hv2 on" in departures.departure_reason("web1", str(tmp_path))
