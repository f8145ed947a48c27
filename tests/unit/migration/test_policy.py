import pytest

from saltvirt.migration import policy as p

MIB = 1024**2


def stats(remaining, **more):
    return {
        "data_total": 1000 * MIB,
        "data_remaining": remaining * MIB,
        "memory_iteration": 2,
    } | more


def look(remaining_each_second, **more):
    """The progress after one look a second."""
    progress = p.Progress()
    for second, remaining in enumerate(remaining_each_second):
        progress = p.advance(progress, stats(remaining, **more), second)
    return progress


def test_progress_is_measured_against_the_least_that_ever_remained():
    progress = look([900, 800, 850, 820])
    assert progress.lowest == 800 * MIB
    assert progress.stalled_s == 2
    assert progress.percent == 18


def test_no_statistics_yet_is_no_progress_and_no_failure():
    progress = p.advance(p.Progress(), {}, 3)
    assert progress.percent == 0
    assert progress.lowest is None
    assert p.decide(progress, 3, p.Policy()) == p.Action()


def test_the_speed_of_disks_of_which_libvirt_says_nothing_is_what_went_since_the_last_look():
    first = p.advance(p.Progress(), stats(900, data_processed=100 * MIB), 1.0)
    second = p.advance(first, stats(880, data_processed=120 * MIB), 1.5)
    assert (second.speed, second.percent) == (40 * MIB, 12)
    memory = p.advance(second, stats(800, data_processed=200 * MIB, memory_bps=7), 2.0)
    assert memory.speed == 7
    over = p.advance(memory, {}, 2.5)
    assert (over.percent, over.speed) == (20, 7), "what was shown last"


@pytest.mark.parametrize(
    ("name", "kind"),
    [("safe", p.ABORT), ("converge", p.ABORT), ("postcopy", p.POSTCOPY), ("pause", p.PAUSE)],
)
def test_out_of_time(name, kind):
    progress = look([900, 800])
    assert p.decide(progress, 601, p.Policy(name, timeout_s=600)).kind == kind
    stalled = look([900] + [901] * 151)
    assert p.decide(stalled, 151, p.Policy(name)).kind == kind


@pytest.mark.parametrize("name", ["postcopy", "pause"])
def test_while_disks_travel_running_out_of_time_ends_it(name):
    progress = look([900, 800], disk_remaining=5)
    assert p.decide(progress, 601, p.Policy(name, timeout_s=600)).kind == p.ABORT


def test_postcopy_begins_when_memory_was_sent_once():
    first = look([900, 800], memory_iteration=1)
    assert p.decide(first, 2, p.Policy("postcopy")).kind == p.WAIT
    assert p.decide(look([900, 800]), 2, p.Policy("postcopy")).kind == p.POSTCOPY


def test_after_the_point_of_no_return_it_only_waits():
    for gone in ({"postcopy": True}, {"paused": True}):
        assert p.decide(p.Progress(stalled_s=1e6, **gone), 1e6, p.Policy("postcopy")).kind == p.WAIT


def test_converge_raises_the_downtime_in_steps():
    policy = p.Policy("converge", step_s=10)
    progress = look([900] + [901] * 11)
    assert p.decide(progress, 11, policy).value == 500
    taken = p.replace(progress, steps=1)
    assert p.decide(taken, 11, policy).kind == p.WAIT
    assert p.decide(p.replace(taken, stalled_s=21), 21, policy).value == 1000
    last = p.replace(taken, steps=4, stalled_s=100)
    assert p.decide(last, 100, policy).kind == p.WAIT


def test_time_outs_grow_with_the_guest():
    assert p.limits(1, {}).timeout_s == 300
    assert p.limits(10 * p.GIB, {}).timeout_s == 3000
    assert p.limits(10 * p.GIB, {"timeout_per_gib": 150, "stall_timeout": 7}).timeout_s == 1500
    assert p.limits(10 * p.GIB, {"timeout": 5}).timeout_s == 5
