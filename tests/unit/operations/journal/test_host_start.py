"""The number of orchestrations for start events is limited."""

import threading
import time

import pytest

pytest.importorskip("salt")

from saltvirt.operations.journal import host_start


def test_of_many_starts_one_is_run_and_one_waits(tmp_path):
    opts, go, ran, out = {"cachedir": str(tmp_path)}, threading.Event(), [], []

    def begin():
        ran.append(time.monotonic())
        go.wait(120)
        return "done"

    def start():
        out.append(host_start.once(opts, "hv1", begin))

    threads = [threading.Thread(target=start) for _ in range(20)]
    threads[0].start()
    while not ran:
        time.sleep(0.01)
    for thread in threads[1:]:
        thread.start()
    while len(out) < 18:
        time.sleep(0.01)
    assert out == [None] * 18
    assert host_start.once(opts, "hv2", lambda: "another host's") == "another host's"
    go.set()
    for thread in threads:
        thread.join()
    assert sorted(out, key=str) == [None] * 18 + ["done"] * 2
    assert len(ran) == 2


def test_one_that_fails_is_in_nobodys_way(tmp_path):
    opts = {"cachedir": str(tmp_path)}
    with pytest.raises(ZeroDivisionError):
        host_start.once(opts, "hv1", lambda: 1 / 0)
    assert host_start.once(opts, "hv1", lambda: 1) == 1
