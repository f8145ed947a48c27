"""Commands and files through a guest agent: QEMU's own, and one that lies."""

import contextlib
import hashlib
import os
import signal
import socket
import threading
import time
from contextlib import nullcontext

import pytest

from saltvirt import errors, units
from saltvirt.console import protocol
from saltvirt.console.guestagent import agent_protocol
from saltvirt.console.guestagent.agent_request import Command, CommandResult, GetFile, PutFile
from saltvirt.console.host import guest_exec, session
from saltvirt.console.host.guest_files import Incoming, Outgoing
from saltvirt.console.master import agent_client as on_master
from tests.clock import until
from tests.functional.agent import Real, liar, real  # noqa: F401 - a fixture
from tests.lab import process

BLOCKED = "internal error: unable to execute QEMU agent command 'x': Command x has been disabled"


def run(agent, *argv, stdin=b"", env=None, timeout_s=20):
    return guest_exec.run(agent, Command(argv, env, timeout_s), stdin)


def put(agent, path, data, mode=None, overwrite=False, atomic=True):
    with Incoming(agent, PutFile(str(path), mode, overwrite, atomic)) as file:
        for at in range(0, len(data), agent_protocol.PIECE_BYTES):
            file.write(data[at : at + agent_protocol.PIECE_BYTES])
        file.end()


def got(agent, path):
    with Outgoing(agent, str(path)) as file:
        return b"".join(iter(file.read, b""))


def test_a_command_and_its_input_environment_and_end(real):  # noqa: F811
    every = bytes(range(256))
    ended, out, err = run(real.agent, "cat", stdin=every)
    assert (ended.has_ended, ended.exit_code, ended.signal, out, err) == (True, 0, None, every, b"")
    ended, out, err = run(
        real.agent, "/bin/sh", "-c", "echo $A; echo e >&2; exit 7", env=("A=b c", "PATH=/bin")
    )
    assert (ended.exit_code, out, err) == (7, b"b c\n", b"e\n")
    ended, *_ = run(real.agent, "/bin/sh", "-c", "kill -9 $$")
    assert (ended.exit_code, ended.signal) == (137, None)
    assert run(real.agent, "echo", "$HOME", "a b;", "*")[1] == b"$HOME a b; *\n"  # no shell


def test_a_command_that_is_none(real):  # noqa: F811
    ended, _, err = run(real.agent, "no-such-program")
    assert ended.exit_code == 127 and b"no-such-program" in err


def test_one_that_does_not_end_is_said_with_its_process(real):  # noqa: F811
    began = time.monotonic()
    ended, out, err = run(real.agent, "sleep", "300", timeout_s=1)
    assert time.monotonic() - began < 120
    assert (ended.has_ended, out, err) == (False, b"", b"")
    with open(f"/proc/{ended.pid}/cmdline", "rb") as file:
        assert b"\0sleep\x00300\0" in file.read()
    group = [pid for pid, _ in process.family(ended.pid)]
    assert len(group) > 1
    os.killpg(ended.pid, signal.SIGTERM)  # as the line says
    until(lambda: not any(process.started(pid) for pid in group), "nothing of it is left")


def test_more_output_than_is_taken_is_cut_and_said(real):  # noqa: F811
    both = "head -c 30000000 /dev/zero; head -c 30000000 /dev/zero >&2; exit 5"
    ended, out, err = run(real.agent, "/bin/sh", "-c", both)
    assert len(out) == len(err) == agent_protocol.MAX_OUTPUT_BYTES and ended.is_cut
    assert ended.exit_code == 5  # it was read to its end
    ended, out, _ = run(real.agent, "head", "-c", str(agent_protocol.MAX_OUTPUT_BYTES), "/dev/zero")
    assert len(out) == agent_protocol.MAX_OUTPUT_BYTES and not ended.is_cut


def test_a_script_of_ours_that_does_not_end_is_named(monkeypatch):
    monkeypatch.setattr(guest_exec, "_SCRIPT_TIMEOUT_S", 0.1)
    with pytest.raises(errors.OperationFailed, match=r"process 5 in web1 did not end within 0\.1"):
        put(liar(exec={"pid": 5}, exec_status={"exited": False}), "/tmp/a", b"")


def test_what_needs_no_shell_is_not_said_to_go_without_one():
    with pytest.raises(errors.Unsupported) as raised:
        put(liar(file_open=errors.Unsupported("switched off")), "/a", b"", atomic=False,
            overwrite=True)  # fmt: skip
    assert raised.value.text == "switched off"


