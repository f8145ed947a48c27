"""Typed calls: the request of the master, the arguments of the host's handler, and the answer."""

import ast
import importlib
import re
from dataclasses import dataclass

import pytest

from saltvirt import errors, features
from saltvirt.answers import calls
from saltvirt.answers.calls import Call, MinionContext, Timeout
from saltvirt.fleet.answer import BAD, FAILED, Answer
from saltvirt.schema import Message
from tests.lab import paths
from tests.tools import layers


@dataclass(frozen=True)
class Size(Message):
    bytes: int
    unit: str = "B"


@dataclass(frozen=True)
class SizeRequest(Message):
    name: str
    human: bool = False


LISTED = calls.HANDLER_MODULES
SIZE = Call("test_size", SizeRequest, Size)
SIZES = Call("test_sizes", SizeRequest, list[Size], Timeout.SHORT)
BUSY = Call("test_busy", SizeRequest, bool, Timeout.PATIENT)


class Fleet:
    """Hosts with an answer each: data, or an error."""

    def __init__(self, **answers):
        self.answers, self.asked = answers, []

    def ask(self, hosts, fun, kwarg=None, **options):
        self.asked.append((fun, kwarg, options))
        for host in hosts:
            found = self.answers[host]
            if isinstance(found, str):
                yield Answer(host, error=found, kind=FAILED)
            else:
                yield Answer(host, data=found)

    def gather(self, hosts, fun, kwarg=None, **options):
        return {answer.host: answer for answer in self.ask(hosts, fun, kwarg, **options)}

    def call(self, host, fun, kwarg=None, **options):
        return self.gather([host], fun, kwarg, **options)[host].get()

    def each(self, host, fun, several, **options):
        return [*self.ask([host] * len(several), fun, several, **options)]


@pytest.fixture
def host():
    return MinionContext({"id": "hv1"}, {"config.get": lambda key: key})


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    """The handlers of this test alone."""
    # a module that is imported for the first time registers in the dictionary that is restored
    list(features.installed(LISTED))
    monkeypatch.setattr(calls, "_handlers", {})
    monkeypatch.setattr(calls, "HANDLER_MODULES", {})

    @calls.handles(SIZE)
    def size(host, request):
        return Size(len(request.name), host.config("unit"))

    @calls.handles(SIZES)
    def sizes(_host, request):
        return [Size(1), Size(2, request.name)]


def test_the_fields_of_a_request_are_the_arguments_of_a_function():
    fleet = Fleet(hv1={"bytes": 3})
    assert SIZE.ask(fleet, "hv1", SizeRequest("web1"), watch="w") == Size(3)
    arguments = {"name": "web1", "human": False}
    assert fleet.asked == [("virt.test_size", arguments, {"long": True, "watch": "w"})]


@pytest.mark.parametrize(("call", "options"), [
    (SIZE, {"long": True}), (SIZES, {"long": False}), (BUSY, {"long": False, "patient": True}),
])  # fmt: skip
def test_how_long_the_master_waits_is_of_the_call(call, options):
    fleet = Fleet(hv1=True)
    call.gather(fleet, ["hv1"], SizeRequest("web1"))
    assert fleet.asked[0][2] == options


@pytest.mark.parametrize(("call", "data", "wrong"), [
    (SIZE, {"unit": "B"}, "bytes is missing"), (SIZE, [], "a mapping"), (SIZES, {}, "a list"),
    (SIZES, [{"bytes": "x"}], "0.bytes is not a number"), (BUSY, "yes", "true or false"),
])  # fmt: skip
def test_an_answer_of_another_type_is_refused(call, data, wrong):
    with pytest.raises(errors.BadAnswer, match=f"hv1: .*{wrong}"):
        call.read(data, "hv1")
    fleet, request = Fleet(hv1=data), SizeRequest("web1")
    if isinstance(data, str):  # an error of this fleet
        return
    words = f"hv1: its answer to virt.{call.name} is not what this version expects: .*{wrong}"
    with pytest.raises(errors.ConnectionFailed, match=words):
        call.ask(fleet, "hv1", request)
    assert call.reply(fleet, "hv1", request).kind == BAD
    assert [one.kind for one in call.replies(fleet, ["hv1"], request)] == [BAD]


def test_one_host_that_fails_hinders_no_other():
    fleet = Fleet(hv1={"bytes": 1}, hv2="it is broken", hv3={"bytes": None})
    answers, failed = SIZE.gather(fleet, ["hv1", "hv2", "hv3"], SizeRequest("web1"))
    assert answers == {"hv1": Size(1)}
    assert failed.pop("hv2") == "it is broken"
    assert failed["hv3"].endswith("expects: bytes is not a number from 0")


def test_each_request_of_a_job_has_its_answer_or_its_error():
    fleet = Fleet(hv1={"bytes": 1})
    requests = [SizeRequest("a"), SizeRequest("b", True)]
    assert [one.get() for one in SIZE.each(fleet, "hv1", requests)] == [Size(1), Size(1)]
    assert [given["name"] for given in fleet.asked[0][1]] == ["a", "b"]
    [wrong] = SIZE.each(Fleet(hv1="no"), "hv1", [SizeRequest("a")])
    assert (wrong.kind, wrong.error) == (FAILED, "no")


