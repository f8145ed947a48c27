"""What is asked of a guest's agent, and what is taken from it."""

import json

import pytest

from saltvirt import errors
from saltvirt.guestagent import asked, words


def test_a_command_says_what_is_given():
    assert json.loads(words.command("guest-ping")) == {"execute": "guest-ping"}
    found = json.loads(words.command("guest-exec", path="/x", input_data="YQ==", env=None))
    assert found["arguments"] == {"path": "/x", "input-data": "YQ=="}


def test_a_command_is_not_longer_than_an_agent_takes():
    words.command("guest-file-write", handle=1, buf_b64="A" * (words.PIECE_BYTES * 4 // 3 + 4))
    with pytest.raises(errors.InvalidInput, match="longer than a guest agent takes"):
        words.command("guest-file-write", handle=1, buf_b64="A" * 200_000)


@pytest.mark.parametrize("text", [
    None, 5, "", "x", "[]", "{}", '{"error": {}}', "[" * 100_000, '{"return"', "\x1b[2J",
])  # fmt: skip
def test_what_is_no_answer(text):
    with pytest.raises(errors.BadAnswer) as raised:
        words.return_value(text, "guest-exec")
    assert "\x1b" not in raised.value.text and len(raised.value.text) < 300


@pytest.mark.parametrize("told", [None, {}, [], {"pid": 0}, {"pid": -1}, {"pid": True},
                                  {"pid": "7"}, {"pid": 1.5}, {"pid": 2**63}])  # fmt: skip
def test_what_is_no_process(told):
    with pytest.raises(errors.BadAnswer):
        words.pid(told)


@pytest.mark.parametrize("told", [
    None, {}, {"exited": 1}, {"exited": True, "exitcode": "0"}, {"exited": True, "exitcode": -1},
    {"exited": True, "out-data": "%"}, {"exited": True, "out-data": 5},
    {"exited": True, "err-data": ["YQ=="]}, {"exited": True, "signal": {}},
])  # fmt: skip
def test_what_is_no_state_of_a_process(told):
    with pytest.raises(errors.BadAnswer):
        words.status(told)


def test_the_state_of_a_process():
    assert words.status({"exited": False, "exitcode": 7}) == words.ProcessStatus(False)
    told = {
        "exited": True,
        "exitcode": 3,
        "out-data": "YQ==",
        "err-data": "Yg==",
        "out-truncated": True,
    }
    assert words.status(told) == words.ProcessStatus(True, 3, None, b"a", b"b", True)
    assert words.status({"exited": True, "signal": 9}).signal == 9


@pytest.mark.parametrize("told", [
    None, {}, {"buf-b64": "YQ=="}, {"buf-b64": "YQ==", "eof": 1},
    {"buf-b64": "YWFhYWFh", "eof": True},
    {"buf-b64": "", "eof": False},  # it would be asked for ever
    {"buf-b64": "é", "eof": True},
])  # fmt: skip
def test_what_is_no_piece_of_a_file(told):
    with pytest.raises(errors.BadAnswer):
        words.piece(told, 3)


def test_a_piece_of_a_file():
    assert words.piece({"buf-b64": "YWI=", "eof": False}, 3) == (b"ab", False)
    assert words.piece({"buf-b64": "", "eof": True}, 3) == (b"", True)


@pytest.mark.parametrize("told", [{"count": 4}, {"count": 6}, {"count": True}, {}, 5])
def test_a_piece_that_was_not_written(told):
    with pytest.raises(errors.BadAnswer):
        words.check_written(told, 5)


@pytest.mark.parametrize(("cmd", "shell", "argv"), [
    ("uname -a", False, ("uname", "-a")),
    ("echo 'a b' $HOME; rm x", False, ("echo", "a b", "$HOME;", "rm", "x")),
    (["echo", 5, "a b"], False, ("echo", "5", "a b")),
    ("df | tail", True, ("/bin/sh", "-c", "df | tail")),
    (7, False, ("7",)),
])  # fmt: skip
def test_no_shell_reads_a_command_unless_it_is_asked_to(cmd, shell, argv):
    assert asked.argv(cmd, shell) == argv


@pytest.mark.parametrize(("cmd", "shell"), [
    (None, False), (True, False), ({}, False), ("echo 'a", False), (["a"], True),
])  # fmt: skip
def test_what_is_no_command(cmd, shell):
    with pytest.raises(errors.InvalidInput):
        asked.argv(cmd, shell)


@pytest.mark.parametrize(("argv", "stdin"), [
    ((), b""), (("",), b""), (("a\0b",), b""), (("x" * 200_000,), b""),
    (("a",), b"x" * 2**16 + b"x"),
])  # fmt: skip
def test_what_cannot_be_run(argv, stdin):
    with pytest.raises(errors.InvalidInput):
        asked.validate(asked.Command(argv), stdin)


def test_what_a_master_tells_of_an_environment_is_looked_at_again():
    for wrong in ("A", "=1", ""):
        with pytest.raises(errors.InvalidInput, match="env must be a dict"):
            asked.validate(asked.Command(("a",), (wrong,)), b"")
    asked.validate(asked.Command(("a",), ("A=", "B=1=2")), b"")


def test_an_environment_is_whole():
    assert asked.variables(None) is None
    path, *_ = [one for one in asked.variables({"A": 1}) if one.startswith("PATH=")]
    assert asked.variables({"A": 1}) == ("A=1", path)
    assert asked.variables({"PATH": "/x"}) == ("PATH=/x",)
    for wrong in ("A=1", ["A=1"], {"A=B": 1}, {"": 1}):
        with pytest.raises(errors.InvalidInput):
            asked.variables(wrong)


def test_permissions_are_read_as_a_shell_does():
    assert asked.permissions("0640") == asked.permissions(640) == 0o640
    assert asked.permissions("4755") == 0o4755
    assert asked.permissions(None) is None
    for wrong in ("rw", "0888", True, "", "07777777"):
        with pytest.raises(errors.InvalidInput):
            asked.permissions(wrong)


def test_how_it_ended_in_words():
    command = asked.Command(("x",), None, 5)

    def said(**how):
        whole = {"pid": 7, "has_ended": True, "exit_code": None, "signal": None, "stdout_bytes": 0,
                 "is_cut": False, **how}  # fmt: skip
        return asked.describe_result("web1 on hv1", command, asked.CommandResult(**whole))

    assert said(exit_code=0) == (True, "web1 on hv1: exit code 0")
    assert said(exit_code=3, is_cut=True) == (
        False, "web1 on hv1: exit code 3; not all that it printed is here"
    )  # fmt: skip
    assert said(signal=9) == (False, "web1 on hv1: killed by signal 9")
    assert (
        said(has_ended=False)[0] is False
        and "process 7 did not end within 5 s" in said(has_ended=False)[1]
    )
    assert said()[0] is False


def test_what_a_guest_prints_does_nothing_to_a_terminal():
    data = b"a\tb\n\x1b[2J\x1b]0;title\x07c\x00\xff\xc2\x9b31m\r\n"
    assert asked.printable(data) == "a\tb\nc\\xff31m\n"


def test_more_than_allowed_is_not_copied():
    pieces, taken = [b"12", b"34", b"5"], []
    with pytest.raises(errors.InvalidInput, match="most= allows more"):
        asked.copy_limited(lambda: pieces.pop(0), taken.append, 4, "/x")
    assert taken == [b"12", b"34"]


def test_as_much_as_is_allowed_is_copied_and_told():
    pieces, taken, told = [b"12", b"34", b""], [], []
    assert asked.copy_limited(lambda: pieces.pop(0), taken.append, 4, "/x", told.append) == 4
    assert (taken, told) == ([b"12", b"34"], [2, 4])
