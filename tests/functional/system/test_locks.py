"""Locks of this host, which only root may take or redirect."""

import os
import re
import subprocess
import sys
import tempfile

import pytest

from saltvirt import errors
from saltvirt.host.provision import admission
from saltvirt.system import file_lock, paths, private_folder

HOLD = """
import sys
from saltvirt.system import file_lock
with file_lock.exclusive(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def held(tmp_path):
    """A lock that another process holds."""
    path = str(tmp_path / "locks" / "one")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env
    ) as process:
        assert process.stdout.readline() == b"held\n"
        yield path, process
        process.stdin.close()


def test_waiting_ends_with_who_holds_it(held):
    path, process = held
    with (
        pytest.raises(errors.OperationFailed, match=f"process {process.pid} .*python"),
        file_lock.exclusive(path, timeout_s=0.3),
    ):
        pass


def test_a_lock_that_nobody_names_is_another_process(tmp_path):
    """One that is free by now; and one whose process left it to a child and ended."""
    path = tmp_path / "one"
    with open(path, "w") as file:
        assert file_lock.holder(file.fileno()) == "another process"
        keep = ["sh", "-c", f"exec 9>{path}; flock 9; echo held; read line"]
        with subprocess.Popen(keep, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdout.readline() == b"held\n"
            assert re.fullmatch(r"process \d+ \(ended\)", file_lock.holder(file.fileno()))
            process.stdin.close()


def test_a_holder_that_gets_on_is_waited_for(held):
    path, process = held
    steps = iter(range(1000))

    def progress():
        step = next(steps)
        if step == 4:  # by then several times the patience has gone by
            process.stdin.close()
            process.wait()
        return step

    with file_lock.exclusive(path, timeout_s=0.2, progress=progress):
        pass


def test_a_link_in_the_place_of_a_lock_is_not_followed(tmp_path):
    target = tmp_path / "target"
    (tmp_path / "lock").symlink_to(target)
    with (
        pytest.raises(errors.OperationFailed, match="cannot open the lock"),
        file_lock.exclusive(str(tmp_path / "lock")),
    ):
        pass
    assert not target.exists()
    target.write_text("precious")
    os.link(target, tmp_path / "second")
    with (
        pytest.raises(errors.OperationFailed, match="not a regular file with a single name"),
        file_lock.exclusive(str(tmp_path / "second")),
    ):
        pass
    assert target.read_text() == "precious"


def test_a_pipe_in_the_place_of_a_lock_hangs_nobody(tmp_path):
    os.mkfifo(tmp_path / "lock")
    with (
        pytest.raises(errors.OperationFailed, match="not a regular file with a single name"),
        file_lock.exclusive(str(tmp_path / "lock")),
    ):
        pass


def admission_config(folder):
    return admission.AdmissionConfig(
        lambda key, default=None: {"virt:lock": str(folder)}.get(key, default), "/x"
    )


def test_the_admission_lock_lies_where_only_root_can_write(tmp_path):
    """Not in /run/lock, where everybody can make a folder before us."""
    assert paths.RUN == "/run/salt-virt"
    for number, prepare in enumerate((a_link, open_to_all)):
        folder = tmp_path / f"lock{number}"
        prepare(folder)
        with pytest.raises(errors.OperationFailed, match="others can write to it"):
            admission_config(folder).lock()
    with admission_config(tmp_path / "good").lock():
        assert os.stat(tmp_path / "good").st_mode & 0o777 == 0o700


def a_link(folder):
    (folder.parent / "elsewhere").mkdir()
    folder.symlink_to(folder.parent / "elsewhere")


def open_to_all(folder):
    folder.mkdir()
    folder.chmod(0o777)


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a folder to somebody else: needs root")
def test_a_folder_of_somebody_elses_is_refused(tmp_path):
    (tmp_path / "lock").mkdir(mode=0o755)
    os.chown(tmp_path / "lock", 65534, 65534)
    with pytest.raises(errors.OperationFailed, match="others can write to it"):
        admission_config(tmp_path / "lock").lock()


DIES = """
import os, sys
from saltvirt.system import private_folder
with private_folder.temporary(sys.argv[1], "x-") as folder:
    open(os.path.join(folder, "client-key.pem"), "w").close()
    os.kill(os.getpid(), 9)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="another user: root")
def test_who_is_not_root_has_his_own_folder_for_now(monkeypatch, tmp_path):
    assert private_folder.runtime() == paths.RUN
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 4001)
    assert private_folder.runtime() == f"{tmp_path}/salt-virt-4001"


def test_what_a_killed_process_had_for_now_the_next_one_removes(tmp_path):
    """A key among it: found by make chaos, in /tmp."""
    parent = tmp_path / "run"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", DIES, str(parent)], env=env, check=False)
    assert done.returncode == -9 and list(parent.glob("x-*/client-key.pem"))
    with private_folder.temporary(str(parent), "x-") as folder:
        assert [str(path) for path in parent.glob("x-*")] == [folder]
        assert os.stat(folder).st_mode & 0o777 == 0o700
    assert list(parent.glob("x-*")) == []