def test_a_guest_without_a_shell():
    absent = errors.NotFound("the guest agent of web1: No such file or directory")
    ended, out, _ = run(
        liar(exec=[absent, {"pid": 5}], exec_status={"exited": True, "out-data": "YQ=="}), "x"
    )
    assert (ended.pid, out) == (5, b"a")


def test_a_file_comes_in_whole_and_goes_out(real, tmp_path):  # noqa: F811
    data = os.urandom(agent_protocol.PIECE_BYTES * 2 + 12345)
    path = tmp_path / "it's a file"
    put(real.agent, path, data, 0o640)
    assert path.read_bytes() == data and path.stat().st_mode & 0o7777 == 0o640
    assert os.listdir(tmp_path) == [path.name]
    assert hashlib.sha256(got(real.agent, path)).digest() == hashlib.sha256(data).digest()
    for empty in (b"",):
        put(real.agent, tmp_path / "empty", empty)
        assert got(real.agent, tmp_path / "empty") == empty
    assert (tmp_path / "empty").stat().st_mode & 0o7777 == 0o600


def test_what_is_there_stays_unless_it_is_asked_for(real, tmp_path):  # noqa: F811
    there = tmp_path / "there"
    there.write_text("old")
    (tmp_path / "link").symlink_to(there)
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    for name in ("there", "link", "dangling"):
        for atomic in (True, False):
            if atomic or name != "dangling":
                with pytest.raises(errors.AlreadyExists, match="overwrite=True"):
                    put(real.agent, tmp_path / name, b"new", atomic=atomic)
    assert there.read_text() == "old" and not (tmp_path / "nowhere").exists()
    put(real.agent, tmp_path / "link", b"new", overwrite=True)
    assert there.read_text() == "old" and (tmp_path / "link").read_text() == "new"
    assert not (tmp_path / "link").is_symlink()
    put(real.agent, there, b"newer", overwrite=True, atomic=False)
    assert there.read_text() == "newer"
    assert sorted(os.listdir(tmp_path)) == ["dangling", "link", "there"]


def test_one_that_comes_meanwhile_stays(real, tmp_path):  # noqa: F811
    asked = PutFile(str(tmp_path / "a"), None, False, True)
    with pytest.raises(errors.AlreadyExists), Incoming(real.agent, asked) as file:
        file.write(b"ours")
        (tmp_path / "a").write_text("theirs")
        file.end()
    assert (tmp_path / "a").read_text() == "theirs" and os.listdir(tmp_path) == ["a"]


def test_nobody_else_reads_it_on_its_way(real, tmp_path):  # noqa: F811
    with Incoming(real.agent, PutFile(str(tmp_path / "a"), 0o600, False, True)) as file:
        file.write(b"secret")
        [part] = tmp_path.iterdir()
        assert part.name.startswith(".salt-virt-") and part.stat().st_mode & 0o777 == 0o600
    assert os.listdir(tmp_path) == []  # and what was not ended is taken away


@pytest.mark.parametrize(
    "path", ["relative", "/tmp/", "/", "/tmp/..", "", "/a\0b", "/" + "x" * 5000]
)
def test_a_path_that_is_none(real, path):  # noqa: F811
    with pytest.raises(errors.InvalidInput, match="remote must be"):
        put(real.agent, path, b"")
    assert real.said == []


def test_a_folder_that_is_none_and_a_file_that_is_none(real, tmp_path):  # noqa: F811
    with pytest.raises(errors.OperationFailed, match="cannot be written in web1"):
        put(real.agent, tmp_path / "no/file", b"")
    with pytest.raises(errors.OperationFailed, match="it is a folder"):
        put(real.agent, tmp_path, b"")
    with pytest.raises(errors.NotFound, match="No such file"):
        got(real.agent, tmp_path / "none")
    with pytest.raises(errors.OperationFailed):
        got(real.agent, tmp_path)


def test_an_agent_that_runs_no_commands(tmp_path):
    found = Real("-b", "guest-exec")
    try:
        with pytest.raises(errors.Unsupported, match="does not allow guest-exec"):
            run(found.agent, "true")
        with pytest.raises(errors.Unsupported, match="atomic=False writes to"):
            put(found.agent, tmp_path / "a", b"x")
        put(found.agent, tmp_path / "a", b"x", atomic=False)
        assert (tmp_path / "a").read_text() == "x"
        with pytest.raises(errors.InvalidInput, match="mode cannot be used with atomic=False"):
            put(found.agent, tmp_path / "b", b"x", 0o600, atomic=False)
    finally:
        found.ends.close()


