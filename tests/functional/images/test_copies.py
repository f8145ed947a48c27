"""The queue of hosts that copy images from the master, and a waiting host."""

import fcntl
import threading

import pytest

pytest.importorskip("salt")

from saltvirt import errors
from saltvirt.fleet import download_queue
from saltvirt.images import download_slot
from tests.clock import Clock, until

IMAGE, OTHER = "a" * 40, "b" * 40


@pytest.fixture
def clock():
    return Clock(1000.0)


@pytest.fixture
def queue(tmp_path, clock):
    opts = {"cachedir": str(tmp_path), "virt": {"image_copies": 2}}
    return download_queue.DownloadQueue(opts, clock)


def test_so_many_copy_and_the_others_wait_in_order(queue):
    asked = [queue.ask(f"hv{n}", IMAGE) for n in range(5)]
    assert asked == [0, 0, 1, 2, 3]
    queue.ask("hv1", IMAGE, done=True)
    assert [queue.ask(f"hv{n}", IMAGE) for n in (0, 2, 3, 4)] == [0, 0, 1, 2]
    assert queue.ask("hv1", IMAGE) == 3  # again, at the end


def test_a_host_that_died_loses_its_place(queue, clock):
    assert [queue.ask(f"hv{n}", IMAGE) for n in range(4)] == [0, 0, 1, 2]
    clock.now += download_queue.LEASE_S - 1
    assert [queue.ask(f"hv{n}", IMAGE) for n in (1, 2, 3)] == [0, 1, 2]
    clock.now += 2
    assert [queue.ask(f"hv{n}", IMAGE) for n in (1, 2, 3)] == [0, 0, 1]


def test_a_host_that_was_restarted_has_its_place(queue):
    queue.ask("hv0", IMAGE)
    queue.ask("hv1", IMAGE)
    assert queue.ask("hv0", IMAGE) == 0
    assert queue.ask("hv0", OTHER) == 1


def test_no_host_fills_the_queue(queue):
    for number in range(100):
        queue.ask("evil", f"{number:040x}")
    assert queue.ask("hv1", IMAGE) == 0
    assert [queue.ask(f"hv{n}", IMAGE) for n in (2, 3)] == [1, 2]
    queue.ask("hv1", IMAGE, done=True)
    assert queue.ask("hv2", IMAGE) == 0, "beside the one place of the other"


def test_who_says_for_ever_that_it_copies_holds_nobody_up(queue, clock):
    queue.ask("evil", IMAGE)
    queue.ask("worse", IMAGE)
    assert queue.ask("hv1", IMAGE) == 1
    while clock.now <= 1000 + download_queue.MAX_HOLD_S:
        assert [queue.ask(one, IMAGE) for one in ("evil", "worse", "hv1")] == [0, 0, 1]
        clock.now += download_queue.LEASE_S / 2
    assert [queue.ask(one, IMAGE) for one in ("evil", "worse", "hv1")] == [0, 0, 0]
    assert [queue.ask(one, IMAGE) for one in ("hv2", "hv3")] == [0, 1]


def test_who_copies_does_so_until_it_has_done_so(queue, clock):
    queue.ask("hv1", IMAGE)
    for _ in range(3):
        clock.now += download_queue.LEASE_S / 2
        assert queue.ask("hv1", IMAGE) == 0
    assert queue.ask("hv1", OTHER) == 0
    assert queue.ask("hv1", "c" * 40) == 1, "its own places wait for each other"


def test_a_queue_that_a_crash_cut_off_begins_anew(queue, tmp_path):
    queue.ask("hv0", IMAGE)
    (tmp_path / "virt" / "copies").write_text('[{"host": "hv')
    assert queue.ask("hv1", IMAGE) == 0


def test_what_is_no_image_and_no_number_is_refused(queue, tmp_path):
    for image in ("", "../x", "a" * 41, "A" * 40):
        with pytest.raises(errors.InvalidInput):
            queue.ask("hv1", image)
    for number in (0, -1, "many", True):
        with pytest.raises(errors.InvalidInput, match="image_copies"):
            download_queue.DownloadQueue(
                {"cachedir": str(tmp_path), "virt": {"image_copies": number}}
            )


def test_hosts_that_really_copy_are_never_more_than_the_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(download_slot, "_MIN_PAUSE_S", 0.01)
    opts = {"cachedir": str(tmp_path), "virt": {"image_copies": 2}}
    now, most, said, lock = set(), [], [], threading.Lock()

    def copy(host):
        def ask(asked):
            turn = download_queue.DownloadQueue(opts).ask(
                host, asked["copy"], bool(asked.get("done"))
            )
            return {"turn": turn}

        with download_slot.DownloadSlot("salt://debian.qcow2", ask, said.append):
            with lock:
                now.add(host)
                most.append(len(now))
            until(lambda: max(most) == 2 and said, "as many as may, and one that waits")
            threading.Event().wait(0.05)
            with lock:
                now.remove(host)

    threads = [threading.Thread(target=copy, args=[f"hv{n}"]) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(most) == 8
    assert max(most) == 2
    assert 1 <= len(said) <= 6
    assert "waiting for other hosts" in said[0]


def test_a_master_that_does_not_limit_or_not_answer(monkeypatch):
    with download_slot.DownloadSlot("salt://x", lambda _asked: None, None):
        pass
    monkeypatch.setattr(download_slot, "_MIN_PAUSE_S", 0.01)

    def broken(_asked):
        raise OSError("timed out")

    with (
        pytest.raises(errors.ImageError, match="timed out"),
        download_slot.DownloadSlot("salt://x", broken, print),
    ):
        pass


def test_a_long_copy_keeps_its_place_also_when_the_master_does_not_answer(monkeypatch):
    clock, asked = Clock(), []
    monkeypatch.setattr(download_slot, "time", clock)

    def ask(told):
        asked.append((clock.now, told))
        if clock.now:
            raise OSError("timed out")

    with download_slot.DownloadSlot("salt://x", ask, None) as slot:
        for clock.now in (download_slot.RENEW_S, download_slot.RENEW_S + 1):
            slot.renew()
        slot.renew()  # it was tried just now
    assert [at for at, _ in asked[:2]] == [0, download_slot.RENEW_S + 1]
    assert asked[0][1] == asked[1][1]


def test_a_queue_that_does_not_move_is_not_waited_in_for_ever(monkeypatch):
    clock, said = Clock(), []
    monkeypatch.setattr(download_slot, "time", clock)
    ahead = iter([3] * 100 + [2] * 10_000)
    with (
        pytest.raises(errors.ImageError, match="2 hosts copy from the master before this one"),
        download_slot.DownloadSlot("salt://x", lambda _asked: {"turn": next(ahead)}, said.append),
    ):
        pass
    assert clock.now > download_slot._STALL_TIMEOUT_S + 500, "it counts from the last step"
    # so that the master sees that it waits
    assert len(said) >= clock.now / 70


def test_a_queue_that_another_process_holds_does_not_hang_the_master(tmp_path, monkeypatch):
    monkeypatch.setattr(download_queue, "LOCK_S", 0.2)
    queue = download_queue.DownloadQueue({"cachedir": str(tmp_path)})
    assert queue.ask("hv1", "a" * 40) == 0
    with open(tmp_path / "virt" / "copies", "r+b") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(errors.OperationFailed, match=r"another process has locked .*copies"):
            queue.ask("hv2", "a" * 40)
    assert queue.ask("hv2", "a" * 40) == 0
