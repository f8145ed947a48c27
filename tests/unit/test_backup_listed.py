"""What a target says that it has, when it says something else."""

from types import SimpleNamespace

import pytest

pytest.importorskip("salt")

from saltvirt import errors
from saltvirt.backupmaster import backup, keep


@pytest.mark.parametrize("said", [None, 7, 2**70, "x", {"a": 1}, [7], [{}]])
def test_what_is_no_list_of_backups_is_named_with_its_host(monkeypatch, said):
    monkeypatch.setattr(keep, "machine", lambda _fleet, _target: "hv3")
    fleet = SimpleNamespace(one=lambda *_args, **_options: said)
    with pytest.raises(errors.BadAnswer, match="hv3"):
        backup.at(fleet, SimpleNamespace(folder="/srv", mounted=False))
