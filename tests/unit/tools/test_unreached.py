"""The report of ``make coverage`` about lines that no test reaches."""

from tests.lab import measured, paths
from tests.tools import coverage, unreached

SOURCE = """\
import os

class A:
    @property
    def one(self):
        if os.name:
            return 1
        print("two")

        return 2


def three():
    def four():
        return 4
    return four
"""


def found(missing):
    return unreached.passages("a.py", SOURCE, [1, 3, 5, 6, 7, 8, 10, 13, 14, 15, 16], missing)


def test_statements_that_follow_each_other_are_one_passage():
    [one, four] = found([8, 10, 15])
    assert one.name == 'a.py | A.one | print("two")'
    assert one.shown() == 'a.py | A.one | print("two") | 8-10'
    assert four.shown() == "a.py | three.four | return 4 | 15"


def test_a_passage_ends_with_its_function():
    assert [one.name for one in found([10, 13, 14, 15, 16])] == [
        "a.py | A.one | return 2",
        "a.py |  | def three():",
        "a.py | three | def four():",
        "a.py | three.four | return 4",
        "a.py | three | return four",
    ]


def test_each_passage_is_named_with_a_reason_or_shown():
    left = found([7, 15])
    known = unreached.reasons(
        "# a remark\n\na.py | A.one | return 1 | why\na.py | A.one | x = 1 | 2 | why not\n"
    )
    assert known == {"a.py | A.one | return 1": "why", "a.py | A.one | x = 1 | 2": "why not"}
    unnamed, stale = unreached.judged(left, known)
    assert [one.name for one in unnamed] == ["a.py | three.four | return 4"]
    assert stale == ["a.py | A.one | x = 1 | 2"]


def test_each_line_of_the_file_has_a_reason():
    for name, reason in unreached.reasons().items():
        assert len(name.split(" | ")) >= 3, name
        assert len(reason.split()) > 3, name


def test_where_machines_have_the_library_is_what_coverage_takes():
    """A pattern of [paths] must not end with a wildcard: every run fails in its report then."""
    lines = coverage.settings("/data").partition("[paths]")[2].splitlines()
    assert f"    **/{measured.UNPACKED}/*/saltvirt" in lines
    assert f"    {measured.PROGRAMS}/**/saltvirt" in lines
    assert [line for line in lines if line.endswith("*")] == []


def test_a_process_that_does_not_see_where_programs_lie_is_measured_as_well():
    """It has a ``/run`` of its own; of ``source_dirs`` coverage.py wants each to be there."""
    told = coverage.settings("/data").partition("[paths]")[0].splitlines()
    assert "source_dirs =" not in told
    for folder in (paths.REPOSITORY / "_utils", paths.REPOSITORY / "_states", measured.PROGRAMS):
        assert f"    {folder}/*" in told
