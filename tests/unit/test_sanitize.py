"""Text from others becomes one line that is safe for a terminal and a log."""

import pickle

import pytest

from saltvirt import errors, sanitize

HOSTILE = [
    ("a\nb\r\n\tc", "a b c"),
    ("\x1b[2Jgone\x07", "\\x1b[2Jgone\\x07"),
    ("right\u202eleft", "right\\u202eleft"),
    ("\udcff half", "\\udcff half"),
    ("\x9b31m", "\\x9b31m"),
    ("two  spaces, é and 漢 stay", "two  spaces, é and 漢 stay"),
]


@pytest.mark.parametrize("written, line", HOSTILE)
@pytest.mark.parametrize("kind", [errors.ImageError, errors.InvalidInput, errors.SeedFailed])
def test_a_message_is_one_line_of_visible_characters(kind, written, line):
    assert kind(written).text == str(kind(written)) == line
    kind(written).text.encode()


def test_a_message_of_ten_megabytes_keeps_its_beginning_and_its_end():
    told = errors.ImageError("cannot read it: " + "x\n" * 5_000_000 + "convert it first").text
    assert len(told) < 10_000
    assert told.startswith("cannot read it: x x") and told.endswith("convert it first")


def test_a_refusal_keeps_its_first_words_also_by_way_of_another_process():
    refused = errors.NoRoom("hv1\nhas none\x1b[0m")
    assert refused.text == "refused: no room: hv1 has none\\x1b[0m"
    assert pickle.loads(pickle.dumps(refused)).text == refused.text
    assert refused.reason == "hv1 has none\\x1b[0m"


def test_data_keeps_its_lines_and_loses_what_a_terminal_would_obey():
    assert sanitize.text("a\n\tb\x1b]0;title\x07c\udc80") == "a\n\tbc\ufffd"
