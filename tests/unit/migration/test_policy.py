import pytest

from saltvirt.migration import policy as p
from saltvirt.migration.options import MigrationSettings

MIB = 1024**2


def stats(remaining, **more):
    """Disks travel: libvirt says nothing of memory then."""
    return {
        "data_total": 1000 * MIB,
        "data_remaining": remaining * MIB,
        "disk_remaining": remaining * MIB,
    } | more


def memory(remaining, iteration=2, **more):
    """Memory travels."""
    return {
        "data_total": 1000 * MIB,
        "data_remaining": remaining * MIB,
        "memory_total": 1000 * MIB,
        "memory_remaining": remaining * MIB,
        "memory_iteration": iteration,
    } | more


def look(found):
    """The progress after one look a second; something is sent in each."""
    progress = p.Progress()
    for second, each in enumerate(found):
        sent = {"data_processed": (second + 1) * MIB}
        progress = p.advance(progress, sent | each, second)
    return progress


def passes(*begins):
    """Memory sent over and over: a pass of 10 s for each of these, after the first one."""
    found = [memory(1000 - 99 * second, 1) for second in range(10)]
    for number, begin in enumerate(begins, 2):
        found += [memory(begin * (10 - second) // 10, number) for second in range(10)]
    return look(found)


def test_progress_of_disks_is_measured_against_the_least_that_ever_remained():
    progress = look(map(stats, [900, 800, 850, 820]))
    assert (progress.lowest, progress.memory) == (800 * MIB, False)
    assert progress.stalled_s == 2
    assert progress.percent == 18


def test_memory_gets_nearer_with_each_pass_that_begins_with_less():
    assert passes().stalled_s == 0
    assert passes(500, 400, 300).stalled_s == 0, "each pass ended near nothing"
    same = passes(500, 490, 500, 480)
    assert (same.fruitless, same.stalled_s) == (3, 30)
    assert passes(500, 490, 500, 480, 400).stalled_s == 0


def test_the_disks_are_not_what_memory_is_measured_against():
    progress = look([*map(stats, [900, 500, 0]), *(memory(1000 - 5 * s, 1) for s in range(200))])
    assert (progress.memory, progress.stalled_s) == (True, 0)
    assert p.decide(progress, 203, p.MigrationPolicy()).kind == p.WAIT


def test_no_statistics_yet_is_no_progress_and_no_failure():
    progress = p.advance(p.Progress(), {}, 3)
    assert progress.percent == 0
    assert progress.lowest is None
    assert p.decide(progress, 3, p.MigrationPolicy()) == p.Action()


def test_the_speed_of_disks_of_which_libvirt_says_nothing_is_what_went_since_the_last_look():
    first = p.advance(p.Progress(), stats(900, data_processed=100 * MIB), 1.0)
    second = p.advance(first, stats(880, data_processed=120 * MIB), 1.5)
    assert (second.speed, second.percent) == (40 * MIB, 12)
    memory = p.advance(second, stats(800, data_processed=200 * MIB, memory_bps=7), 2.0)
    assert memory.speed == 7
    over = p.advance(memory, {}, 2.5)
    assert (over.percent, over.speed) == (20, 7), "what was shown last"


ENDS = [("safe", p.ABORT), ("converge", p.ABORT), ("postcopy", p.POSTCOPY), ("pause", p.PAUSE)]


@pytest.mark.parametrize(("name", "kind"), ENDS)
def test_out_of_time(name, kind):
    fast = {"memory_bps": 100 * MIB}
    progress = look([memory(900, **fast), memory(800, **fast)])
    assert p.decide(progress, 601, p.MigrationPolicy(name, timeout_s=600, stall_s=900)).kind == kind
    stalled = p.replace(passes(*[500] * 17), speed=100 * MIB)
    assert stalled.stalled_s > 150
    assert p.decide(stalled, stalled.at_s, p.MigrationPolicy(name)).kind == kind


@pytest.mark.parametrize("name", ["safe", "converge", "postcopy", "pause"])
def test_when_nothing_is_sent_any_more_it_ends(name):
    gone = look([memory(900)] * 10)
    for state in (gone, p.replace(gone, paused=True)):
        assert p.decide(state, gone.moved_at + 151, p.MigrationPolicy(name)).kind == p.ABORT
        assert p.decide(state, gone.moved_at + 149, p.MigrationPolicy(name)).kind != p.ABORT


@pytest.mark.parametrize("name", ["postcopy", "pause"])
def test_while_disks_travel_running_out_of_time_ends_it(name):
    progress = look(map(stats, [900, 800]))
    found = p.decide(progress, 601, p.MigrationPolicy(name, timeout_s=600, stall_s=900))
    assert (found.kind, found.reason) == (p.ABORT, "not done in 600 s")


def test_disks_that_get_no_nearer_end_it_in_any_time():
    """The guest writes as fast as it is copied."""
    still = p.Progress(moved_at=200, nearer_at=49, stalled_s=151)
    found = p.decide(still, 200, p.MigrationPolicy("safe"))
    assert (found.kind, found.reason) == (p.ABORT, "no progress for 151 s")


def test_postcopy_begins_when_memory_was_sent_once():
    first = look([memory(900, 1), memory(800, 1)])
    assert p.decide(first, 2, p.MigrationPolicy("postcopy")).kind == p.WAIT
    assert (
        p.decide(look([memory(900), memory(800)]), 2, p.MigrationPolicy("postcopy")).kind
        == p.POSTCOPY
    )


def test_after_the_point_of_no_return_it_only_waits():
    gone = p.Progress(stalled_s=1e6, postcopy=True)
    assert p.decide(gone, 1e6, p.MigrationPolicy("postcopy")).kind == p.WAIT


def test_a_pause_is_never_longer_than_it_may_be():
    """16 GiB to go at 112 MB/s: 150 s."""
    policy, gib = p.MigrationPolicy("pause"), 2**30
    stalled = p.Progress(
        memory=True, iteration=6, fruitless=5, stalled_s=200, moved_at=900, at_s=900,
        speed=112 * 10**6, phase_remaining=100, pass_start=16 * gib,
    )  # fmt: skip
    told = p.decide(stalled, 900, policy)
    assert (told.kind, "longer than the 60 s of a pause" in told.reason) == (p.ABORT, True)
    assert p.decide(p.replace(stalled, pass_start=6 * gib), 900, policy).kind == p.PAUSE
    assert p.decide(stalled, 900, p.replace(policy, pause_s=200)).kind == p.PAUSE
    first = p.replace(stalled, iteration=1, pass_start=6 * gib)
    assert p.decide(first, 900, policy).kind == p.ABORT


def test_converge_raises_the_downtime_in_steps():
    policy = p.MigrationPolicy("converge", step_s=10)
    progress = passes(500, 500, 500)
    assert (progress.stalled_s, progress.fruitless) == (20, 2)
    assert p.decide(progress, 40, policy).value == 500
    taken = p.replace(progress, steps=1)
    assert p.decide(taken, 40, policy).kind == p.WAIT
    assert p.decide(p.replace(taken, stalled_s=21), 41, policy).value == 1000
    last = p.replace(taken, steps=4, stalled_s=100)
    assert p.decide(last, 100, policy).kind == p.WAIT
    slow = p.replace(progress, fruitless=0, stalled_s=100)
    assert p.decide(slow, 100, policy).kind == p.WAIT, "a long pass is not yet a failure"


def test_time_outs_grow_with_the_guest():
    assert p.limits(1, MigrationSettings()).timeout_s == 300
    assert p.limits(10 * p.GIB, MigrationSettings()).timeout_s == 3000
    given = MigrationSettings(timeout_per_gib=150, stall_timeout=7)
    assert p.limits(10 * p.GIB, given).timeout_s == 1500
    assert p.limits(10 * p.GIB, MigrationSettings(timeout=5)).timeout_s == 5


def test_the_limits_are_the_documented_ones():
    assert p.limits(1, MigrationSettings()) == p.MigrationPolicy(
        "converge", 300, 150, 10, 60, begin_s=150 + 1 / p.GIB
    )
    given = MigrationSettings(timeout=1, stall_timeout=2, downtime_step=3, longest_pause=4)
    assert p.limits(1, given, "safe") == p.MigrationPolicy(
        "safe", 1, 2, 3, 4, begin_s=2 + 1 / p.GIB
    )


def test_a_part_of_a_hundred_is_shown():
    """A busy guest writes more than there was at first."""
    for total, remaining, shown in ((1000, 100, 90), (10, 20, 0), (100, -10, 100), (0, 5, 0)):
        assert p.Progress(total=total, remaining=remaining).percent == shown


def test_what_libvirt_does_not_tell_is_nothing():
    found = p.advance(p.Progress(), {"data_total": 100}, 1.0)
    assert (found.remaining, found.processed, found.dirty_rate, found.throttle) == (0, 0, 0, 0)
    assert not found.memory
    assert p.advance(p.Progress(), {"data_total": 100, "memory_iteration": 1}, 1.0).memory
    assert p.advance(p.Progress(), {"data_total": 100, "memory_total": 5}, 1.0).memory
    over = p.advance(p.replace(found, nearer_at=5.0), {}, 8.0)
    assert over.stalled_s == 3


def test_how_much_the_guest_writes_is_told_in_bytes():
    said = memory(900, memory_dirty_rate=10)
    assert p.advance(p.Progress(), said, 1).dirty_rate == 40960
    assert p.advance(p.Progress(), said | {"memory_page_size": 2048}, 1).dirty_rate == 20480


def test_disks_are_measured_by_what_is_left_of_them():
    found = p.advance(p.Progress(), stats(900, disk_remaining=700), 1)
    assert found.phase_remaining == 700


@pytest.mark.parametrize("each", [stats(900), memory(900, 1), memory(0, 1)])
def test_what_stays_as_it_was_got_no_nearer(each):
    assert look([each] * 3).stalled_s == 2


def test_a_pass_is_better_by_a_twentieth_or_fruitless():
    assert passes(1000, 950).fruitless == 1
    assert passes(1000, 949).fruitless == 0
    assert passes(500, 400).pass_start == 400 * MIB, "as much as the whole pass has to send"
    better = passes(500, 500, 300)
    assert (better.fruitless, better.excused) == (0, 0)


def test_the_speeds_of_memory_and_disks_are_one():
    both = p.advance(p.Progress(), stats(900, memory_bps=7, disk_bps=5), 1)
    assert both.speed == 12
    first = p.advance(p.Progress(), stats(900, data_processed=100), 1)
    assert p.advance(first, stats(900, data_processed=100), 2).speed == 0


def test_patience_ends_after_the_limit_and_not_at_it():
    policy = p.MigrationPolicy("safe", timeout_s=600, stall_s=150)
    still = p.Progress(moved_at=50.0, nearer_at=50.0)
    assert p.decide(still, 200, policy).kind == p.WAIT
    moving = p.Progress(moved_at=590.0)
    assert p.decide(moving, 600, policy).kind == p.WAIT
    assert p.decide(p.replace(moving, moved_at=600.0), 601, policy).kind == p.ABORT
    paused = p.replace(moving, paused=True, moved_at=600.0)
    assert p.decide(paused, 601, policy).kind == p.WAIT, "it is paused and will be through soon"


def test_a_guest_that_qemu_slows_further_is_given_time_again():
    stalled = p.Progress(
        memory=True, iteration=9, fruitless=9, stalled_s=300, moved_at=400, throttle=40,
        throttled_at=250,
    )  # fmt: skip
    policy = p.MigrationPolicy("safe")
    assert p.decide(stalled, 400, policy).kind == p.WAIT
    assert p.decide(stalled, 401, policy).kind == p.ABORT


def test_the_last_step_of_the_downtime_is_taken():
    last = p.Progress(memory=True, fruitless=4, stalled_s=41, steps=3, moved_at=50)
    assert p.decide(last, 50, p.MigrationPolicy(step_s=10)).value == 4000


def test_post_copy_needs_a_pass_that_has_begun():
    late = p.Progress(memory=True, iteration=1, moved_at=601)
    policy = p.MigrationPolicy("postcopy", timeout_s=600)
    assert p.decide(late, 601, policy).kind == p.POSTCOPY
    assert p.decide(p.replace(late, iteration=0), 601, policy).kind == p.ABORT


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"speed": 1, "phase_remaining": 60}, p.PAUSE),
        ({"speed": 1, "phase_remaining": 100}, p.ABORT),
        ({"processed": 9000, "at_s": 900, "phase_remaining": 600}, p.PAUSE),
        ({"processed": 9000, "at_s": 900, "phase_remaining": 601}, p.ABORT),
        ({"processed": 10, "at_s": 1, "phase_remaining": 600}, p.PAUSE),
        ({"processed": 10, "at_s": 0, "phase_remaining": 600}, p.PAUSE),
    ],
)
def test_how_long_a_pause_would_be_is_counted_by_the_speed_so_far(changes, kind):
    late = p.Progress(memory=True, iteration=2, moved_at=900)
    policy = p.MigrationPolicy("pause", timeout_s=600, pause_s=60)
    assert p.decide(p.replace(late, **changes), 901, policy).kind == kind


