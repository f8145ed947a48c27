"""The catalog of a target: its backups, and which of them are good."""

from saltvirt.backup.model.catalog import StoredBackup
from saltvirt.backup.model.verification import Verification
from tests.unit.backup.model import made

WHEN = "2026-11-23T16:00:00Z"
ONE, TWO, THREE = (made.ident(number) for number in (1, 2, 3))
FELL = Verification(WHEN, ("vda",), {"vda": "the piece at 0 is another"})


def unreadable(number, trouble="it is no JSON"):
    return StoredBackup(made.ident(number), record_error=trouble)


def on(number, parent=None, **more):
    """A backup of one disk that stands on a number."""
    given = {key: more.pop(key) for key in ("verified", "without") if key in more}
    return made.backup(number, [made.disk(parent=parent, of=number, **more)], **given)


def test_they_come_the_oldest_first_whatever_the_order():
    stock = made.stock(on(2, 1), unreadable(3), on(1))
    assert [one.backup_id for one in stock] == [ONE, TWO, THREE]
    assert list(stock.backups) == [ONE, TWO, THREE]
    assert [one.backup_id for one in stock.records] == [ONE, TWO]
    assert stock.last.backup_id == THREE
    assert made.stock().last is None
    assert made.stock().records == []


def test_a_chain_is_the_disk_and_all_that_it_stands_on():
    stock = made.stock(*made.chain([1, 2, 3]))
    assert [at for at, _ in stock.chain(THREE, "vda")] == [THREE, TWO, ONE]
    assert [at for at, _ in stock.chain(ONE, "vda")] == [ONE]
    assert [one.parent for _, one in stock.chain(THREE, "vda")] == [TWO, ONE, None]
    assert stock.chain(THREE, "vdb") == []
    assert stock.chain(made.ident(9), "vda") == []


def test_a_chain_ends_where_something_is_missing():
    assert [at for at, _ in made.stock(on(3, 2), on(1)).chain(THREE, "vda")] == [THREE]
    stock = made.stock(on(3, 2), unreadable(2), on(1))
    assert [at for at, _ in stock.chain(THREE, "vda")] == [THREE]
    other = made.backup(2, [made.disk("vdb", of=2)])
    assert [at for at, _ in made.stock(on(3, 2), other).chain(THREE, "vda")] == [THREE]


def test_nothing_is_wrong_with_a_whole_chain():
    stock = made.stock(*made.chain([1, 2, 3]))
    for one in (ONE, TWO, THREE):
        assert stock.problem(one) is None
        assert stock.disk_problem(one, "vda") is None
        assert stock.file_problem(one, "vda") is None
    assert stock.good_ids == [ONE, TWO, THREE]
    assert [one.backup_id for one in stock.good_records] == [ONE, TWO, THREE]


def test_what_is_wrong_is_said_of_the_lowest():
    stock = made.stock(on(1), on(2, 1, verified=FELL), on(3, 2, verified=FELL))
    assert stock.disk_problem(ONE, "vda") is None
    assert stock.disk_problem(TWO, "vda") == "the piece at 0 is another"
    why = f"{TWO}, on which it depends: the piece at 0 is another"
    assert stock.disk_problem(THREE, "vda") == why
    assert stock.problem(THREE) == f"vda: {why}"
    assert stock.good_ids == [ONE]


def test_a_mark_of_another_disk_is_not_this_one_s():
    mark = Verification(WHEN, ("vda", "vdb"), {"vdb": "it fell"})
    stock = made.stock(made.backup(1, [made.disk(), made.disk("vdb")], mark))
    assert stock.disk_problem(ONE, "vda") is None
    assert stock.disk_problem(ONE, "vdb") == "it fell"
    assert stock.problem(ONE) == "vdb: it fell"


def test_a_definition_that_has_changed():
    stock = made.stock(
        on(1, verified=Verification(WHEN, (), {"": "domain.xml has changed"})), on(2, 1)
    )
    assert stock.problem(ONE) == "domain.xml has changed"
    # its disks are good: what stands on it is, too
    assert stock.disk_problem(ONE, "vda") is None
    assert stock.good_ids == [TWO]


def test_one_that_was_read_back_and_is_good():
    assert made.stock(on(1, verified=Verification(WHEN, ("vda",), {}))).good_ids == [ONE]


def test_what_it_stands_on_is_gone_or_cannot_be_read():
    gone = made.stock(on(3, 2), on(1))
    assert gone.disk_problem(THREE, "vda") == f"{TWO}, on which it depends: the backup is missing"
    assert gone.file_problem(THREE, "vda") == f"it depends on {TWO}: the backup is missing"
    bad = made.stock(on(3, 2), unreadable(2), on(1))
    assert bad.disk_problem(THREE, "vda") == f"{TWO}, on which it depends: it is no JSON"
    assert bad.file_problem(THREE, "vda") == f"it depends on {TWO}: it is no JSON"
    mute = made.stock(on(3, 2), unreadable(2, None))
    assert mute.disk_problem(THREE, "vda") == f"{TWO}, on which it depends: the record is missing"
    other = made.stock(on(3, 2), made.backup(2, [made.disk("vdb", of=2)]))
    assert (
        other.disk_problem(THREE, "vda")
        == f"{TWO}, on which it depends: the backup has no disk vda"
    )


