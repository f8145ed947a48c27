"""The library in one file: unpacked once, complete or not at all, with concurrent and killed
processes."""

import os
import shutil
import subprocess
import sys
import textwrap
import time
import zipfile

import pytest

from tests.lab import paths, publish

LIBRARY = paths.REPOSITORY / publish.LIBRARY
STORE = "saltvirt-library"
SHOW = "import saltvirt.words; print(saltvirt.words.WORD)"


def library(folder, word):
    """A small library of our own kind in a tree."""
    inside = folder / publish.LIBRARY
    shutil.rmtree(inside, ignore_errors=True)
    inside.mkdir(parents=True)
    for name in ("__init__.py", "bundle.py", "errors.py", "sanitize.py"):
        shutil.copy(LIBRARY / name, inside)
    (inside / "words.py").write_text(f"WORD = {word!r}\n\n\ndef fail():\n    raise ValueError\n")
    (inside / "late.py").write_text(f"WORD = {word!r}\n")
    return folder


def archive(tree):
    names = [f"{publish.LIBRARY}/{path.name}" for path in (tree / publish.LIBRARY).iterdir()]
    return publish.packed(tree, sorted(names))


@pytest.fixture
def place(tmp_path):
    """What a sync has brought: its folder is in extension_modules."""
    return Place(tmp_path)


class Place:
    def __init__(self, folder):
        self.folder, self.extmods = folder, folder / "extmods"
        self.synced = self.extmods / "utils/saltvirt"
        self.store = self.extmods / STORE

    def sync(self, word, part=None, place=os.symlink):
        """part: how many bytes of the archive arrive; place: what puts the file that unpacks it
        there (by a link its lines count as reached)."""
        self.synced.mkdir(parents=True, exist_ok=True)
        (self.synced / "__init__.py").unlink(missing_ok=True)
        place(LIBRARY / "bundle.py", self.synced / "__init__.py")
        content = archive(library(self.folder / "tree", word))
        (self.synced / publish.ARCHIVE).write_bytes(content[:part])

    def start(self, code, **more):
        code = textwrap.dedent(code)
        env = {**os.environ, "PYTHONPATH": str(self.extmods / "utils"), **more.pop("env", {})}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        argv = [sys.executable, "-c", code]
        return subprocess.Popen(argv, env=env, text=True, cwd="/", **pipes, **more)

    def run(self, code=SHOW, **more):
        process = self.start(code, **more)
        out, err = process.communicate()
        return out.strip(), err.strip().splitlines()[-1:] or [""]

    def kept(self):
        return sorted(os.listdir(self.store))


def test_it_is_unpacked_once_and_found_by_the_next(place):
    place.sync("one")
    assert place.run() == ("one", [""])
    assert place.store.stat().st_mode & 0o777 == 0o700
    (kept,) = place.kept()
    made = (place.store / kept).stat().st_ctime_ns
    assert place.run() == ("one", [""])
    assert (place.store / kept).stat().st_ctime_ns == made
    assert not list(place.synced.glob("__pycache__/words*"))  # a sync would remove it each time


def test_a_traceback_shows_the_lines_where_they_are(place):
    place.sync("one")
    _, err = place.start("import saltvirt.words; saltvirt.words.fail()").communicate()
    assert 'saltvirt/words.py", line 5, in fail\n    raise ValueError' in err


def test_a_process_that_lives_on_has_the_new_one_at_its_next_call(place):
    place.sync("one")
    lives = place.start(
        """
        import saltvirt, saltvirt.errors
        from saltvirt import words
        print(words.WORD, saltvirt.fresh() is saltvirt, flush=True)
        input()
        try:
            saltvirt.check()
        except saltvirt.errors.StaleLibrary as exc:
            print(exc, flush=True)
        from saltvirt import late
        print("old", late.WORD, flush=True)
        saltvirt = saltvirt.fresh()
        from saltvirt import words
        print(words.WORD, saltvirt.fresh() is saltvirt, flush=True)
        """
    )
    assert lives.stdout.readline() == "one True\n"
    place.sync("two")
    assert place.run() == ("two", [""])
    # what a process uses is not removed, also what it has not imported yet
    out, _ = lives.communicate("\n")
    told, old, new = out.splitlines()
    assert "refresh_modules" in told
    assert (old, new) == ("old one", "two True")
    assert len(place.kept()) == 2
    place.sync("three")
    assert place.run() == ("three", [""])
    assert len(place.kept()) == 1


def test_what_is_half_synced_is_said_and_nothing_of_it_runs(place):
    place.sync("one")
    place.run()
    before = place.kept()
    for part in (0, 100, -1):
        place.sync("two", part)
        out, (line,) = place.run()
        assert out == ""
        assert line.startswith("ImportError: the library of Salt Virt is incomplete here: ")
        assert line.endswith("library.zip is missing or broken. Run saltutil.sync_all again")
    (place.synced / publish.ARCHIVE).unlink()
    assert "incomplete here" in place.run()[1][0]
    assert place.kept() == before


def test_a_bit_that_changed_on_the_way_is_noticed(place):
    place.sync("one")
    path = place.synced / publish.ARCHIVE
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    assert "missing or broken" in place.run()[1][0]


def test_who_comes_while_a_sync_writes_waits_for_it(place):
    place.sync("one", 100)
    early = place.start(
        f"""
        import time
        time.monotonic = lambda: 0
        time.sleep = lambda seconds: print("waits", flush=True) or input()
        {SHOW}
        """
    )
    assert early.stdout.readline() == "waits\n"
    place.sync("one")
    assert early.communicate("\n") == ("one\n", "")


