import errno
import os

import pytest

pytest.importorskip("salt")

from saltvirt import errors
from saltvirt.operations.access import runner
from saltvirt.operations.core import result
from tests.tools import api


@runner.reporting
def move(name, target, test=False, **kwargs):
    """A function of the runner."""
    if target == "nowhere":
        raise errors.NotFound("no such host")
    return result.planned(name, "it would move", {"host": target}) if test else {name: 1 // 0}


def test_a_plan_has_the_shape_of_a_result():
    answer = move("web1", "hv2", test=True)
    assert answer["outputter"] == "virt_query"
    assert answer["data"] == {
        "web1": {"result": None, "comment": "it would move", "changes": {"host": "hv2"}}
    }


@pytest.mark.parametrize(
    ("args", "kwargs", "about", "comment"),
    [
        (["web1", "nowhere"], {}, "web1", "no such host"),
        ([], {"name": "web1", "target": "nowhere"}, "web1", "no such host"),
        (
            ["web1"], {}, "web1",
            "virt.move: missing a required argument: 'target'; help: salt-run -d virt.move",
        ),
        (
            ["web1", "a", True, "b"], {}, "web1",
            "virt.move: too many positional arguments; help: salt-run -d virt.move",
        ),
        (
            ["web1", "hv2"], {"name": "s1"}, "web1",
            "virt.move: name is given twice; the arguments in order are name, target, test",
        ),
    ],
)  # fmt: skip
def test_a_users_mistake_is_one_line_and_the_exit_code_is_1(args, kwargs, about, comment):
    data = move(*args, **kwargs)["data"]
    assert data == {about: {"result": False, "comment": comment}, "retcode": 1}


def test_an_error_of_ours_is_said_to_be_one():
    data = move("web1", "hv2")["data"]
    assert data["retcode"] == 1
    assert "internal error: ZeroDivisionError" in data["web1"]["comment"]


@runner.reporting
def write(name, path=None):
    """A function of the runner on a master whose disk is full."""
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), *([path] if path else []))


def test_a_full_disk_of_the_master_is_no_error_of_ours():
    found = write("web1", path="/var/lib/x")["data"]["web1"]
    assert found["comment"] == "this master cannot write /var/lib/x: No space left on device"
    found = write("web1")["data"]["web1"]
    assert found["comment"] == "this master cannot write its files: No space left on device"


@runner.reporting
def sweep(name, force=False, keep=True, deep=None):
    """A function of the runner that deletes."""
    return result.done(name, "swept", force=force, keep=keep, deep=deep)


@pytest.mark.parametrize(
    ("given", "force", "keep"),
    [
        ({"force": "False", "keep": "true"}, False, True),
        ({"force": "yes", "keep": "no"}, True, False),
        ({"force": 1, "keep": None}, 1, None),
    ],
)
def test_a_permission_that_comes_as_text_is_read(given, force, keep):
    """salt-api sends text, and an SLS may quote it."""
    found = sweep("web1", deep="False", **given)["data"]["web1"]
    assert (found["force"], found["keep"], found["deep"]) == (force, keep, "False")


def test_a_permission_that_is_neither_permits_nothing():
    found = sweep("web1", force="perhaps")["data"]
    comment = "force 'perhaps' is not true or false"
    assert found == {"web1": {"result": False, "comment": comment}, "retcode": 1}


def test_each_argument_that_is_checked_as_a_name_is_one_of_a_runner_function():
    functions = api.ours("runners.virt")
    names = {parameter.split("=")[0] for f in functions for parameter in f.parameters}
    assert runner._NAMES - names == set()


def test_a_name_of_digits_is_a_text():
    """YAML reads it as a number."""
    answer = move(10, 11, test="True")["data"]
    assert answer == {"10": {"result": None, "comment": "it would move", "changes": {"host": "11"}}}


@runner.reporting
def remove(name, force=False, keep=True, seed=True, label=None, test=False, **kwargs):
    """Another one, with flags."""
    said = {"force": force, "keep": keep, "seed": seed, "label": label, "test": test}
    return {name: {**said, **kwargs}}


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ({"force": "yes", "keep": 0, "test": "True"}, {"force": True, "keep": False, "test": True}),
        ({"overcommit": "False", "other": "False"}, {"overcommit": False, "other": "False"}),
        ({"wait": "no", "autostart": "false"}, {"wait": False, "autostart": False}),
        ({"force": None, "label": "False"}, {"force": None, "label": "False"}),
        ({"seed": "cloud-init"}, {"seed": "cloud-init"}),
    ],
)
def test_the_text_of_a_flag_means_what_it_says(given, read):
    """As salt-api gives it, or a quoted value in an SLS."""
    said = remove("web1", **given)["data"]["web1"]
    assert {word: said[word] for word in read} == read


@pytest.mark.parametrize("word", ["test", "overcommit"])
def test_what_is_neither_true_nor_false_is_refused(word):
    data = remove("web1", **{word: "perhaps"})["data"]
    assert data["retcode"] == 1
    assert data["web1"]["comment"] == f"{word} 'perhaps' is not true or false"
