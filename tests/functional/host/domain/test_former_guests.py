"""Guests that an earlier version of Salt Virt defined, before new guests got timers, a tablet and
direct disks: the same arguments change nothing, and other CPUs or memory change nothing else.
``former.json`` has what that version wrote."""

import json
import re

import pytest

from saltvirt.design import domain
from saltvirt.diff.changes import changes
from saltvirt.spec import guest
from saltvirt.xml.domain.domain import Domain
from tests import golden
from tests.functional.embedded import connection
from tests.functional.host.domain.test_domains import defined, without_profiles
from tests.unit.design.test_domain import host, made

pytest.importorskip("libvirt")

FORMER = json.loads(golden.read("former.json"))
# other CPUs or another size contradict their cells and pins
FIXED = {"cpu-all", "memory-all", "numatune-auto"}


def former(name):
    """(capabilities, arguments, definition in libvirt) of a guest."""
    case = FORMER[name]
    actual = defined(connection(), Domain.fromstring("\n".join(case["xml"])))
    return host("qemu", case["domain_capabilities"]), case["arguments"], actual


def amended(actual, capabilities, **arguments):
    spec = guest.parse("web1", update=True, **arguments)
    return domain.amend(spec, actual, capabilities, made())


@pytest.mark.parametrize("name", FORMER)
def test_the_same_arguments_change_nothing(name):
    capabilities, arguments, actual = former(name)
    repeated = without_profiles({"cpu": 2, "mem": 512, **arguments, "machine": None})
    wanted = amended(actual, capabilities, **repeated)
    assert [(c.path, c.old, c.new) for c in changes(wanted, actual)] == []
    # libvirt itself writes a definition that it reads a second time in another way
    again = [canonical(defined(connection(), one)) for one in (wanted, actual)]
    assert again[0] == again[1]


@pytest.mark.parametrize("name", sorted(FORMER.keys() - FIXED))
def test_other_sizes_change_nothing_else(name):
    capabilities, _, actual = former(name)
    wanted = amended(actual, capabilities, cpu=3, mem=768)
    assert {change.subject for change in changes(wanted, actual)} == {"cpu", "mem"}
    assert sizeless(wanted) == sizeless(actual)
    assert changes(wanted, defined(connection(), wanted)) == []


def canonical(definition):
    """The lines of a definition in any order, without Salt Virt's record, where names may be
    added."""
    lines = [line.strip() for line in definition.tostring().splitlines()]
    return sorted(line for line in lines if line and "saltvirt" not in line)


def sizeless(definition):
    pattern = r"<(memory|currentMemory|vcpu)\b[^>]*>[^<]*</\1>"
    return [re.sub(pattern, r"<\1/>", line) for line in canonical(definition)]
