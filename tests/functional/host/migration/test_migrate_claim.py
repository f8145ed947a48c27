"""kill -9 of a migration at each line that makes a file on the target: what is taken away is ours.

The target is a real libvirtd. The processes that are killed are real, too: one is begun for each
line of the code that makes a file, and ends there.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.functional.daemon import libvirtd  # noqa: F401

LIBRARY = Path(__file__).resolve().parents[4] / "_utils"
THEIRS = b"somebody else's disk"

# For each line: a process that ends there; what it left; what the clean-up then makes of it, where
# somebody else is quicker (theirs), or nobody is. Prints a list of what came out.
EACH_LINE = """
import json, os, signal, sys
sys.path[:0] = [sys.argv[1], os.path.dirname(sys.argv[1])]
import libvirt
from saltvirt.host.migration import move_journal, recovery, remote_storage
from saltvirt.host.migration import target_files, target_leftovers
from saltvirt.host.storage import sharing
from saltvirt.migration.facts import BackingFile, GuestReport
from saltvirt.migration.journal import JournalEntry, TargetFiles
from saltvirt.system import message_file
from tests.functional.killing import Trace, apart

uri, folder, theirs = sys.argv[2], sys.argv[3], sys.argv[4].encode()
wanted = json.loads(sys.argv[5])
remote_storage.STALE_S = -1  # whose pool it is was just killed
target_leftovers.FOLDER = folder + "/target_leftovers"
sharing.sharing_reason = lambda path: None
path = f"{folder}/web1_vda"
traced = (target_files.__file__, remote_storage.__file__)
names = ("create_file", "_make", "claim", "shape")

def make(journal, conn):
    def note(target, making=None):
        report = GuestReport("web1", "u", "hv1", False, "shutdown")
        journal.write(JournalEntry(report, uri, created=tuple(target.created), making=making,
                                   folders=tuple(target.folders)))
    class Watch:
        def begin(self): pass
        def __call__(self, *_): pass
    target = target_files.MigrationTarget(conn, note, print, Watch())
    backing = BackingFile(**wanted["backing"]) if wanted["backing"] else None
    target.create_file(path, *wanted["wanted"], backing, source=wanted["source"])

def killed_at(line):
    with move_journal.MigrationJournal(folder + "/journals", "web1") as journal:
        conn = libvirt.open(uri)
        sys.settrace(Trace(traced, line, names))
        make(journal, conn)
        sys.settrace(None)

def clean():
    entry = message_file.read(folder + "/journals/web1.json", JournalEntry)
    made = entry.target_files if entry else TargetFiles("web1")
    conn = libvirt.open(uri)
    _, said = recovery.undo_target(conn, made)
    gone, kept = target_leftovers.clean(conn, "web1")
    kept = {**{path: why for path, why in said.items() if path not in gone}, **kept}
    return gone, kept, made.to_answer()

found, line = [], 0
while True:
    line += 1
    seen = {"line": line}
    for quicker in (False, True):
        if quicker and seen["alone"]["there"]:
            break
        if os.path.exists(path):
            os.unlink(path)
        move_journal.MigrationJournal(folder + "/journals", "web1").close()
        code, _ = apart(lambda: killed_at(line))
        there = os.path.exists(path)
        if quicker and not there:
            with open(path, "wb") as file:
                file.write(theirs)
        done = apart(clean)
        assert done[0] == 0, done[1]
        gone, kept, entry = done[1]
        seen["quicker" if quicker else "alone"] = {
            "code": code, "there": there, "after": os.path.exists(path), "gone": gone,
            "kept": kept, "noted": path in entry["created"], "making": entry.get("making"),
        }
    found.append(seen)
    if seen["alone"]["code"] != -signal.SIGKILL:
        break
print(json.dumps(found))
"""


_SLOW = [pytest.param(kind, marks=pytest.mark.slow) for kind in ("raw", "copy")]


@pytest.mark.parametrize("kind", ["thin", *_SLOW])
def test_at_each_line_what_is_ours_goes_and_what_is_not_stays(libvirtd, tmp_path, kind):  # noqa: F811
    base = tmp_path / "base.qcow2"
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", base, "8M"], check=True)
    wanted = {
        "raw": ["raw", 2**20],
        "thin": ["qcow2", 2**23],
        "copy": ["raw", 0],
    }[kind]
    backing = {"path": str(base), "format": "qcow2"} if kind == "thin" else None
    source = str(base) if kind == "copy" else None
    asked = json.dumps({"wanted": wanted, "source": source, "backing": backing})
    argv = [
        sys.executable,
        "-c",
        EACH_LINE,
        LIBRARY,
        libvirtd.uri,
        tmp_path,
        THEIRS.decode(),
        asked,
    ]
    done = subprocess.run(list(map(str, argv)), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    *killed, whole = found
    assert len(killed) > 12
    assert whole["alone"]["code"] == 0
    unsure = 0
    for seen in killed:
        alone, quicker = seen["alone"], seen.get("quicker")
        assert not alone["after"], f"left behind: {seen}"
        assert bool(alone["gone"]) == alone["there"], seen
        unsure += bool(alone["there"] and not alone["noted"])
        if quicker:
            assert not quicker["there"]
            assert quicker["after"], f"somebody else's file was deleted: {seen}"
            assert not quicker["gone"], seen
            assert bool(quicker["kept"]) == bool(quicker["making"]), seen
    assert unsure, "no process was killed between making the file and writing down that it did"


def test_what_is_made_is_what_was_wanted(libvirtd, tmp_path):  # noqa: F811
    """A thin disk with its format and what it is based on, as libvirt itself reads them."""
    libvirt = pytest.importorskip("libvirt")
    from saltvirt.host.migration import remote_storage
    from saltvirt.migration.facts import BackingFile

    base, disk = str(tmp_path / "base.qcow2"), str(tmp_path / "web1_vda.qcow2")
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", base, "8M"], check=True)
    conn = libvirt.open(libvirtd.uri)
    with remote_storage.open_pool(conn, str(tmp_path)) as pool:
        found = remote_storage.claim(pool, remote_storage.sign(pool, disk), "0600")
        remote_storage.shape(found, "qcow2", 2**24, BackingFile(base, "qcow2"))
    with remote_storage.open_pool(conn, str(tmp_path)) as pool:
        text = remote_storage.volume(pool, disk).XMLDesc(0)
    told = subprocess.run(
        ["qemu-img", "info", "--output=json", disk], check=True, capture_output=True
    ).stdout
    info = json.loads(told)
    assert (info["virtual-size"], info["full-backing-filename"]) == (2**24, base)
    assert info["backing-filename-format"] == "qcow2"
    assert f"<path>{base}</path>" in text
    assert Path(disk).stat().st_mode & 0o777 == 0o600
    conn.close()
