"""Detached processes: what they report first, or why they are ended."""

import contextlib
import os
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from saltvirt import errors
from saltvirt.schema import Message
from saltvirt.system import detached, zipapp
from tests.clock import until

MIB = 1024**2


@dataclass(frozen=True)
class Request(Message):
    text: str


@pytest.fixture
def spawn(tmp_path, monkeypatch):
    """Spawns Python code as the program, which finds its request in ``text``."""

    def spawned(code, text="hello", timeout_s=60):
        program = tmp_path / "program"
        program.mkdir(exist_ok=True)
        head = "import json, os, sys, time\n"
        (program / "__main__.py").write_text(head + code)
        monkeypatch.setattr(zipapp, "unpacked_folder", lambda *_asked: str(program))
        return detached.spawn(
            "/library", "module", Request(text), "it cannot begin", "web1",
            folder=str(tmp_path / "run"), timeout_s=timeout_s,
        )  # fmt: skip

    return spawned


def test_a_program_hears_its_request_and_leads_its_own_session(spawn):
    code = (
        "text = json.load(sys.stdin)['text']\n"
        "print(json.dumps({'text': text, 'name': sys.argv[1], 'session': os.getsid(0),"
        " 'pid': os.getpid(), 'folder': os.getcwd()}), flush=True)"
    )
    response = spawn(code, "ü")
    assert (response["text"], response["name"], response["folder"]) == ("ü", "web1", "/")
    assert response["session"] == response["pid"] != os.getpid()


def test_a_program_goes_on_after_its_first_message(spawn, tmp_path):
    response = spawn(
        f"print(json.dumps({{'pid': os.getpid()}}), flush=True); time.sleep(0.2);"
        f" open({str(tmp_path / 'later')!r}, 'w').close()"
    )
    assert list(response) == ["pid"]
    until((tmp_path / "later").exists, "the program works on")


@pytest.mark.parametrize("code, words", [
    ("print('{\"error\": \"no port is free\"}')", "^no port is free$"),
    ("print('{}')", "^no reason was given$"),
    ("sys.exit('Traceback\\nValueError: x')", "^it cannot begin: Traceback / ValueError: x$"),
    ("print('5')", "^it cannot begin: no output$"),
    ("print('no JSON', flush=True)", "^it cannot begin: no output$"),
    ("", "^it cannot begin: no output$"),
])  # fmt: skip
def test_a_program_that_is_not_ready_says_why(spawn, code, words):
    with pytest.raises(errors.OperationFailed, match=words) as caught:
        spawn(code)
    assert isinstance(caught.value, detached.ProcessDied) is ("cannot begin" in words)


@pytest.mark.parametrize("output", ["hello", ""])
def test_a_program_that_does_not_answer_in_time_is_killed(spawn, tmp_path, output):
    pid = tmp_path / "pid"
    code = (
        f"open({str(pid)!r}, 'w').write(str(os.getpid()));"
        f" print({output!r}, end='', flush=True); time.sleep(600)"
    )
    with pytest.raises(detached.ProcessDied, match="it cannot begin"):
        spawn(code, timeout_s=5)
    with contextlib.suppress(FileNotFoundError):  # a slow machine: it was killed before
        assert not Path(f"/proc/{pid.read_text()}").exists()


@pytest.mark.parametrize("length", [1, 10 * MIB])
def test_a_program_that_dies_before_it_reads_its_request_is_named(spawn, length):
    with pytest.raises(detached.ProcessDied, match="it cannot begin"):
        spawn("sys.exit(1)", "x" * length)


def test_a_program_of_the_library_is_unpacked_where_only_root_can_write(tmp_path):
    """A module without a main."""
    library = os.path.dirname(os.path.dirname(detached.__file__))
    folder = tmp_path / "run"
    with pytest.raises(
        detached.ProcessDied, match=r"^it cannot begin: .*cannot import name 'main'"
    ):
        detached.spawn(library, "units", Request(""), "it cannot begin", folder=str(folder))
    assert folder.stat().st_mode & 0o777 == 0o700 and len(list(folder.iterdir())) == 1


def test_a_message_is_one_line_that_is_sent_at_once(capfd):
    detached.send({"port": 5})
    assert capfd.readouterr().out == '{"port": 5}\n' and sys.stdout is not None