def test_a_handler_gets_the_request_and_answers_plain_data(host):
    given = {"name": "web1"}
    assert calls.answer(host, "virt.test_size", given) == {"bytes": 4, "unit": "unit"}
    several = [{"bytes": 1, "unit": "B"}, {"bytes": 2, "unit": "web1"}]
    assert calls.answer(host, "virt.test_sizes", given) == several
    assert calls.request_type("virt.test_size") is SizeRequest
    assert calls.is_handled("virt.test_size") and not calls.is_handled("virt.test_busy")


@pytest.mark.parametrize(("given", "wrong"), [
    ({}, "name is missing"), ({"name": 7}, "name is not text"),
    ({"name": "a", "force": True}, "unknown argument force: the master has another version"),
])  # fmt: skip
def test_arguments_of_another_type_or_version_are_refused(host, given, wrong):
    with pytest.raises(errors.InvalidInput, match=wrong):
        calls.answer(host, "virt.test_size", given)


def test_the_list_has_the_handlers_of_all_features():
    files = layers.LIBRARY.rglob(layers.HANDLERS)
    names = {".".join(path.relative_to(layers.LIBRARY).with_suffix("").parts) for path in files}
    parts = {name: name.partition(".")[0] for name in LISTED}
    assert {name for name, part in parts.items() if (layers.LIBRARY / part).is_dir()} == names


def source_of(module):
    return (layers.LIBRARY / module.replace(".", "/")).with_suffix(".py")


@pytest.mark.parametrize("module", [name for name in LISTED if source_of(name).exists()])
def test_the_list_has_the_calls_of_each_module(module):
    source = source_of(module)
    handled = {
        decorator.args[0]
        for function in ast.walk(ast.parse(source.read_text(encoding="utf-8")))
        if isinstance(function, ast.FunctionDef)
        for decorator in function.decorator_list
        if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "handles"
    }
    loaded = importlib.import_module(f"saltvirt.{module}")
    functions = {eval(ast.unparse(call), vars(loaded)).function for call in handled}
    assert functions == {f"{calls.PREFIX}{name}" for name in LISTED[module]}


@pytest.mark.parametrize(("missing", "is_error"), [
    ("saltvirt.backup", False), ("saltvirt.backup.export", False),
    ("saltvirt.backup.export.handlers", False), ("saltvirt.backup.export.api", True),
    ("saltvirt.names", True), ("cryptography", True), (None, True),
])  # fmt: skip
def test_only_the_handlers_of_an_installed_feature_are_imported(monkeypatch, missing, is_error):
    def load(_name):
        raise ModuleNotFoundError("missing", name=missing)

    monkeypatch.setattr(calls, "HANDLER_MODULES", {"backup.export.handlers": ("backup_disk",)})
    monkeypatch.setattr(features.importlib, "import_module", load)
    if is_error:
        with pytest.raises(ModuleNotFoundError):
            calls.is_handled("virt.backup_disk")
    else:
        assert not calls.is_handled("virt.backup_disk")


def test_an_error_in_a_handler_module_is_raised(monkeypatch):
    def load(_name):
        raise ImportError("cannot import name 'x'")

    monkeypatch.setattr(calls, "HANDLER_MODULES", {"backup.export.handlers": ("backup_disk",)})
    monkeypatch.setattr(features.importlib, "import_module", load)
    with pytest.raises(ImportError, match="cannot import name"):
        calls.is_handled("virt.backup_disk")


# -- calls that are not declared ------------------------------------------------------------------

FUNCTION = re.compile(r"virt\.\w+")
QUOTED = re.compile(r"""["']virt\.\w+["']""")
SENDERS = {"ask", "call", "gather", "each", "reply", "replies"}


def hand_built(path):
    """Lines that hand the name of a function of a host to a fleet."""
    code = path.read_text(encoding="utf-8")
    if not QUOTED.search(code):
        return
    tree = ast.parse(code)
    named = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
            for target in node.targets:
                named[getattr(target, "id", getattr(target, "attr", None))] = node.value.value
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        partial = isinstance(node.func.value, ast.Name) and node.func.attr == "partial"
        if not partial and node.func.attr not in SENDERS:
            continue
        for given in [*node.args, *(keyword.value for keyword in node.keywords)]:
            name = getattr(given, "id", getattr(given, "attr", None))
            value = given.value if isinstance(given, ast.Constant) else named.get(name)
            if isinstance(value, str) and FUNCTION.fullmatch(value):
                yield f"{path}:{node.lineno}: {value}"


@pytest.mark.parametrize("folder", ["_utils/saltvirt", "_runners", "_engines", "_pillar"])
def test_what_a_host_is_asked_is_a_declared_call(folder):
    found = [
        line
        for path in sorted((paths.REPOSITORY / folder).rglob("*.py"))
        for line in hand_built(path)
    ]
    assert found == [], "see 'Add a call' in CONTRIBUTING.md"
