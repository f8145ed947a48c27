"""The journal of a migration: one holder, whole on the disk, gone when it is over."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from saltvirt.errors import OperationFailed
from saltvirt.host.migration import move_journal

LIBRARY = Path(__file__).resolve().parents[2] / "_utils"
HOLD = """
import sys, time
sys.path.insert(0, sys.argv[1])
from saltvirt.host.migration.move_journal import Journal
with Journal(sys.argv[2], "web1") as journal:
    journal.write(target="qemu+tls://hv2/system")
    print("held", flush=True)
    time.sleep(60)
"""


def test_what_is_written_is_read_until_it_is_closed(tmp_path):
    with move_journal.Journal(tmp_path, "web1") as journal:
        assert journal.read() is None
        journal.write(target="hv2", created=["/a"])
        assert journal.read() == {"target": "hv2", "created": ["/a"]}
    with move_journal.Journal(tmp_path, "web1") as journal:
        assert journal.read()["created"] == ["/a"]
        journal.close()
    assert os.listdir(tmp_path) == []


def test_a_second_migration_is_refused_and_a_killed_one_leaves_its_journal(tmp_path):
    argv = [sys.executable, "-c", HOLD, str(LIBRARY), str(tmp_path)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "held\n"
        with pytest.raises(OperationFailed, match="another migration of web1"):
            move_journal.Journal(tmp_path, "web1").__enter__()
        assert move_journal.unfinished(tmp_path) == {
            "web1": {"target": "qemu+tls://hv2/system", "at_work": True}
        }
        other.send_signal(signal.SIGKILL)
    assert move_journal.unfinished(tmp_path)["web1"]["at_work"] is False
    with move_journal.Journal(tmp_path, "web1") as journal:
        assert journal.read() == {"target": "qemu+tls://hv2/system"}
