"""The agent as a service: its program of one file, its unit and its settings."""

import errno
import io
import json
import os
import shutil
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("libvirt")

from saltvirt import errors
from saltvirt.ha.agent import install, memory
from saltvirt.ha.agent.install import InstallPaths
from saltvirt.ha.model.messages import Heartbeat
from saltvirt.system import zipapp
from tests.tools import layers

SETTINGS = {"host": "hv1", "members": {"hv1": "10.0.0.1", "hv2": "10.0.0.2"}}


@pytest.fixture
def where(tmp_path):
    """A host whose systemd writes down what it is told; a unit is active when a file is there."""
    systemctl = tmp_path / "systemctl"
    systemctl.write_text(
        f'#!/bin/sh\necho "$@" >> {tmp_path}/told\n'
        f'case "$2" in is-active) test -e {tmp_path}/active; exit;;'
        f" is-enabled) test -e {tmp_path}/enabled; exit;; esac\n"
        f'case "$1" in enable) touch {tmp_path}/enabled;; start) touch {tmp_path}/active;; esac\n'
        f"test -e {tmp_path}/deaf && exit\n"
        'sum() { sha256sum "$1" 2> /dev/null | cut -d" " -f1; }\n'
        'printf \'{"program": "%s", "settings": "%s"}\' '
        f'"$(sum {tmp_path}/lib/ha-agent.pyz)" "$(sum {tmp_path}/etc/ha.json)" > {tmp_path}/runs\n'
    )
    systemctl.chmod(0o755)
    return InstallPaths(
        str(tmp_path / "lib/ha-agent.pyz"), str(tmp_path / "etc/x.service"),
        str(tmp_path / "etc/ha.json"), sys.executable, str(systemctl),
        str(tmp_path / "runs"),
    )  # fmt: skip


def told(tmp_path):
    path = tmp_path / "told"
    words = path.read_text().splitlines() if path.exists() else []
    path.unlink(missing_ok=True)
    return [line.split()[0] for line in words if not line.startswith("--quiet")]


def test_the_program_runs_without_salt_and_without_the_library(tmp_path):
    path = tmp_path / "agent.pyz"
    path.write_bytes(zipapp.build(layers.LIBRARY, install.MODULE))
    found = subprocess.run(
        [sys.executable, "-I", str(path), "--check", "--settings", str(tmp_path / "none")],
        capture_output=True, text=True, check=False, cwd="/",
    )  # fmt: skip
    assert (found.returncode, found.stderr) == (0, "")
    names = zipfile.ZipFile(path).namelist()
    modules = {
        name.removeprefix("saltvirt/").removesuffix(".py").replace("/", ".") for name in names
    }
    keys = {layers.key(module) for module in modules}
    assert not [key for key in keys if layers.LAYER.get(key) == layers.CLOUD]
    assert len(names) < 120


def test_the_same_library_makes_the_same_program():
    first, second = (zipapp.build(layers.LIBRARY, install.MODULE) for _ in range(2))
    assert first == second


def test_a_program_is_kept_until_the_library_changes(tmp_path):
    library = tmp_path / "saltvirt"
    shutil.copytree(layers.LIBRARY, library, ignore=shutil.ignore_patterns("__pycache__"))
    where = tmp_path / "kept"
    where.mkdir()
    first = zipapp.unpacked_folder(library, "backup.target.pull", str(where))
    with zipfile.ZipFile(io.BytesIO(zipapp.build(library, "backup.target.pull"))) as archive:
        for name in archive.namelist():
            assert Path(first, name).read_bytes() == archive.read(name)
    inode = os.stat(first).st_ino
    assert zipapp.unpacked_folder(library, "backup.target.pull", str(where)) == first
    assert os.stat(first).st_ino == inode
    (library / "backup/target/pull.py").write_text("def main(words):\n    return 7\n")
    second = zipapp.unpacked_folder(library, "backup.target.pull", str(where))
    assert second != first
    assert subprocess.run([sys.executable, "-I", second], check=False).returncode == 7
    # a process may still run by the other
    assert sorted(os.listdir(where)) == sorted(map(os.path.basename, (first, second)))


def test_of_two_that_keep_it_at_once_the_first_is_kept(tmp_path, monkeypatch):
    true, first = zipapp.build, []

    def late(*how):
        monkeypatch.setattr(zipapp, "build", true)
        first.append(zipapp.unpacked_folder(*how, str(tmp_path)))
        return true(*how)

    monkeypatch.setattr(zipapp, "build", late)
    assert [zipapp.unpacked_folder(layers.LIBRARY, "units", str(tmp_path))] == first
    assert [str(one) for one in tmp_path.iterdir()] == first


