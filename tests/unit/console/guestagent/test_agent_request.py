"""Requests to a guest agent, and the answers that are accepted."""

import json

import pytest

from saltvirt import errors
from saltvirt.console.guestagent import agent_protocol, agent_request


def test_a_command_says_what_is_given():
    assert json.loads(agent_protocol.command("guest-ping")) == {"execute": "guest-ping"}
    found = json.loads(agent_protocol.command("guest-exec", path="/x", input_data="YQ==", env=None))
    assert found["arguments"] == {"path": "/x", "input-data": "YQ=="}


def test_a_command_is_not_longer_than_an_agent_takes():
    agent_protocol.command(
        "guest-file-write", handle=1, buf_b64="A" * (agent_protocol.PIECE_BYTES * 4 // 3 + 4)
    )
    with pytest.raises(errors.InvalidInput, match="too long for a guest agent"):
        agent_protocol.command("guest-file-write", handle=1, buf_b64="A" * 200_000)


@pytest.mark.parametrize("text", [
    None, 5, "", "x", "[]", "{}", '{"error": {}}', "[" * 100_000, '{"return"', "\x1b[2J",
])  # fmt: skip
def test_what_is_no_answer(text):
    with pytest.raises(errors.BadAnswer) as raised:
        agent_protocol.return_value(text, "guest-exec")
    assert "\x1b" not in raised.value.text and len(raised.value.text) < 300


@pytest.mark.parametrize("told", [None, {}, [], {"pid": 0}, {"pid": -1}, {"pid": True},
                                  {"pid": "7"}, {"pid": 1.5}, {"pid": 2**63}])  # fmt: skip
def test_what_is_no_process(told):
    with pytest.raises(errors.BadAnswer):
        agent_protocol.pid(told)


@pytest.mark.parametrize("told", [
    None, {}, {"exited": 1}, {"exited": True, "exitcode": "0"}, {"exited": True, "exitcode": -1},
    {"exited": True, "out-data": "%"}, {"exited": True, "out-data": 5},
    {"exited": True, "err-data": ["YQ=="]}, {"exited": True, "signal": {}},
])  # fmt: skip
def test_what_is_no_state_of_a_process(told):
    with pytest.raises(errors.BadAnswer):
        agent_protocol.status(told)


def test_the_state_of_a_process():
    assert agent_protocol.status({"exited": False, "exitcode": 7}) == agent_protocol.ProcessStatus(
        False
    )
    told = {
        "exited": True,
        "exitcode": 3,
        "out-data": "YQ==",
        "err-data": "Yg==",
        "out-truncated": True,
    }
    assert agent_protocol.status(told) == agent_protocol.ProcessStatus(
        True, 3, None, b"a", b"b", True
    )
    assert agent_protocol.status({"exited": True, "signal": 9}).signal == 9


@pytest.mark.parametrize("told", [
    None, {}, {"buf-b64": "YQ=="}, {"buf-b64": "YQ==", "eof": 1},
    {"buf-b64": "YWFhYWFh", "eof": True},
    {"buf-b64": "", "eof": False},  # it would be asked for ever
    {"buf-b64": "é", "eof": True},
])  # fmt: skip
def test_what_is_no_piece_of_a_file(told):
    with pytest.raises(errors.BadAnswer):
        agent_protocol.piece(told, 3)


def test_a_piece_of_a_file():
    assert agent_protocol.piece({"buf-b64": "YWI=", "eof": False}, 3) == (b"ab", False)
    assert agent_protocol.piece({"buf-b64": "", "eof": True}, 3) == (b"", True)


@pytest.mark.parametrize("told", [{"count": 4}, {"count": 6}, {"count": True}, {}, 5])
def test_a_piece_that_was_not_written(told):
    with pytest.raises(errors.BadAnswer):
        agent_protocol.check_written(told, 5)


@pytest.mark.parametrize(("cmd", "shell", "argv"), [
    ("uname -a", False, ("uname", "-a")),
    ("echo 'a b' $HOME; rm x", False, ("echo", "a b", "$HOME;", "rm", "x")),
    (["echo", 5, "a b"], False, ("echo", "5", "a b")),
    ("df | tail", True, ("/bin/sh", "-c", "df | tail")),
    (7, False, ("7",)),
])  # fmt: skip
def test_no_shell_reads_a_command_unless_it_is_asked_to(cmd, shell, argv):
    assert agent_request.argv(cmd, shell) == argv


@pytest.mark.parametrize(("cmd", "shell"), [
    (None, False), (True, False), ({}, False), ("echo 'a", False), (["a"], True),
])  # fmt: skip
def test_what_is_no_command(cmd, shell):
    with pytest.raises(errors.InvalidInput):
        agent_request.argv(cmd, shell)


@pytest.mark.parametrize(("argv", "stdin"), [
    ((), b""), (("",), b""), (("a\0b",), b""), (("x" * 200_000,), b""),
    (("a",), b"x" * 2**16 + b"x"),
])  # fmt: skip
def test_what_cannot_be_run(argv, stdin):
    with pytest.raises(errors.InvalidInput):
        agent_request.validate(agent_request.Command(argv), stdin)


def test_what_a_master_tells_of_an_environment_is_looked_at_again():
    for wrong in ("A", "=1", ""):
        with pytest.raises(errors.InvalidInput, match="env must map"):
            agent_request.validate(agent_request.Command(("a",), (wrong,)), b"")
    agent_request.validate(agent_request.Command(("a",), ("A=", "B=1=2")), b"")


def test_an_environment_is_whole():
    assert agent_request.variables(None) is None
    path, *_ = [one for one in agent_request.variables({"A": 1}) if one.startswith("PATH=")]
    assert agent_request.variables({"A": 1}) == ("A=1", path)
    assert agent_request.variables({"PATH": "/x"}) == ("PATH=/x",)
    for wrong in ("A=1", ["A=1"], {"A=B": 1}, {"": 1}):
        with pytest.raises(errors.InvalidInput):
            agent_request.variables(wrong)


def test_permissions_are_read_as_a_shell_does():
    assert agent_request.permissions("0640") == agent_request.permissions(640) == 0o640
    assert agent_request.permissions("4755") == 0o4755
    assert agent_request.permissions(None) is None
    for wrong in ("rw", "0888", True, "", "07777777"):
        with pytest.raises(errors.InvalidInput):
            agent_request.permissions(wrong)


def test_how_it_ended_in_words():
    command = agent_request.Command(("x",), None, 5)

    def said(**how):
        whole = {"pid": 7, "has_ended": True, "exit_code": None, "signal": None, "stdout_bytes": 0,
                 "is_cut": False, **how}  # fmt: skip
        return agent_request.describe_result(
            "web1 on hv1", command, agent_request.CommandResult(**whole)
        )

    assert said(exit_code=0) == (True, "web1 on hv1: exit code 0")
    assert said(exit_code=3, is_cut=True) == (
        False, "web1 on hv1: exit code 3; the output is truncated"
    )  # fmt: skip
    assert said(signal=9) == (False, "web1 on hv1: killed by signal 9")
    assert (
        said(has_ended=False)[0] is False
        and "process 7 did not end within 5 s" in said(has_ended=False)[1]
    )
    assert said()[0] is False


def test_what_a_guest_prints_does_nothing_to_a_terminal():
    data = b"a\tb\n\x1b[2J\x1b]0;title\x07c\x00\xff\xc2\x9b31m\r\n"
    assert agent_request.printable(data) == "a\tb\nc\\xff31m\n"


def test_more_than_allowed_is_not_copied():
    pieces, taken = [b"12", b"34", b"5"], []
    with pytest.raises(errors.InvalidInput, match="increase max_size"):
        agent_request.copy_limited(lambda: pieces.pop(0), taken.append, 4, "/x")
    assert taken == [b"12", b"34"]


def test_as_much_as_is_allowed_is_copied_and_told():
    pieces, taken, told = [b"12", b"34", b""], [], []
    assert (
        agent_request.copy_limited(lambda: pieces.pop(0), taken.append, 4, "/x", told.append) == 4
    )
    assert (taken, told) == ([b"12", b"34"], [2, 4])
