"""The definition of a stopped guest, as the other host can run it."""

import pytest

pytest.importorskip("libvirt")

from saltvirt.host.migration import offline
from saltvirt.migration.facts import GuestReport, MachineReport, TargetReport

XML = "<domain><devices><emulator>/usr/bin/kvm</emulator></devices></domain>"
REPORT = GuestReport("web1", "u", "hv1", False, "shutdown", emulator="/usr/bin/kvm")


@pytest.mark.parametrize(
    ("has", "theirs", "path"),
    [
        (False, "/usr/libexec/qemu-kvm", "/usr/libexec/qemu-kvm"),
        (True, "/usr/libexec/qemu-kvm", "/usr/bin/kvm"),
        (None, None, "/usr/bin/kvm"),
    ],
)
def test_the_targets_own_emulator_takes_the_place_of_one_that_it_lacks(has, theirs, path):
    host = TargetReport("hv2", machine=MachineReport(emulator=theirs, has_emulator=has))
    text = offline.for_target(XML, REPORT, host)
    assert text == XML.replace("/usr/bin/kvm", path)
    snapshot = f"<domainsnapshot>{XML}<inactiveDomain/></domainsnapshot>"
    assert path in offline.for_target(snapshot, REPORT, host)
