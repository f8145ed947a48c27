"""The commands of CONTRIBUTING.md are there: ``make -n`` expands them, the lab's parser accepts
what they call, and the files and modules that they name exist."""

import os
import re
import shlex
import shutil
import subprocess

import pytest

from tests.lab import cli
from tests.tools import api

PAGE = api.REPOSITORY / "CONTRIBUTING.md"
COMMAND = re.compile(r"(?:[A-Z_]+=\S+ )*(?:make|tests/lab/lab) .*")
LAB = re.compile(r"tests/lab/lab ([^;&|>\n]+)")
# what they would run in: nothing of an outer make
ENV = {word: value for word, value in os.environ.items() if not word.startswith("MAKE")}


def commands():
    text = PAGE.read_text(encoding="utf-8")
    shell = "".join(re.findall(r"```sh\n(.*?)```", text, re.DOTALL)).splitlines()
    inline = re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    found = {one.partition(" #")[0].strip() for one in [*shell, *inline]}
    return sorted(one for one in found if COMMAND.fullmatch(one))


COMMANDS = commands()


def called(command):
    """The commands of the lab that a command runs."""
    if "make " not in command:
        return [command]
    done = subprocess.run(
        ["make", "-n", *shlex.split(command)[1:]],
        cwd=api.REPOSITORY, env=ENV, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.skipif(not shutil.which("make"), reason="no make")
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_is_one_that_make_and_the_lab_have(command):
    for line in called(command):
        for words in LAB.findall(line):
            cli.parser().parse_args(shlex.split(words))


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_names_files_and_modules_that_exist(command):
    named = [word for word in re.split(r"[\s\"'=]", command) if word.startswith("tests/")]
    assert [path for path in named if not (api.REPOSITORY / path).exists()] == []
    for module, function in re.findall(r"ARGS=\"?([a-z_]+(?:\.[a-z_]+)+)(?::(\w+))?", command):
        path = api.REPOSITORY / "_utils/saltvirt" / f"{module.replace('.', '/')}.py"
        code = path.read_text(encoding="utf-8")
        assert f"def {function or ''}" in code


def test_the_shell_block_and_the_recipes_are_read():
    assert {"make test-unit", "make swarm N=200", "tests/lab/lab bench verbs"} < set(COMMANDS)
    hooks = re.search(r"core\.hooksPath (\S+?)`", PAGE.read_text(encoding="utf-8"))[1]
    assert os.access(api.REPOSITORY / hooks / "commit-msg", os.X_OK)
