"""The cache of the lab: built once, complete or missing."""

import itertools
import os
import subprocess
import sys
import textwrap
import time

import pytest

from tests.lab import cache, paths


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("SALTVIRT_CACHE", str(tmp_path))
    return tmp_path


def test_it_is_built_once():
    calls = []

    def build(folder):
        calls.append(folder)
        (folder / "file").write_text("x")

    first = cache.built("thing", build)
    assert (first / "file").read_text() == "x"
    assert cache.built("thing", build) == first
    assert len(calls) == 1


def test_a_failed_build_leaves_nothing(home):
    def build(folder):
        (folder / "half").write_text("x")
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        cache.built("thing", build)
    assert [path.name for path in home.iterdir()] == ["thing.lock"]


def test_what_a_killed_build_left_is_removed(home):
    (home / "thing.part-999").mkdir()
    (home / "thing.part-999/half").write_text("x")
    cache.built("thing", lambda folder: None)
    assert sorted(path.name for path in home.iterdir()) == ["thing", "thing.lock"]


def test_two_processes_at_once_build_once(home):
    program = textwrap.dedent(
        """
        import time
        from tests.lab import cache
        def build(folder):
            print("built", flush=True)
            time.sleep(0.5)
        cache.built("thing", build)
        """
    )
    argv = [sys.executable, "-c", program]
    running = [
        subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, cwd=paths.REPOSITORY)
        for _ in range(2)
    ]
    assert sorted(child.communicate(timeout=300)[0] for child in running) == ["", "built\n"]


def test_only_what_was_not_used_for_long_is_dropped(home):
    for name in ("old", "new"):
        cache.built(name, lambda folder: None)
    long_ago = time.time() - 20 * 86400
    os.utime(home / "old", (long_ago, long_ago))
    os.utime(home / "new", (long_ago, long_ago))
    cache.built("new", lambda folder: None)
    cache.prune(days=14)
    assert sorted(path.name for path in home.iterdir()) == ["new", "new.lock"]


def test_a_lock_whose_file_its_holder_removed_still_excludes(home):
    path = home / "lock"
    program = textwrap.dedent(
        f"""
        import pathlib, time
        from tests.lab import cache
        path = pathlib.Path({str(path)!r})
        with cache.locked(path):
            began = time.monotonic()
            time.sleep(0.3)
            path.unlink()
            print(began, time.monotonic(), flush=True)
        """
    )
    argv = [sys.executable, "-c", program]
    running = [
        subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, cwd=paths.REPOSITORY)
        for _ in range(3)
    ]
    said = [child.communicate(timeout=300)[0] for child in running]
    spans = sorted(tuple(map(float, one.split())) for one in said)
    assert len(spans) == 3
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(spans))
    assert not path.exists()