def test_nobody_waits_for_a_sync_that_has_ended(place):
    """Each adapter of a job comes here: together they would wait for a minute."""
    place.sync("one", 100)
    for path in (place.synced / publish.ARCHIVE, place.synced):
        os.utime(path, (0, 0))
    code = """
        import time
        time.sleep = lambda seconds: print("waits")
        import saltvirt
    """
    out, (line,) = place.run(code)
    assert out == ""
    assert "missing or broken" in line


def test_a_new_folder_that_another_process_has_just_locked_is_made_again(place):
    """It looks unused until it is locked."""
    place.sync("one")
    code = f"""
        import fcntl
        flock, calls = fcntl.flock, []
        def locked(file, operation):
            calls.append(operation)
            if len(calls) == 1:
                raise BlockingIOError(11, "Resource temporarily unavailable")
            return flock(file, operation)
        fcntl.flock = locked
        {SHOW}
    """
    assert place.run(code) == ("one", [""])
    assert len(place.kept()) == 1


def test_many_at_once_have_it_once(place):
    place.sync("one")
    crowd = [place.start(SHOW) for _ in range(12)]
    assert {process.communicate() for process in crowd} == {("one\n", "")}
    assert len(place.kept()) == 1


def test_who_is_killed_while_it_unpacks_leaves_nothing_that_is_used(place):
    """At each write to the disk in turn, and at the rename."""
    code = """
        import os, signal
        def die(*_):
            os.kill(os.getpid(), signal.SIGKILL)
        real, calls = os.fsync, iter(range({number}))
        os.fsync = lambda file: real(file) if next(calls, None) is not None else die()
        import saltvirt.words
        print("lived")
    """
    place.sync("one")
    for number in range(20):
        shutil.rmtree(place.store, ignore_errors=True)
        out, _ = place.run(code.format(number=number))
        assert place.run() == ("one", [""])
        if out == "lived":
            break
        assert [name for name in place.kept() if not name.startswith("new-")]
        place.sync(f"two {number}")
        assert place.run() == (f"two {number}", [""])
        # what was left has a lock that nobody holds, or is new and without one
        assert len(place.kept()) <= 2
        place.sync("one")
    assert number > 8


def test_what_was_abandoned_without_a_lock_goes_when_it_is_old(place):
    place.sync("one")
    old, young = place.store / "new-old", place.store / "new-young"
    for folder in (old, young):
        (folder / "saltvirt").mkdir(parents=True)
    os.utime(old, (time.time() - 7200,) * 2)
    assert place.run() == ("one", [""])
    assert not old.exists()
    assert young.exists()


def test_where_it_cannot_be_written_the_folder_and_the_reason_are_named(place):
    place.sync("one")
    place.store.write_text("")
    out, (line,) = place.run()
    assert out == ""
    assert line.startswith("ImportError: the library of Salt Virt cannot be unpacked into ")
    assert str(place.store) in line
    assert line.endswith("Salt must be able to write there once after each update")


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone can be somebody else")
class TestSomebodyElse:
    @pytest.fixture(autouse=True)
    def reachable(self, place):
        for folder in (place.folder, *place.folder.parents):
            if folder.stat().st_uid == 0 and not folder.stat().st_mode & 0o001:
                folder.chmod(folder.stat().st_mode | 0o055)

    def test_a_folder_that_may_not_be_written_is_named(self, place):
        place.sync("one", place=shutil.copyfile)
        _, (line,) = place.run(user=65534, group=65534, extra_groups=[])
        assert "cannot be unpacked" in line
        assert "Permission denied" in line

    def test_what_root_unpacks_is_readable_by_the_salt_that_it_belongs_to(self, place):
        place.sync("one", place=shutil.copyfile)
        for folder, _, names in os.walk(place.extmods):
            for path in (folder, *(os.path.join(folder, name) for name in names)):
                os.chown(path, 65534, 65534)
        assert place.run() == ("one", [""])
        assert place.run(user=65534, group=65534, extra_groups=[]) == ("one", [""])
        assert place.store.stat().st_uid == 65534
        place.sync("two", place=shutil.copyfile)
        assert place.run(user=65534, group=65534, extra_groups=[]) == ("two", [""])
        assert len(place.kept()) == 1

    def test_a_read_only_cache_that_has_it_is_enough(self, place):
        place.sync("one", place=shutil.copyfile)
        assert place.run() == ("one", [""])
        script = (
            f"mount --bind {place.extmods} {place.extmods} && "
            f"mount -o remount,ro,bind {place.extmods} && "
            f"exec {sys.executable} -c '{SHOW}'"
        )
        done = subprocess.run(
            ["unshare", "-m", "sh", "-c", script], check=False, capture_output=True, text=True,
            env={**os.environ, "PYTHONPATH": str(place.extmods / "utils")},
        )  # fmt: skip
        assert done.stdout == "one\n", done.stderr


def test_the_same_files_are_the_same_archive(tmp_path):
    one, two = (archive(library(tmp_path / name, "one")) for name in ("a", "b"))
    assert one == two
    assert one != archive(library(tmp_path / "a", "two"))


def test_the_archive_is_one_that_every_tool_reads(tmp_path):
    path = tmp_path / publish.ARCHIVE
    path.write_bytes(archive(library(tmp_path / "a", "one")))
    with zipfile.ZipFile(path) as found:
        assert found.testzip() is None
        assert "saltvirt/words.py" in found.namelist()