@pytest.mark.parametrize("agent", [
    liar(exec={}), liar(exec={"pid": "1; rm"}), liar(exec="\x1b[2J"), liar(exec='{"return": '),
    liar(exec={"pid": 5}, exec_status={"exited": True, "out-data": "!"}),
    liar(exec={"pid": 5}, exec_status=[[]]), liar(exec={"pid": 5}, exec_status={"exited": "yes"}),
])  # fmt: skip
def test_a_lie_about_a_command_is_one_line(agent):
    with pytest.raises(errors.BadAnswer, match="is invalid") as raised:
        run(agent, "true")
    assert "\x1b" not in raised.value.text and "\n" not in raised.value.text


def test_an_agent_that_goes_in_the_middle_leaves_the_process_named():
    gone = errors.ConnectionFailed("the guest agent of web1 does not answer")
    with pytest.raises(
        errors.ConnectionFailed, match="process 5 was started in web1, but its result is"
    ):
        run(liar(exec={"pid": 5}, exec_status=gone), "true")


@pytest.mark.parametrize("printed", [
    "/etc/passwd\n", "/tmp/.salt-virt-../../x\n", "/tmp/.salt-virt-AAAAAAAAAA/../../x\n", "\n", "",
    "/tmp/.salt-virt-AAAAAAAAA\x1b\n",
])  # fmt: skip
def test_a_lie_about_the_file_that_was_made(printed):
    import base64

    out = base64.b64encode(printed.encode()).decode()
    status = {"exited": True, "exitcode": 0, "out-data": out}
    with pytest.raises(errors.BadAnswer):
        put(liar(exec={"pid": 5}, exec_status=status), "/tmp/a", b"")


@pytest.mark.parametrize("read", [
    {"buf-b64": "", "eof": False}, {"buf-b64": "YWFh" * agent_protocol.PIECE_BYTES, "eof": False},
    {"eof": True},
])  # fmt: skip
def test_a_lie_about_a_file(read):
    with pytest.raises(errors.BadAnswer):
        got(liar(file_open=3, file_read=read, file_close={}), "/x")


@pytest.mark.parametrize("count", [0, 2, 4, -3, "3"])
def test_a_piece_that_was_not_all_written(count):
    agent = liar(file_open=3, file_write={"count": count}, file_close={})
    with pytest.raises(errors.BadAnswer):
        put(agent, "/x", b"abc", overwrite=True, atomic=False)


@pytest.fixture
def served():
    """(a Line to what a hypervisor serves by an agent, its thread)."""
    ends = []

    def begin(agent):
        ours, theirs = socket.socketpair()
        thread = threading.Thread(target=session.serve, args=(theirs, agent), daemon=True)
        thread.start()
        ends.append(ours)
        return protocol.Stream(ours), thread

    yield begin
    for one in ends:
        one.close()


def test_what_a_caller_is_served(real, served, tmp_path):  # noqa: F811
    line, _ = served(real.agent)
    told, data = line.ask("exec", Command(("/bin/sh", "-c", "echo out; echo err >&2; exit 3")))
    ended = CommandResult.from_answer(told, "hv1")
    assert (ended.exit_code, data[: ended.stdout_bytes], data[ended.stdout_bytes :]) == (
        3,
        b"out\n",
        b"err\n",
    )
    path = str(tmp_path / "a")
    line.ask("put", PutFile(path, 0o644, False, True))
    line.ask("piece", data=b"12")
    line.ask("piece", data=b"3")
    line.ask("end")
    assert (tmp_path / "a").read_text() == "123"
    line.ask("get", GetFile(path))
    assert line.ask("piece")[1] == b"123"
    assert line.ask("piece")[1] == b""
    with pytest.raises(errors.AlreadyExists, match="already exists in web1"):
        line.ask("put", PutFile(path, 0o644, False, True))
    with pytest.raises(errors.NotFound):
        line.ask("get", GetFile(path + "none"))
    with pytest.raises(errors.InvalidInput):
        line.ask("nothing")
    with pytest.raises(errors.InvalidInput, match="argv"):
        line.ask("exec", GetFile("x"))


def test_what_a_caller_who_goes_has_left_half_is_taken_away(real, served, tmp_path):  # noqa: F811
    line, thread = served(real.agent)
    line.ask("put", PutFile(str(tmp_path / "a"), None, False, True))
    line.ask("piece", data=b"12")
    assert len(os.listdir(tmp_path)) == 1
    line._line.close()
    thread.join(60)
    assert not thread.is_alive() and os.listdir(tmp_path) == []


