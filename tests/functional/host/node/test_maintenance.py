"""Files of a host: the maintenance mark, and users who may not read the files."""

import os

import pytest

from saltvirt import errors
from saltvirt.answers.maintenance import MaintenanceMark
from saltvirt.host.migration import move_journal, reservations, target_leftovers
from saltvirt.host.node import maintenance


def test_mark_and_clear(tmp_path):
    mark = tmp_path / "deep" / "maintenance.json"
    assert maintenance.read(mark) is None
    maintenance.write("disks", ["b", "a"], mark)
    assert maintenance.read(mark) == MaintenanceMark("disks", ("a", "b"))
    maintenance.write("memory", path=mark)
    assert maintenance.read(mark) == MaintenanceMark("memory", ())
    maintenance.clear(mark)
    maintenance.clear(mark)
    assert maintenance.read(mark) is None


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"7", b"{}", b"[" * 100_000, b"\xff", None,
                                     b'{"reason": 7, "guests": []}',
                                     b'{"reason": "x", "guests": 7}',
                                     b'{"reason": "x", "guests": [7]}'])  # fmt: skip
def test_a_damaged_mark_is_named(tmp_path, content):
    """No guest comes before a person has looked."""
    mark = tmp_path / "maintenance.json"
    mark.mkdir() if content is None else mark.write_bytes(content)
    with pytest.raises(errors.OperationFailed, match=rf"^{mark}, .* virt.maintenance off=True"):
        maintenance.read(mark)


def _leftovers(folder):
    target_leftovers.FOLDER = str(folder)  # of this process, which ends with it
    target_leftovers.names()


READERS = {
    "arrivals": lambda folder: reservations.local((), folder),
    "journals": move_journal.names,
    "a journal": lambda folder: move_journal.MigrationJournal(folder, "web1").__enter__(),
    "leftovers": _leftovers,
    "maintenance": lambda folder: maintenance.read(type(folder)(folder, "maintenance.json")),
}


@pytest.mark.skipif(os.geteuid() != 0, reason="another user: root")
@pytest.mark.parametrize("name", READERS)
def test_a_minion_that_is_not_root_is_told(tmp_path, name):
    folder = tmp_path / "salt-virt" / "own"
    folder.mkdir(parents=True)
    folder.parent.chmod(0o700)
    child = os.fork()
    if not child:
        os.setresuid(65534, 65534, 65534)
        os.chdir("/")
        try:
            READERS[name](folder)
        except errors.OperationFailed as exc:
            os._exit(0 if "cannot be accessed by this minion: Permission denied" in str(exc) else 2)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
