"""The decisions of ``make backup-random``, without a lab."""

from tests.backup import steps
from tests.backup.model import Model, digest
from tests.chaos.steps import dumps, loads


def test_the_same_seed_draws_the_same_steps_and_others_draw_others():
    assert steps.draw(7) == steps.draw(7)
    assert steps.draw(7) != steps.draw(8)
    assert loads(dumps(steps.draw(7))) == steps.draw(7)
    assert len(steps.draw(3, 25)) == 25


def test_every_verb_and_every_fault_is_drawn():
    drawn = [step for seed in range(200) for step in steps.draw(seed)]
    ops = [op for step in drawn for op in step["ops"]]
    assert {op["verb"] for op in ops} == {verb for verb, _ in steps.VERBS}
    assert {fault["kind"] for step in drawn for fault in step["faults"]} == set(steps.FAULTS)
    meanwhile = [one["verb"] for op in ops for one in op.get("meanwhile", ())]
    assert set(meanwhile) == set(steps.MEANWHILE)
    assert {op["to"] for op in ops if op["verb"] == "backup"} == {*steps.OFTEN, steps.SLOW}
    assert all(set(step) == {"ops", "faults"} for step in drawn)


def test_what_is_written_is_what_the_disk_holds():
    model = Model("g", "hv1")
    model.add(1024 * 1024)
    model.add(1024 * 1024)
    assert model.targets == ["vda", "vdb"]
    target, command = model.put([0.6, 0.5, 2, 7])
    assert (target, command) == ("vdb", "write -P 7 524288 1024")
    assert model.held["vdb"][524287:525313] == b"\0" + b"\7" * 1024 + b"\0"
    assert model.digests()["vda"] == digest(bytes(1024 * 1024))


def test_nothing_is_written_past_the_end():
    model = Model("g", "hv1")
    model.add(4096)
    assert model.put([0, 0.999, 700, None]) == ("vda", "write -z -u 3584 512")
    model.grow("vda", 8192)
    assert model.put([0, 0.999, 700, 1]) == ("vda", "write -P 1 7680 512")
    assert len(model.held["vda"]) == 8192
