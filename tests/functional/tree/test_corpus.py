"""Definitions of other projects: all of libvirt's own that need no libvirtd; ``make corpus`` tests
the others."""

import os

import pytest

from tests.corpus import run, source

# each is read, written and asked for nothing; these many others are made of it, too
EDITS = 1


@pytest.fixture(scope="module")
def tree():
    try:
        return source.folder()
    except source.NotReachable as exc:
        pytest.skip(f"libvirt's source package is not reachable: {exc}")


def test_the_definitions_of_libvirts_own_tests(tree):
    wish = run.Wish(validate=False, edits=EDITS)
    reports = run.everything(tree, os.cpu_count() or 1, wish)
    failures = [line for report in reports.values() for line in report.failures]
    assert failures == []
    counts = reports["domain"].counts
    assert counts["definitions"] > 2000
    assert counts["written"] == counts["read"] == counts["definitions"]
    assert counts["unchanged"] > 0.99 * counts["definitions"]
    assert counts["edits"] > 0.5 * counts["definitions"]
    for kind in ("network", "pool", "volume", "domainsnapshot", "capabilities"):
        assert reports[kind].counts["definitions"] > 20, kind
