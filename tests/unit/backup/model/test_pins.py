"""The guests that run from a backup."""

from dataclasses import replace

import pytest

from saltvirt.backup.model.pins import BackupPin

WEB1 = BackupPin("web1", "hv1", "2026-11-26T15:00:00Z")


@pytest.mark.parametrize(
    "changes, same",
    [({}, True), ({"since": ""}, True), ({"guest": "web2"}, False), ({"host": "hv2"}, False)],
)
def test_it_is_the_same_guest_on_the_same_host_since_whenever(changes, same):
    assert WEB1.is_same_guest(replace(WEB1, **changes)) is same


def test_it_says_why_the_backup_stays():
    assert WEB1.hold_reason == "web1 on hv1 runs from it"