@pytest.mark.parametrize("why", ["its name is taken", "there is no room"])
def test_a_program_that_cannot_be_kept_leaves_nothing(tmp_path, monkeypatch, why):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    path = Path(zipapp.unpacked_folder(layers.LIBRARY, "units", str(tmp_path)))
    shutil.rmtree(path)
    if why == "its name is taken":
        path.write_text("another's")
    else:
        monkeypatch.setattr(zipfile.ZipFile, "extractall", full)
    before = list(tmp_path.iterdir())
    with pytest.raises(OSError):
        zipapp.unpacked_folder(layers.LIBRARY, "units", str(tmp_path))
    assert list(tmp_path.iterdir()) == before


def test_it_is_installed_once(where, tmp_path):
    planned = install.install(layers.LIBRARY, test=True, paths=where)
    assert planned.changes == {where.program: "made", where.unit: "made"}
    assert not os.path.exists(where.program) and told(tmp_path) == []
    done = install.install(layers.LIBRARY, paths=where)
    assert done.changes == {**planned.changes, install.SERVICE: "enabled"}
    assert told(tmp_path) == ["daemon-reload", "enable"]
    assert f"ExecStart=/usr/bin/python3 {where.program}\n" in Path(where.unit).read_text()
    assert os.listdir(tmp_path / "lib") == ["ha-agent.pyz"]
    again = install.install(layers.LIBRARY, paths=where)
    assert (again.changes, told(tmp_path)) == ({}, [])


def test_an_agent_at_work_goes_on_by_a_new_program(where, tmp_path, monkeypatch):
    install.install(layers.LIBRARY, paths=where)
    install.configure(SETTINGS, paths=where)
    told(tmp_path)
    true = zipapp.build
    monkeypatch.setattr(zipapp, "build", lambda *args: true(*args) + b"\0")
    done = install.install(layers.LIBRARY, paths=where)
    assert done.changes[install.SERVICE] == "switches to the new version"
    assert told(tmp_path) == ["reload"]


@pytest.mark.parametrize("what", ["program", "settings"])
def test_what_was_interrupted_is_put_to_work_by_the_next_run(where, tmp_path, what):
    """The file was new and the agent was old, for as long as nothing changed."""
    install.install(layers.LIBRARY, paths=where)
    install.configure(SETTINGS, paths=where)
    told(tmp_path)
    old = json.loads((tmp_path / "runs").read_text())
    (tmp_path / "runs").write_text(json.dumps({**old, what: "older"}))
    found = install.install(layers.LIBRARY, paths=where).changes
    found |= install.configure(SETTINGS, paths=where).changes
    assert found == {install.SERVICE: "switches to the new version"}
    assert told(tmp_path) == ["reload"]
    assert install.configure(SETTINGS, paths=where).changes == {}


def test_an_agent_that_goes_on_by_the_old_settings_is_no_success(where, tmp_path, monkeypatch):
    install.install(layers.LIBRARY, paths=where)
    install.configure(SETTINGS, paths=where)
    (tmp_path / "deaf").touch()
    monkeypatch.setattr(install, "_RELOAD_WAIT_S", 0.3)
    with pytest.raises(errors.OperationFailed, match="continues with its old settings: see"):
        install.configure({**SETTINGS, "port": 17000}, paths=where)


def test_a_program_that_cannot_be_run_is_not_put_in_place(where, tmp_path, monkeypatch):
    install.install(layers.LIBRARY, paths=where)
    before = Path(where.program).read_bytes()
    monkeypatch.setattr(zipapp, "build", lambda *args: b"no program")
    with pytest.raises(errors.OperationFailed, match="cannot be run here"):
        install.install(layers.LIBRARY, paths=where)
    assert Path(where.program).read_bytes() == before
    assert os.listdir(tmp_path / "lib") == ["ha-agent.pyz"]


def test_settings_are_written_for_root_alone_and_start_it(where, tmp_path):
    install.install(layers.LIBRARY, paths=where)
    told(tmp_path)
    assert install.configure(SETTINGS, True, where).changes == {where.settings: "made"}
    done = install.configure(SETTINGS, paths=where)
    assert done.changes == {where.settings: "made", install.SERVICE: "started"}
    assert os.stat(where.settings).st_mode & 0o777 == 0o600
    assert install.configure(SETTINGS, paths=where).changes == {}
    done = install.configure({**SETTINGS, "port": 17000}, paths=where)
    assert done.changes[install.SERVICE] == "switches to the new version"
    assert told(tmp_path) == ["start", "reload"]


@pytest.mark.parametrize("data", [None, [], {}, {**SETTINGS, "host": "hv9"}, {**SETTINGS, "x": 1}])
def test_settings_that_are_wrong_change_nothing(where, tmp_path, data):
    with pytest.raises(errors.InvalidInput):
        install.configure(data, paths=where)
    assert not os.path.exists(where.settings) and told(tmp_path) == []


