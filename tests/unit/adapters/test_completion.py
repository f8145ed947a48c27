"""Completion and manuals of salt-run virt.VERB, with the runners of this tree and the files of a
master."""

import importlib.util
import inspect
import shutil
import subprocess

import pytest

pytest.importorskip("salt")

from saltvirt.operations.access import bulk
from saltvirt.operations.journal import location_cache
from tests.lab.paths import REPOSITORY

SCRIPT = REPOSITORY / "formulas/virt/completion/salt-run"


@pytest.fixture
def complete(tmp_path):
    """complete(line) → what bash offers at the end of the line."""
    cache = tmp_path / "cache"
    shutil.copytree(REPOSITORY / "_runners", cache / "extmods/runners")
    (tmp_path / "master").write_text(f"# the master\ncachedir: '{cache}'\n")
    opts = {"cachedir": str(cache)}
    hostile = {"$(touch x)": "running", "a b": "off", "`id`": "off", 'q"u': "off", "*": "off"}
    location_cache.store_host(opts, "hv1", {"web1": "running", "web2": "off", **hostile})
    location_cache.store_host(opts, "hv2", {"db1": "running"})

    def call(line, function="_saltvirt_bash"):
        text = f'. {SCRIPT}; {function}; printf "%s\\n" "${{COMPREPLY[@]}}"'
        env = {"SALT_CONFIG_DIR": str(tmp_path), "COMP_LINE": line, "COMP_POINT": str(len(line)),
               "PATH": "/usr/bin:/bin"}  # fmt: skip
        done = subprocess.run(["bash", "-c", text], env=env, cwd=tmp_path, check=True,
                              capture_output=True, text=True)  # fmt: skip
        assert done.stderr == ""
        return done.stdout.split()

    yield call
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("virt.sta", ["virt.start", "virt.started"]),
        ("virt.start we", ["web1", "web2"]),
        ("virt.start web1,d", ["web1,db1"]),
        ("virt.start web1 te", ["test="]),
        ("virt.start web1 test=", ["True", "False"]),
        ("virt.start name=w", ["web1", "web2"]),
        ("virt.start state=r", ["running"]),
        ("virt.purge 'web*' co", ["confirm="]),
        ("--out=json virt.migrate web1 ho", ["host="]),
        ("virt.migrate web1 h", ["host=", "hv1", "hv2"]),
        ("virt.migrate web1 target=hv2", ["hv2"]),
        ("virt.init new1 2 512 salt://a host=", ["hv1", "hv2"]),
        ("virt.init we", []),
        ("virt.maintenance hv1 o", ["on", "off"]),
        ("virt.help sho", []),
        ("virt.help shut", ["shutdown"]),
        ("virt.nonsense ", []),
        ("virt.start name=x|e,d", ["x|e,db1"]),
        ("state.orchestrate virt", []),
    ],
)
def test_what_is_offered(complete, line, offered):
    found = complete(f"salt-run {line}")
    assert [word for word in found if not line.endswith("=") or "=" not in word] == offered


def test_bash_completes_salt_run(complete):
    assert complete("", "complete -p salt-run | grep -o '[^ ]*$'; COMPREPLY=()") == ["salt-run"]


def test_each_verb_is_offered_with_all_its_arguments(complete):
    offered = {}
    for line in complete("", "_saltvirt_verbs | tr ' ' '|'; COMPREPLY=()"):
        verb, *arguments = line.split("|")
        offered[verb] = {one.partition(":")[0] for one in arguments}
    assert offered == {verb: words_of(one.function) for verb, one in verbs()}


def test_the_manual_says_how_a_verb_is_called_for_several_guests():
    found = set()
    for verb, one in verbs():
        manual = " ".join((one.__doc__ or "").split())
        paragraph, _, fields = manual.partition(" :param")
        assert "For several guests" not in fields, verb
        if kind_of(one.function):
            assert "``name`` is a list (``web1,web2``) or a shell pattern (``'web*'``)" in paragraph
            words = {word for word in (*bulk.SELECTORS, *bulk.OPTIONS) if f"``{word}=" in paragraph}
            assert words == {*bulk.selectors(one.function)} - UNNAMED[kind_of(one.function)], verb
            found.add(verb)
        else:
            assert "For several guests" not in paragraph, verb
    assert {"start", "purge", "update", "migrate"} <= found


# the decorators of verbs for several guests, and the options that they do not accept
UNNAMED = {"guests": {"confirm"}, "destructive": set()}


def verbs():
    """(Name, what Salt calls) of each verb of the runner."""
    for path in sorted((REPOSITORY / "_runners").glob("virt*.py")):
        spec = importlib.util.spec_from_file_location(path.stem, path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        for name, one in vars(module).items():
            if hasattr(one, "function"):
                yield name, one


def words_of(function):
    """The arguments of a verb that a user can name."""
    parameters = inspect.signature(function).parameters.values()
    several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    words = {one.name for one in parameters if one.kind not in several}
    if kind_of(function):
        words |= {*bulk.selectors(function)} - UNNAMED[kind_of(function)]
    return words - {"quiet"}


def kind_of(function):
    """The key of UNNAMED for a verb of several guests; None for others."""
    decorator = inspect.getsource(function).split("\n", maxsplit=1)[0]
    return next((kind for kind in UNNAMED if decorator.endswith(f"_{kind}")), None)