@pytest.mark.parametrize("said", [
    b"", b"\0" * 8, b"\xff" * 8, b"\0\0\0\2\0\0\0\0[]", b"\0\0\0\2\xff\xff\xff\xff{}",
    b"\0\0\0\1\0\0\0\0{",
])  # fmt: skip
def test_a_hypervisor_that_says_what_is_none(said):
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(said)
        theirs.shutdown(socket.SHUT_WR)
        with pytest.raises((errors.BadAnswer, errors.ConnectionFailed)):
            protocol.Stream(ours).ask("exec")


def test_a_hypervisor_that_says_nothing_is_not_waited_for_without_end():
    ours, theirs = socket.socketpair()
    with ours, theirs, pytest.raises(errors.ConnectionFailed, match="timed out"):
        protocol.Stream(ours).ask("exec", timeout_s=0.3)


def test_one_that_says_a_little_again_and_again_neither():
    ours, theirs = socket.socketpair()
    ended = threading.Event()

    def drip():
        while not ended.wait(0.05):
            theirs.send(b"\0")

    with ours, theirs:
        thread = threading.Thread(target=drip)
        theirs.sendall(b"\0\0\3\0\0\0\0\0")
        thread.start()
        try:
            with pytest.raises(errors.ConnectionFailed):
                protocol.Stream(ours).ask("exec", timeout_s=0.5)
        finally:
            ended.set()
            thread.join()
    until(lambda: not thread.is_alive(), "it ends")


class Told:
    """A Report's words of progress."""

    def __init__(self):
        self.progress_ = []

    def progress(self, percent, text):
        self.progress_.append((round(percent), text))


@pytest.fixture
def master(real, served, monkeypatch):  # noqa: F811
    """What the runner's verbs meet: a line to a hypervisor whose guest has that agent."""

    @contextlib.contextmanager
    def line(_fleet, _name):
        talk, thread = served(real.agent)
        try:
            yield "hv1", talk
        finally:
            talk._line.close()
            thread.join(60)

    monkeypatch.setattr(on_master, "agent_stream", line)
    return Told()


@pytest.mark.usefixtures("master")
def test_a_command_as_the_runner_answers_of_it():
    def answered(script, **more):
        asked = on_master.ExecRequest(Command(("/bin/sh", "-c", script)), **more)
        return on_master.run(None, "web1", asked)

    found = answered("cat; echo e >&2", stdin=b"a\x1b[2Jb")
    assert "retcode" not in found and found["web1"]["result"] is True
    assert (found["web1"]["stdout"], found["web1"]["stderr"]) == ("ab", "e\n")
    assert found["web1"]["comment"] == "web1 on hv1: exit code 0"
    found = answered("printf '\\377'; exit 3", is_raw=True)
    assert (found["retcode"], found["web1"]["exit_code"], found["web1"]["stdout"]) == (1, 3, "/w==")


def test_a_file_as_the_runner_brings_it_and_fetches_it(master, tmp_path):
    local, remote, back = (tmp_path / name for name in ("local", "remote", "back"))
    data = os.urandom(agent_protocol.PIECE_BYTES * 2 + 7)
    local.write_bytes(data)
    local.chmod(0o640)
    copy = on_master.FileCopy(str(local), str(remote))
    found = on_master.put(None, "web1", copy, None, True, master)
    assert remote.read_bytes() == data and remote.stat().st_mode & 0o7777 == 0o640
    assert found["web1"]["size_bytes"] == len(data) and found["web1"]["host"] == "hv1"
    assert [percent for percent, _ in master.progress_] == [100, 100]
    with pytest.raises(errors.AlreadyExists):
        on_master.put(None, "web1", copy, None, True, master)
    fetched = on_master.FileCopy(str(back), str(remote))
    with pytest.raises(errors.InvalidInput, match="increase max_size"):
        on_master.get(None, "web1", fetched, len(data) - 1, master)
    assert not back.exists()
    assert on_master.get(None, "web1", fetched, len(data), master)["web1"]["result"] is True
    assert back.read_bytes() == data
    assert master.progress_[-1] == (0, f"web1: {back}: {units.human_bytes(len(data))}")


@pytest.mark.parametrize("user", [None, "anna"])
def test_files_of_the_master_are_for_those_who_have_it(monkeypatch, user):
    monkeypatch.setattr(on_master.requester, "requesting_user", lambda _opts: user)
    with pytest.raises(errors.Denied, match="files on the master") if user else nullcontext():
        on_master.require_local_user({})
