"""The parts of the lab that need no machine."""

import os
import subprocess
from types import SimpleNamespace

import pytest

from tests.lab import cache, cgroup, config, fixtures, layers, matrix, network, paths, process
from tests.lab.cloud import Cloud
from tests.lab.recipe import SALTS, SUITES, Recipe
from tests.lab.sh import LabError


def test_the_recipe_knows_its_pairs():
    assert Recipe("13", "3006").suite == "trixie"
    assert Recipe("12", "3008").salt_version == "3008.3"
    with pytest.raises(LabError, match="Debian 11 is not one of 12, 13"):
        Recipe(debian="11")
    with pytest.raises(LabError, match="Salt 2019 is not one of"):
        Recipe(salt="2019")


def test_what_does_not_differ_is_built_once():
    base, newer, other = (
        layers.keys(Recipe(*pair)) for pair in (("12", "3008"), ("13", "3008"), ("12", "3006"))
    )
    assert {k for k in base if base[k] != newer[k]} == {"host_os", "empty_os", "shared"}
    assert {k for k in base if base[k] != other[k]} == {"wheels", "salt", "guest"}


def test_a_key_depends_on_every_part_and_on_where_parts_end(tmp_path):
    recipe = tmp_path / "recipe.py"
    recipe.write_text("a")
    before = cache.key(recipe, "x")
    assert cache.key("ab", "c") != cache.key("a", "bc")
    recipe.write_text("b")
    assert cache.key(recipe, "x") != before


def test_the_instance_is_named_by_argument_then_environment(monkeypatch):
    monkeypatch.setenv("SALTVIRT_LAB", "mine")
    assert paths.instance_name("other") == "other"
    assert paths.instance_name() == "mine"
    monkeypatch.delenv("SALTVIRT_LAB")
    assert paths.instance_name() == "lab"
    for bad in ("../up", "Upper", "a b", "x" * 25):
        with pytest.raises(LabError, match="is no name for a lab"):
            paths.instance_name(bad)


def test_a_lab_leaves_the_namespaces_of_others_alone():
    mine = network.Network("a")
    ours = [mine.switch, mine.namespace("master"), mine.namespace("hv12")]
    assert all(mine.is_ours(name) for name in ours)
    other = network.Network("a-hv1")
    theirs = [other.switch, other.namespace("master"), "svlab-b-hv1", "hv1", "svlab-a-hvx"]
    assert not any(mine.is_ours(name) for name in theirs)


def test_every_machine_knows_every_other():
    text = config.hosts(3)
    for line in ("10.77.0.1 master salt", "10.77.0.11 hv1", "10.77.0.13 hv3"):
        assert line in text.splitlines()


def test_arguments_reach_salt_as_they_were():
    assert fixtures.words(("web1", 2, True), {"image": "salt://x", "nics": [{"a": 1}]}) == [
        "web1", "2", "true", "image=salt://x", 'nics=[{"a": 1}]',
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ('{"hv1": true}', {"hv1": True}),
        ('creating it on hv1 …\n{"hv1": {"a": 1}}\n', {"hv1": {"a": 1}}),
        ("true\n", True),
        ("{broken\n[1, 2]", [1, 2]),
    ],
)
def test_json_is_found_after_other_output(text, wanted):
    assert fixtures.parsed(subprocess.CompletedProcess([], 0, text, "")) == wanted


def test_no_json_says_what_there_was_instead():
    with pytest.raises(LabError, match="Salt request timed out"):
        fixtures.parsed(subprocess.CompletedProcess([], 1, "Salt request timed out", ""))


def test_the_matrix_has_every_pair_or_the_chosen():
    assert len(matrix.pairs()) == len(SUITES) * len(SALTS)
    assert matrix.pairs(["13/3006"]) == [("13", "3006")]
    with pytest.raises(LabError, match="no such pair: 11/3006"):
        matrix.pairs(["11/3006", "12/3008"])


def test_the_table_has_a_line_for_each_pair():
    first, second = {"keys": "passed", "update": "passed"}, {"keys": "failed", "update": "passed"}
    rows = [("12", "3008", first, 61.4), ("13", "3006", second, 9.0)]
    assert [line.split() for line in matrix.table(rows, ["keys", "update"]).splitlines()] == [
        ["Debian", "Salt", "keys", "update", "seconds"],
        ["12", "3008", "passed", "passed", "61"],
        ["13", "3006", "failed", "passed", "9"],
    ]


def test_the_matrix_runs_files_that_are_there():
    files = [file for part in matrix.PARTS.values() for file in part]
    assert [file for file in files if not (paths.REPOSITORY / file).is_file()] == []


MOUNTS = """30 29 0:26 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu
31 29 0:27 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,name=systemd
32 29 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup rw
33 29 0:29 / /proc rw - proc proc rw
"""


def test_a_machine_gets_a_group_in_each_hierarchy_that_systemd_keeps():
    found = cgroup.trees(MOUNTS, "9:name=systemd:/ci\n1:cpu:/\n0::/job/1\n")
    assert list(map(str, found)) == ["/sys/fs/cgroup/systemd/ci", "/sys/fs/cgroup/unified/job/1"]


def test_what_joins_a_group_is_still_the_process_that_was_started(tmp_path):
    (tmp_path / "cgroup.procs").touch()
    argv = cgroup.join([tmp_path], ["sh", "-c", "echo $$"])
    child = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    said = child.communicate()[0]
    assert int(said) == child.pid == int((tmp_path / "cgroup.procs").read_text())


def test_a_process_is_found_from_outside_by_its_pid_inside():
    assert process.outside(os.getpid(), os.getpid()) == os.getpid()
    with pytest.raises(ProcessLookupError):
        process.outside(os.getpid(), 2**22 + 1)


def test_a_lab_is_up_when_libvirt_knows_what_its_machines_run(monkeypatch):
    """On a cold disk its first look at the emulator can fail: i686 is all that it knows then."""
    said = iter(["", "<arch name='i686'>", f"<arch name='{os.uname().machine}'>"])
    asked = []

    def exec_(_self, host, command, check=True):
        asked.append((host, command[0]))
        return SimpleNamespace(stdout=next(said) if command[0] == "virsh" else "")

    monkeypatch.setattr(Cloud, "exec", exec_)
    monkeypatch.setattr(Cloud, "names", lambda _self: ["master", "hv1"])
    Cloud("x")._wait_for_libvirt()
    assert [command for _, command in asked].count("virsh") == 3
    assert {host for host, _ in asked} == {"hv1"}
    said = iter(["<arch name='i686'>"] * 9)
    with pytest.raises(LabError, match="libvirt on hv1 knows of no"):
        Cloud("x")._wait_for_libvirt(timeout_s=0)


def test_a_process_is_never_written_down_half(tmp_path):
    """Who reads it meanwhile has the one before, not an empty file."""
    path, before = tmp_path / "owner.pid", tmp_path / "before"
    process.remember(1, path)
    os.link(path, before)
    process.remember(os.getpid(), path)
    assert process.recall(before) == 1
    assert process.recall(path) == os.getpid()
    assert sorted(one.name for one in tmp_path.iterdir()) == ["before", "owner.pid"]
