"""The maintenance of a host that keeps its guests."""

import pytest

pytest.importorskip("salt")

from saltvirt import errors
from saltvirt.operations.inspect import maintenance
from saltvirt.operations.inspect.maintenance import Maintenance
from saltvirt.operations.journal import lock
from tests.counted import Cloud


class Provider:
    """Counts how often the engine is told."""

    refreshed = 0

    def refresh(self):
        self.refreshed += 1


@pytest.fixture
def cloud(tmp_path):
    return Cloud(tmp_path, 2)


def state(cloud):
    return maintenance.show(cloud, "hv001")


def test_on_and_off(cloud):
    assert state(cloud).comment == "hv001 accepts new guests"
    planned = Maintenance(cloud, "hv001", True, "disks").check()
    assert planned.comment == "hv001 would get no new guests: disks"
    assert planned.answer()["hv001"]["result"] is None
    assert cloud.marks == {}
    begun = Maintenance(cloud, "hv001", True, "disks").run()
    assert begun.changes == {"maintenance": {"old": None, "new": "disks"}}
    assert begun.comment == state(cloud).comment
    assert state(cloud).details == {
        "host": "hv001", "maintenance": True, "reason": "disks", "guests": [],
    }  # fmt: skip
    for again in (
        Maintenance(cloud, "hv001", True).run(),
        Maintenance(cloud, "hv001", True).check(),
    ):
        assert (again.changes, again.details["reason"]) == ({}, "disks")
    assert Maintenance(cloud, "hv001", True, "memory").run().details["reason"] == "memory"
    ended = Maintenance(cloud, "hv001", False).run()
    assert (ended.comment, cloud.marks) == ("hv001 accepts new guests", {})
    assert Maintenance(cloud, "hv001", False).check().nothing
    assert Maintenance(cloud, "hv001", True).run().details["reason"] == "maintenance"


def test_evacuated_guests_can_still_return(cloud):
    cloud.marks["hv001"] = {"reason": "evacuated", "guests": ["web1"]}
    assert Maintenance(cloud, "hv001", True, "disks").run().details["guests"] == ["web1"]
    ended = Maintenance(cloud, "hv001", False).run()
    assert ended.comment == (
        "hv001 accepts new guests; 1 guest evacuated from it can return: "
        "salt-run virt.restore hv001"
    )
    assert cloud.marks["hv001"] == {"reason": None, "guests": ["web1"]}


def test_every_reason_against_it(cloud):
    with lock.host(cloud.opts, "hv001", "virt.evacuate hv001"):
        checked = Maintenance(cloud, "hv001", False, " ").check()
        assert len(checked.reasons) == 3
        assert "virt.evacuate hv001" in checked.comment
        with pytest.raises(errors.OperationFailed, match="is under way"):
            Maintenance(cloud, "hv001", False).run()
    cloud.virt_maintenance = lambda _host, **_arguments: None
    with pytest.raises(errors.OperationFailed, match="did not record its maintenance"):
        Maintenance(cloud, "hv001", True).run()


@pytest.mark.parametrize("reason", ["", " ", True, ["disks"], "x" * 201])
def test_a_reason_is_a_short_text(cloud, reason):
    change = Maintenance(cloud, "hv001", True, reason)
    assert change.check().comment.startswith("reason ")
    with pytest.raises(errors.InvalidInput, match="reason "):
        change.run()
    assert cloud.marks == {}


def test_a_reason_is_one_line(cloud):
    begun = Maintenance(cloud, "hv001", True, "new\n\x1b[31mdisks").run()
    assert begun.details["reason"] == "new \\x1b[31mdisks"


def test_high_availability_is_told(cloud):
    provider = Provider()
    begun = Maintenance(cloud, "hv001", True, "disks", provider).run()
    assert (provider.refreshed, "high availability moves" in begun.comment) == (1, True)
    Maintenance(cloud, "hv001", True, "disks", provider).run()
    assert provider.refreshed == 1
