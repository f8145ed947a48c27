"""A hypervisor that reports the UUID of another guest gets none of that guest's backups."""

from types import SimpleNamespace

import pytest

pytest.importorskip("salt")

from saltvirt import errors
from saltvirt.backup.manager import backup
from saltvirt.backup.manager.backup import CreateBackup
from saltvirt.backup.model.answers import BackupPlan, GuestInspection
from saltvirt.backup.model.policy import TargetPolicy

UUID, OTHER = "the one", "another"


@pytest.fixture
def backed_up(monkeypatch):
    """A function that backs a guest up, which has the UUID by what its host says; by the last
    backup of that UUID it was another one on another host. hosts: each with its guests and their
    UUIDs; None: it does not answer."""

    def act(name, host, guest, before, only=None, **hosts):
        there = [
            SimpleNamespace(
                name=one, guests=[SimpleNamespace(name=n, uuid=u) for n, u in guests.items()]
            )
            for one, guests in hosts.items()
            if guests is not None
        ]
        silent = {one: "no answer" for one, guests in hosts.items() if guests is None}
        monkeypatch.setattr(backup.inventory, "gather", lambda _fleet: (there, silent))
        one = CreateBackup(None, name, None, None, host=only)
        plan, look = BackupPlan("x", (), (), guest, before), GuestInspection(UUID, True, ())
        one._refuse_another(TargetPolicy("vault", "b1", "/b"), host, look, plan)

    return act


EVIL = {"evil": UUID}


@pytest.mark.parametrize(
    ("before", "hosts"),
    [
        ("hv1", {"hv1": {"web1": UUID}, "hv3": EVIL}),
        ("hv1", {"hv1": {"web2": OTHER}, "hv2": {"web1": UUID}, "hv3": EVIL}),  # it was moved since
        ("hv3", {"hv1": {"web1": UUID}, "hv3": EVIL}),  # from the one that says it has it
        ("hv1", {"hv2": {"web2": UUID}, "hv3": EVIL}),  # and renamed
        (None, {"hv1": {"web1": UUID}, "hv3": EVIL}),
    ],
)
def test_one_that_is_anothers_is_refused(backed_up, before, hosts):
    [(name, host)] = [
        (name, host)
        for host, guests in hosts.items()
        for name, uuid in guests.items()
        if uuid == UUID and host != "hv3"
    ]
    said = f"hv3 reports the UUID {UUID} for evil, and {host} reports it for {name}"
    with pytest.raises(errors.Refused, match=said):
        backed_up("evil", "hv3", "web1", before, **hosts)
    with pytest.raises(errors.Refused, match=said):
        backed_up("evil", "hv3", "web1", before, "hv3", **hosts)


@pytest.mark.parametrize("silent", ["hv1", "hv2"])
def test_whoever_is_silent_may_have_it(backed_up, silent):
    """Where it was, or where it went to since."""
    hosts = {"hv1": {}, "hv2": {}, "hv3": EVIL, silent: None}
    said = f"it belongs to web1 on hv1, and {silent} does not answer: .* host=hv3"
    with pytest.raises(errors.Refused, match=said):
        backed_up("evil", "hv3", "web1", "hv1", **hosts)
    backed_up("evil", "hv3", "web1", "hv1", "hv3", **hosts)  # a person knows


@pytest.mark.parametrize(
    ("name", "host", "guest", "before"),
    [
        ("web1", "hv3", None, None),  # the first of all
        ("web1", "hv1", "web1", "hv1"),
        ("web1", "hv3", "web1", "hv1"),  # it was moved
        ("web2", "hv1", "web1", "hv1"),  # renamed
        ("web2", "hv3", "web1", "hv1"),  # both, and nobody has the old one
    ],
)
def test_the_guest_itself_goes_on(backed_up, name, host, guest, before):
    hosts = {"hv1": {}, "hv2": {"web1": OTHER}, "hv3": {}, host: {name: UUID}}
    backed_up(name, host, guest, before, **hosts)
    if host == before:  # it was renamed at most: nobody else's word is needed
        backed_up(name, host, guest, before, **{**hosts, "hv2": None})