def test_far_below_something_is_gone():
    stock = made.stock(on(3, 2), on(2, 1))
    assert stock.disk_problem(THREE, "vda") == f"{ONE}, on which it depends: the backup is missing"
    assert (
        stock.file_problem(THREE, "vda")
        == f"{TWO}, on which it depends: it depends on {ONE}: the backup is missing"
    )


def test_a_disk_that_is_not_in_it():
    stock = made.stock(on(1), unreadable(2), unreadable(3, None))
    assert stock.disk_problem(ONE, "vdz") == "the backup has no disk vdz"
    assert stock.disk_problem(TWO, "vda") == "it is no JSON"
    assert stock.disk_problem(THREE, "vda") == "the record is missing"
    assert stock.disk_problem(made.ident(9), "vda") == "the backup is missing"
    assert stock.problem(TWO) == "it is no JSON"
    assert stock.problem(THREE) == "the record is missing"
    assert stock.file_problem(ONE, "vdz") is None


def test_files_that_are_gone_or_have_another_length():
    for without in ("vda.qcow2", "vda.pieces"):
        stock = made.stock(on(1, without=(without,)), on(2, 1))
        assert stock.problem(ONE) == f"vda: {without} is missing"
        assert stock.file_problem(ONE, "vda") == f"{without} is missing"
        assert stock.file_problem(TWO, "vda") == f"{ONE}, on which it depends: {without} is missing"
        assert stock.good_ids == []
    short = made.backup(1)
    short.lengths["vda.qcow2"] = 6
    assert made.stock(short).problem(ONE) == "vda: vda.qcow2 has 6 bytes instead of 7"
    assert made.stock(short).file_problem(ONE, "vda") == "vda.qcow2 has 6 bytes instead of 7"


def test_what_was_found_when_it_was_read_makes_it_not_unfit():
    """It may be read again, and be good."""
    assert made.stock(on(1, verified=FELL)).file_problem(ONE, "vda") is None


def test_one_that_stands_on_a_disk_of_another_size():
    stock = made.stock(on(1), on(2, 1, size_bytes=2 * made.GIB), on(3, 2, size_bytes=2 * made.GIB))
    assert stock.disk_problem(TWO, "vda") == f"{ONE}, on which it depends, has another size"
    why = f"{TWO}, on which it depends: {ONE}, on which it depends, has another size"
    assert stock.disk_problem(THREE, "vda") == why


def test_a_file_that_is_gone_is_said():
    stock = made.stock(on(1, without=("vda.qcow2",)))
    assert stock.file_problem(ONE, "vda") == "vda.qcow2 is missing"
    assert stock.disk_problem(ONE, "vda") == "vda.qcow2 is missing"
    alone = made.stock(on(2, 1, without=("vda.qcow2",)))
    assert alone.file_problem(TWO, "vda") == "vda.qcow2 is missing"


def test_without_its_definition_no_guest_can_be_made_of_it():
    stock = made.stock(on(1, without=("domain.xml",)), on(2, 1))
    assert stock.problem(ONE) == "domain.xml is missing"
    assert stock.file_problem(ONE, "vda") is None
    assert stock.disk_problem(TWO, "vda") is None


def test_the_first_disk_that_is_not_good_is_named():
    stock = made.stock(
        made.backup(1, [made.disk(), made.disk("vdb"), made.disk("vdc")],
                    without=("vdb.qcow2", "vdc.qcow2"))
    )  # fmt: skip
    assert stock.problem(ONE) == "vdb: vdb.qcow2 is missing"


def test_what_a_backup_needs():
    stock = made.stock(*made.chain([1, 2, 3]))
    assert stock.dependencies(THREE) == {ONE, TWO}
    assert stock.dependencies(TWO) == {ONE}
    assert stock.dependencies(ONE) == set()
    two = made.stock(
        *made.chain([1, 2]), made.backup(3, [made.disk("vda", 2, 3), made.disk("vdb", of=3)])
    )
    assert two.dependencies(THREE) == {ONE, TWO}


def test_of_what_it_needs_only_what_is_there():
    assert made.stock(on(3, 2), on(1)).dependencies(THREE) == set()
    # one that cannot be read is there, and what is below it nobody knows
    assert made.stock(on(3, 2), unreadable(2), on(1)).dependencies(THREE) == {TWO}
    assert made.stock(on(1), unreadable(2)).dependencies(TWO) == set()
