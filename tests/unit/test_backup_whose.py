"""A hypervisor says which UUID its guests have: another guest gets no backups of them."""

from types import SimpleNamespace

import pytest

pytest.importorskip("salt")

from saltvirt import errors
from saltvirt.backupmaster.backup import Backup
from saltvirt.backups.answers import BackupPlan, GuestLook
from saltvirt.backups.policy import TargetPolicy


class Fleet:
    """Hosts with their guests; None: it does not answer."""

    opts = {}

    def __init__(self, **guests):
        self.guests = guests

    def hosts(self):
        return list(self.guests)

    def ask(self, hosts, fun):
        assert fun == "virt.vm_state"
        for host in hosts:
            names = self.guests[host]
            error = "no answer" if names is None else None
            data = None if error else dict.fromkeys(names, "running")
            yield SimpleNamespace(host=host, error=error, data=data)


def backed_up(fleet, name, host, guest, before):
    """A guest on a host, whose UUID was last that of another one on a host before."""
    one = Backup(fleet, name, None, None)
    plan = BackupPlan("x", (), (), guest, before)
    one._refuse_another(TargetPolicy("vault", "b1", "/b"), host, GuestLook("u", True, ()), plan)


@pytest.mark.parametrize(
    ("hv1", "why"),
    [(["web1"], "that is web1's on hv1, which has it still"), (None, "which does not answer")],
)
def test_one_that_is_anothers_is_refused(hv1, why):
    with pytest.raises(errors.Refused, match=why):
        backed_up(Fleet(hv1=hv1, hv3=["evil"]), "evil", "hv3", "web1", "hv1")


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
def test_the_guest_itself_goes_on(name, host, guest, before):
    backed_up(Fleet(hv1=[], hv3=[name]), name, host, guest, before)