def test_when_anything_was_sent_and_when_the_guest_was_slowed_is_kept():
    first = p.advance(p.Progress(), memory(900, data_processed=10), 1.0)
    still = p.advance(first, memory(900, data_processed=10), 5.0)
    assert (first.moved_at, still.moved_at) == (1.0, 1.0)
    behind = memory(900, memory_remaining=700, disk_remaining=5, auto_converge_throttle=20)
    slowed = p.advance(p.replace(still, fruitless=2), behind, 6.0)
    assert slowed.phase_remaining == 700
    assert (slowed.throttle, slowed.throttled_at, slowed.excused) == (20, 6.0, 2)
    as_before = p.advance(slowed, behind, 7.0)
    assert as_before.throttled_at == 6.0


def test_the_passes_before_the_guest_was_slowed_are_forgiven():
    stalled = p.Progress(
        memory=True, iteration=9, fruitless=p.PASSES + 2, excused=3, stalled_s=300, moved_at=400
    )
    assert p.decide(stalled, 400, p.MigrationPolicy("safe")).kind == p.WAIT
    more = p.replace(stalled, fruitless=p.PASSES + 3)
    assert p.decide(more, 400, p.MigrationPolicy("safe")).kind == p.ABORT


def test_a_target_that_allocates_much_memory_may_take_longer_before_the_first_byte():
    """Huge pages of more than 1 TiB take minutes; nothing is sent until then."""
    big = p.limits(1024 * p.GIB, MigrationSettings())
    assert p.decide(p.Progress(), 1100, big).kind == p.WAIT
    assert p.decide(p.Progress(), 1180, big) == p.Action(
        p.ABORT, reason="nothing was sent for 1180 s"
    )
    begun = p.advance(p.Progress(), {"data_total": 9, "data_processed": 1}, 1000.0)
    assert p.decide(begun, 1149, big).kind == p.WAIT
    assert p.decide(begun, 1151, big).kind == p.ABORT


def test_a_limited_bandwidth_has_the_time_that_it_needs():
    given = MigrationSettings(bandwidth=3)
    needs_s = 20 * 1024 / 3
    assert p.limits(20 * p.GIB, given).timeout_s == 2 * needs_s > 6000
    assert p.limits(20 * p.GIB, MigrationSettings(bandwidth=100)).timeout_s == 6000
    assert p.limits(20 * p.GIB, MigrationSettings(bandwidth=3, timeout=9)).timeout_s == 9
