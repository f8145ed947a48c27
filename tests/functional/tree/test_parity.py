"""Salt 3007's ``virt`` and ours return the same, except for what tests/parity/README.md names. The
answers of Salt 3007 are recorded: ``make parity`` records them again, with the rows that need a
libvirtd."""

import os
import sys

import pytest

pytest.importorskip("libvirt")
pytest.importorskip("salt")

from tests.parity import compare, handed, known, recorded, rows, sides

# of the recorded rows, so many are enough each time; SLOW=1 takes all
EACH = 1 if os.environ.get("SLOW") else 4


@pytest.fixture(scope="module")
def asked():
    """[(row, what Salt 3007 answered)] of the rows that are asked now."""
    answers = recorded.read()
    table = [row for row in rows.table() if row["host"] == "test"]
    assert set(answers) == {recorded.key(row) for row in table}, "make parity ARGS=--record"
    return [(row, answers[recorded.key(row)]) for row in table][::EACH]


def test_what_differs_is_named(asked):
    table = [row for row, _ in asked]
    ours = sides.answers(sys.executable, "ours", table)
    differing = [(row, compare.differences(row, theirs, ours[row["id"]])) for row, theirs in asked]
    missing, _ = known.unnamed(differing, known.lines())
    assert missing == []


def test_what_salt_3007_defined_needs_no_change(asked):
    again = handed.rows([row for row, _ in asked], {row["id"]: theirs for row, theirs in asked})
    answers = sides.answers(sys.executable, "ours", again)
    differing = [(row, handed.wrong(answers[row["id"]])) for row in again]
    missing, _ = known.unnamed(differing, known.lines())
    assert missing == []
    assert len(again) > 5


def test_each_line_of_the_document_says_why():
    found = known.lines()
    assert len(found) > 20
    for line in found:
        assert line.functions
        assert line.differences
        assert len(line.why.split()) > 3, line


def test_a_difference_that_no_line_names_fails():
    """The comparison itself sees what it should."""
    row = {"id": "virt.x 1", "function": "virt.x"}
    same = {"return": {"a": 1}, "changed": {}, "files": {"made": [], "gone": []}}
    assert compare.differences(row, same, same) == []
    other = {**same, "return": {"a": 2, "b": None}}
    assert compare.differences(row, same, other) == ["return/a", "return/b: only here"]
    failed = {"error": ["KeyError", "'a'", 1, ["KeyError", "LookupError", "Exception"]]}
    assert compare.differences(row, same, failed) == ["refused: 'a'"]
    assert compare.differences(row, failed, same) == ["answered: 'a'"]
    assert compare.differences(row, failed, failed) == ["traceback: KeyError"]
    listed = {"id": "virt.list_snapshots 1", "function": "virt.list_snapshots"}
    one, two = ({"name": name, "current": name == "s2"} for name in ("s1", "s2"))
    shots = [{**same, "return": {"g1": order, "g2": "N/A"}} for order in ([one, two], [two, one])]
    assert compare.differences(listed, *shots) == []
    shots[1]["return"]["g1"][0] = {**two, "current": False}
    assert compare.differences(listed, *shots) == ["return/g1/current"]
    xml = {"networks": {"n": {"active": True, "xml": "<network><mtu size='1'/></network>"}}}
    less = {"networks": {"n": {"active": False, "xml": "<network/>"}}}
    assert compare.differences(row, {**same, "changed": xml}, {**same, "changed": less}) == [
        "networks.active",
        "networks/xml/network/mtu: only Salt 3007",
    ]
    text = f"{known.HEADING}\n| `virt.*` | `return/a` | for a reason that is here |\n"
    missing, stale = known.unnamed([(row, ["return/a", "return/b"])], known.lines(text))
    assert (missing, stale) == ([("virt.x 1", "return/b")], [])
    missing, stale = known.unnamed([(row, [])], known.lines(text))
    assert (missing, len(stale)) == ([], 1)
