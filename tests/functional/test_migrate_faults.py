"""What a migration does when somebody else touches the guest in its last moments."""

import pytest

libvirt = pytest.importorskip("libvirt")

from saltvirt import errors  # noqa: E402
from saltvirt.host import migrate_finish, migrate_recover  # noqa: E402

XML = (
    "<domain type='test'><name>web1</name><memory>65536</memory><os><type>hvm</type></os></domain>"
)


@pytest.fixture
def dom():
    conn = libvirt.open("test:///default")
    found = conn.defineXML(XML)
    yield found
    found.connect().lookupByName("web1").destroy() if found.isActive() else None
    conn.close()


class Proxy:
    """A virDomain, something happens just before it is undefined."""

    def __init__(self, dom, act):
        self._dom, self._act = dom, act

    def __getattr__(self, name):
        return getattr(self._dom, name)

    def undefineFlags(self, flags):
        self._act()
        return self._dom.undefineFlags(flags & ~libvirt.VIR_DOMAIN_UNDEFINE_NVRAM)


def test_a_guest_that_was_started_is_not_forgotten(dom):
    dom.create()
    with pytest.raises(errors.MigrationFailed, match="web1 was started on"):
        migrate_recover.undefine(dom)
    assert dom.isPersistent()


def test_nor_one_that_is_started_in_that_very_moment(dom):
    with pytest.raises(errors.MigrationFailed, match="web1 was started on"):
        migrate_recover.undefine(Proxy(dom, dom.create))
    there = dom.connect().lookupByName("web1")
    assert (there.isActive(), there.isPersistent()) == (1, 1), "it runs, and is defined again"


def test_no_disk_of_a_guest_that_is_here_again_is_deleted(dom, tmp_path):
    disk = tmp_path / "web1_vda.qcow2"
    disk.touch()
    report = {"uuid": dom.UUIDString(), "name": "web1"}
    deleted, kept = migrate_finish.remove_source(dom.connect(), report, [str(disk)])
    assert (deleted, kept) == ([], {str(disk): "web1 is defined here"})
    assert disk.exists()


def test_a_copy_that_has_just_begun_to_run_is_not_ended(dom):
    """Between the decision and the deed somebody started it."""
    dom.create()
    with pytest.raises(errors.OperationFailed, match="has just begun to run"):
        migrate_recover._end(dom)
    assert dom.isActive()
