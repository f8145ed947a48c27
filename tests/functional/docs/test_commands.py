"""Each command of the runner in a manual, called with its arguments as ``salt-run`` parses them:
all of them are accepted, up to the first question to a host."""

import importlib.util
import re
import shlex

import pytest

pytest.importorskip("libvirt")
pytest.importorskip("salt")

import salt.config
import salt.utils.args

from saltvirt import errors
from saltvirt.operations.access import bulk, runner
from saltvirt.operations.core import verb_list
from tests.functional.docs.test_manuals import PAGES, REFUSED
from tests.lab import paths
from tests.tools import api, typed_manual

CHEAT_SHEET = "cheat-sheet.md"
ROW = re.compile(r"^\| (?P<wish>[^|`]+) \| (?P<commands>`salt-run .*`) \|$", re.MULTILINE)
LINE = re.compile(r"^ *(?:(?:master)?# )?(salt-run virt\.\w+(?: \S.*)?)$", re.MULTILINE)
# what a manual leaves open: NAME, HOST[, …], a pattern of the shell, a file of the reader
OPEN = re.compile(r"\b[A-Z]{2,}\b|…|\$|\[(?! *[\w{])|=$|\|")
# what a command lacks here: a terminal, or a file of the master
LACKING = re.compile("needs a terminal|cannot be read: No such file")
VIRT = {
    "hosts": "hyper*",
    "backup": {"targets": {"vault": {"host": "backup1", "folder": "/srv/backups"}}},
    "ha": {"members": {f"hyper{number}": {"address": f"10.0.0.{number}", "fences": []}
                       for number in (1, 2, 3)}},
}  # fmt: skip


class Asked(Exception):
    """A verb has accepted its arguments, and asks the first host."""


class Hosts:
    """A Fleet that is never asked. opts: the master's configuration."""

    def __init__(self, opts):
        self.opts = opts

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        return None

    def __getattr__(self, name):
        raise Asked(name)


def loaded(path, opts, functions):
    """A file of the runner, as Salt loads it. functions: its ``__salt__``."""
    spec = importlib.util.spec_from_file_location(f"documented_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    module.__opts__, module.__salt__ = opts, functions
    spec.loader.exec_module(module)
    module.__opts__, module.__salt__ = opts, functions
    if hasattr(module, "Fleet"):
        module.Fleet = Hosts
    return module


@pytest.fixture(scope="module")
def verbs(tmp_path_factory):
    """{verb: function} of the runner; an error of a call is raised."""
    folder = tmp_path_factory.mktemp("master")
    opts = {**salt.config.master_config(None), "cachedir": str(folder / "cache"),
            "pki_dir": str(folder / "pki"), "sock_dir": str(folder), "virt": VIRT}  # fmt: skip
    paths_, functions, found = sorted(api.REPOSITORY.glob("_runners/virt*.py")), {}, {}
    files = {path: loaded(path, opts, functions) for path in paths_}
    for function in api.ours("runners.virt"):
        module = files[api.REPOSITORY / function.path]
        aliases = {new: old for old, new in getattr(module, "__func_alias__", {}).items()}
        found[function.name] = getattr(module, aliases.get(function.name, function.name))
    functions |= {f"virt.{verb}": function for verb, function in found.items()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner, "_guarded", lambda _function, _subject, call: call())
        patch.setattr(bulk, "Fleet", Hosts)
        yield found


def refused(verbs, command):
    """Why a command is not accepted, or None."""
    _, function, *words = shlex.split(command)
    words = [word for word in words if not word.startswith("--")]
    verb = function.removeprefix("virt.")
    if verb not in verbs:
        return f"no verb {verb}"
    args, kwargs = salt.utils.args.parse_input(words, condition=False)
    try:
        verbs[verb](*args, **kwargs)
    except errors.InvalidInput as exc:
        return None if LACKING.search(exc.text) else exc.text
    except (Asked, errors.VirtError):
        return None
    return None


def rows():
    """(What the reader wants, its commands) of each row of the cheat sheet."""
    text = paths.page(CHEAT_SHEET).read_text(encoding="utf-8")
    return [(row["wish"], re.findall(r"`([^`]+)`", row["commands"])) for row in ROW.finditer(text)]


def test_each_command_of_the_cheat_sheet_is_accepted(verbs):
    commands = [command for _, commands in rows() for command in commands]
    assert len(commands) > 70
    wrong = {command: refused(verbs, command) for command in commands}
    assert {command: why for command, why in wrong.items() if why} == {}


def test_a_slip_in_the_cheat_sheet_would_be_found(verbs):
    for slip in (
        "salt-run virt.strat web1", "salt-run virt.start", "salt-run virt.start web1 tset=True",
        "salt-run virt.update web1 cpus=4", "salt-run virt.migratable", "salt-run virt.resize web1",
        "salt-run virt.init web2 2 2048 salt://debian.qcow2 sizes=40G", "salt-run virt.capacity 2",
        "salt-run virt.update web1 disks='[{name: data, sise: 20G}]'",
        "salt-run virt.ha_rule webs guests=web1 affinty=strict", "salt-run virt.locate web1 web2",
    ):  # fmt: skip
        assert refused(verbs, slip), slip


def test_the_cheat_sheet_has_what_users_do_every_day():
    used = {re.search(r"virt\.(\w+)", command)[1] for _, some in rows() for command in some}
    rarely = {
        *verb_list.GROUPS["Certificates"], "locate", "next_host", "metrics", "owners", "deployed",
        "authorize", "seed_eject", "started", "screenshot", "ticket", "watch", "backup_ls",
        "backup_instant", "backup_prune", "backup_verify", "ha_setup", "ha_disable", "fence",
    }  # fmt: skip
    known = {verb for group in verb_list.GROUPS.values() for verb in group}
    assert known - rarely - used == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(api.REPOSITORY)))
def test_each_command_of_a_manual_is_accepted(verbs, page):
    text = typed_manual.joined(page.read_text(encoding="utf-8"))
    # without an argument, a text names the verb
    lines = {*LINE.findall(text), *re.findall(r"`(salt-run virt\.\w+ [^`\n]+)`", text)}
    lines = {command.partition(" #")[0].strip() for command in lines}
    commands = [one for one in sorted(lines - {*REFUSED}) if one.startswith("salt-run virt.")]
    wrong = {one: refused(verbs, one) for one in commands if not OPEN.search(one)}
    assert {command: why for command, why in wrong.items() if why} == {}
