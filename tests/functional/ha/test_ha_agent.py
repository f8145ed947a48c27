"""The agent of high availability as a program, with libvirt's test driver."""

import json
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("libvirt")

from saltvirt.system import zipapp
from tests.clock import until
from tests.functional.conftest import REPOSITORY

NODE = "<node><cpu><mhz>1</mhz><model>x</model><active>4</active><nodes>1</nodes></cpu></node>"
POLICY = {"beat_s": 0.2, "suspect_s": 1.5, "feed_lease_s": 2, "watchdog_s": 3}


def test_it_runs_anew_in_the_same_process_by_the_settings_that_are_there_then(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    (tmp_path / "node.xml").write_text(NODE)
    told = {
        "host": "hv1", "members": {"hv1": f"127.0.0.1:{port}"}, "masters": ["salt"],
        "state": f"{tmp_path}/state", "run": f"{tmp_path}/run", "pki": f"{tmp_path}/pki",
        "uri": f"test://{tmp_path}/node.xml", "policy": POLICY,
    }  # fmt: skip
    (tmp_path / "ha.json").write_text(json.dumps(told))
    archive = tmp_path / "ha-agent.pyz"
    archive.write_bytes(zipapp.build(REPOSITORY / "_utils/saltvirt", "ha.agent.__main__"))
    argv = [sys.executable, archive, "--settings", tmp_path / "ha.json"]
    log, stack = tmp_path / "log", None

    def beats():
        """The number of its last beat that is written, once it has looked at libvirt."""
        path = tmp_path / "run/runtime.json"
        return path.exists() and json.loads(path.read_text())["seq"]

    def begun():
        """Of which start this is, by the system: another program has other times of its parts."""
        maps = Path(f"/proc/{one.pid}/maps").read_text().splitlines()
        return next((line.split("-")[0] for line in maps if line.endswith("[stack]")), stack)

    with open(log, "wb") as said, subprocess.Popen(
        argv, cwd=tmp_path, stdout=said, stderr=said
    ) as one:  # fmt: skip
        try:
            first = until(beats, "a beat")
            stack = begun()
            assert stack
            one.send_signal(signal.SIGHUP)
            until(lambda: begun() != stack, "anew")
            again = until(lambda: beats() > first and beats(), "it goes on counting")
            until(lambda: beats() > again, "another beat")
            assert one.poll() is None
            (tmp_path / "ha.json").write_text("{")
            stack = begun()
            one.send_signal(signal.SIGHUP)
            until(lambda: "continuing with the old program" in log.read_text(), "it has tried them")
            again = beats()
            until(lambda: beats() > again, "a beat by the old settings")
            assert (one.poll(), begun()) == (None, stack)
            one.kill()
            one.wait()
            done = subprocess.run(argv, cwd=tmp_path, stderr=said, check=False)
            assert done.returncode == 78, "nothing is armed: systemd leaves it"
        finally:
            one.kill()
    assert log.read_text().count(f"{tmp_path}/ha.json is not valid JSON") == 2
    assert "Traceback" not in log.read_text()
