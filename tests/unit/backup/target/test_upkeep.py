"""The backups that are verified, of all guests or of one."""

import pytest

from saltvirt import errors
from saltvirt.backup.model.catalog import Catalog
from saltvirt.backup.target import upkeep
from tests.unit.backup.model.made import backup, ident

STOCKS = {"u1": Catalog([backup(1), backup(2)]), "u2": Catalog([backup(2), backup(3)])}


@pytest.mark.parametrize(("asked", "found"), [
    ("1", [("u1", 1)]),
    ("2", [("u1", 2), ("u2", 2)]),
    (ident(3), [("u2", 3)]),
    ("latest", [("u1", 2), ("u2", 3)]),
    ("all", [("u1", 1), ("u1", 2), ("u2", 2), ("u2", 3)]),
])  # fmt: skip
def test_a_guest_without_a_backup_of_the_number_hinders_no_other(asked, found):
    chosen = upkeep._select_backups(STOCKS, asked)
    assert [(uuid, one.backup_id) for uuid, one in chosen] == [
        (uuid, ident(n)) for uuid, n in found
    ]


def test_a_number_that_no_guest_has_is_not_found():
    with pytest.raises(errors.NotFound, match="no backup '7' of it found"):
        upkeep._select_backups(STOCKS, "7")
    assert upkeep._select_backups({}, "7") == []