def test_a_command_of_systemd_that_fails_is_told(where, tmp_path):
    (tmp_path / "systemctl").write_text("#!/bin/sh\necho no such bus >&2\nexit 1\n")
    with pytest.raises(errors.OperationFailed, match="daemon-reload: no such bus"):
        install.install(layers.LIBRARY, paths=where)


def test_a_host_that_lacks_what_it_needs_is_told_in_one_line(where, tmp_path):
    (tmp_path / "file").touch()
    Path(where.settings).mkdir(parents=True)
    for change, words in (
        ({"python": "/none/python3"}, "the agent cannot be run here: "),
        ({"systemctl": "/none/systemctl"}, "systemctl daemon-reload: "),
        ({"program": f"{tmp_path}/file/x"}, f"cannot read {tmp_path}/file/x: Not a directory"),
        ({"unit": where.settings}, f"cannot read {where.settings}: Is a directory"),
    ):
        with pytest.raises(errors.OperationFailed, match=words) as raised:
            install.install(layers.LIBRARY, paths=replace(where, **change))
        assert "\n" not in raised.value.text
    os.rmdir(where.settings)
    without = replace(where, systemctl="/none/systemctl")
    with pytest.raises(errors.OperationFailed, match="/none/systemctl --quiet is-active"):
        install.configure(SETTINGS, paths=without)
    with pytest.raises(errors.OperationFailed, match=r"cannot write .*/\.json: "):
        install._put(f"{tmp_path}/file/x/.json", b"", 0o600)


def test_as_whom_an_agent_is_at_work(where, tmp_path):
    assert install.member_name(where) is None
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/ha.json").write_text(json.dumps(SETTINGS))
    assert install.member_name(where) is None
    (tmp_path / "active").touch()
    assert install.member_name(where) == "hv1"


def test_the_firewall_is_told_its_port_where_it_has_settings(tmp_path):
    path = tmp_path / "ha.json"
    assert install.port(str(path)) is None
    path.write_text(json.dumps(SETTINGS))
    assert install.port(str(path)) == 16516
    path.write_text(json.dumps({**SETTINGS, "members": {"hv1": "10.0.0.1:999"}}))
    assert install.port(str(path)) == 999
    path.write_text("{")
    with pytest.raises(errors.InvalidInput):
        install.port(str(path))


# -- its parts as processes ------------------------------------------------------------------------


def alone(*argv, **more):
    """What a process of its own has said, which has the library."""
    folder = Path(memory.__file__).parents[3]
    found = subprocess.run(
        [sys.executable, *argv], cwd=folder, capture_output=True, check=False, **more
    )
    return SimpleNamespace(
        code=found.returncode, stdout=found.stdout.decode(), stderr=found.stderr.decode()
    )


def test_nothing_of_the_agent_is_swapped_out():
    """As it is called by the program; of a process of its own, for there is no way back."""
    said = alone("-c", (
        "from saltvirt.ha.agent import memory; memory.lock(); more = bytearray(8 * 1024**2);"
        "print(open('/proc/self/status').read())"
    ))  # fmt: skip
    found = dict(line.split(":", 1) for line in said.stdout.splitlines() if ":" in line)
    locked, held = (int(found[key].split()[0]) for key in ("VmLck", "VmRSS"))
    assert locked >= held - 4096 > 8192 or "so it may hang with the swap device" in said.stderr


def test_an_agent_that_may_be_swapped_out_says_so():
    """Its user may lock nothing."""
    said = alone("-c", (
        "import os, resource; from saltvirt.ha.agent import memory;"
        "resource.setrlimit(resource.RLIMIT_MEMLOCK, (0, 0)); own = os.geteuid();"
        "os.seteuid(own or 65534); memory.lock(); os.seteuid(own)"
    ))  # fmt: skip
    assert (said.code, said.stdout) == (0, "")
    assert said.stderr.count("so it may hang with the swap device: ") == 1


def test_the_program_is_the_service_and_its_parts(tmp_path):
    at = ["-m", "saltvirt.ha.agent"]
    none = str(tmp_path / "none")
    assert alone(*at, "--check", "--settings", none).code == 0
    said = alone(*at, "--settings", none)
    assert said.code == 78, "systemd does not start it again"
    assert "ERROR" in said.stderr and f"cannot read {none}" in said.stderr
    assert said.stderr.count("\n") == 1
    (tmp_path / "ha.json").write_text(json.dumps({**SETTINGS, "masters": ["salt"]}))
    assert alone(*at, "--check", "--settings", str(tmp_path / "ha.json")).code == 0
    beat = json.dumps(Heartbeat("hv1", 1, 1).to_answer()).encode()
    told = {"name": "web1", "xml": None}
    for part, line in (("pool", beat), ("definitions", json.dumps(told).encode())):
        said = alone(*at, part, "/", "hv1", input=line + b"\n")
        assert (said.code, said.stderr) == (0, "")
        assert "nothing is mounted there" in json.loads(said.stdout)["trouble"]
