from saltvirt.revert import UndoStack


def test_undoes_newest_first_and_carries_on_past_a_failure():
    done = []

    def fail():
        raise OSError("disk gone")

    with UndoStack() as undo:
        undo.push("first", done.append, 1)
        undo.push("broken", fail)
        undo.push("last", done.append, 3)
    assert done == [3, 1]
    assert undo.failed == ["broken: disk gone"]


def test_success_keeps_what_was_made():
    done = []
    with UndoStack() as undo:
        undo.push("x", done.append, 1)
        undo.success()
    assert done == []
