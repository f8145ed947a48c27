"""The public API as the source has it, read without importing anything."""

import ast
import json
import re
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
SALT_3007 = REPOSITORY / "tests/data/salt-3007-api.json"
# sections of Salt's list and the files that must have their functions
FILES = {
    "modules.virt": "_modules/virt*.py",
    "modules.seed": "_modules/seed.py",
    "runners.virt": "_runners/virt*.py",
    "states.virt": "_states/virt*.py",
    "pillar.libvirt": "_pillar/libvirt.py",
    "pillar.virtkey": "_pillar/virtkey.py",
    "output.virt_query": "_output/virt_query.py",
    "engines.libvirt_events": "_engines/libvirt_events.py",
}


@dataclass(frozen=True)
class Function:
    """A public function: where it is, its parameters as Salt's list writes them, its manual."""

    name: str
    path: str
    parameters: tuple
    docstring: str


def salts(section):
    """{function: [parameter, …]} that Salt 3007 had."""
    return json.loads(SALT_3007.read_text(encoding="utf-8"))[section]


def ours(section):
    """Every Function of a section's files, in the order of the files."""
    found = []
    for path in sorted(REPOSITORY.glob(FILES[section])):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        aliases = _aliases(tree)
        for node in tree.body:
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                found.append(
                    Function(
                        aliases.get(node.name, node.name),
                        str(path.relative_to(REPOSITORY)),
                        tuple(_parameters(node.args)),
                        ast.get_docstring(node) or "",
                    )
                )
    return found


def _aliases(tree):
    """``__func_alias__``: names that Python or Salt would not let a function have."""
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else ()
        if any(isinstance(t, ast.Name) and t.id == "__func_alias__" for t in targets):
            return ast.literal_eval(node.value)
    return {}


def _parameters(args):
    """``name``, ``name=default``, ``*args``, ``**kwargs``."""
    plain = [*args.posonlyargs, *args.args]
    defaults = [None] * (len(plain) - len(args.defaults)) + list(args.defaults)
    yield from (_written(arg, default) for arg, default in zip(plain, defaults, strict=True))
    if args.vararg:
        yield f"*{args.vararg.arg}"
    for arg, default in zip(args.kwonlyargs, args.kw_defaults, strict=True):
        yield _written(arg, default)
    if args.kwarg:
        yield f"**{args.kwarg.arg}"


def _written(arg, default):
    return arg.arg if default is None else f"{arg.arg}={ast.unparse(default)}"


def mentions(folder, module="virt"):
    """{function: sorted names of the tests that call it} in the test files below a folder.

    A call is a text ``virt.function``, alone or in a command, or ``hv.call("function")``; a
    runner's (``salt-run``, ``lab.run``) is none of the execution module.
    """
    found = {}
    for path in sorted((REPOSITORY / folder).rglob("test_*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        helpers = {node.name for node in tree.body if _passes_on(node)}
        for node in tree.body:
            for function in {*_written_out(node, module), *_by_name(node, helpers)}:
                name = f"{path.stem}.{getattr(node, 'name', 'module')}"
                found.setdefault(function, set()).add(name)
    return {function: sorted(tests) for function, tests in sorted(found.items())}


def applied(folder):
    """{state: sorted names of the tests that apply it} in the tests of states below a folder."""
    found, states = {}, {function.name for function in ours("states.virt")}
    for path, node in _tests_of_states(folder):
        given = [*_texts_given(node), *(text.value for text in _listed(node))]
        for text in (*given, *_written_out(node, "virt")):
            if text in states:
                found.setdefault(text, set()).add(f"{path.stem}.{getattr(node, 'name', 'module')}")
    return {state: sorted(tests) for state, tests in found.items()}


def words_given(folder):
    """Every word that the tests of states give as a parameter's name."""
    found = set()
    for _, node in _tests_of_states(folder):
        for part in ast.walk(node):
            if isinstance(part, ast.keyword):
                found.add(part.arg)
            elif isinstance(part, ast.Constant) and isinstance(part.value, str):
                found.add(part.value.partition("=")[0])
    return found


def _tests_of_states(folder):
    paths = (REPOSITORY / folder).rglob("test_*.py")
    for path in sorted(p for p in paths if p.stem.startswith(("test_states", "test_keys"))):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        yield from ((path, node) for node in tree.body)


def _texts_given(node):
    """Texts that are handed to any function, as ``applied.changes("defined", …)``."""
    for call in ast.walk(node):
        for given in call.args if isinstance(call, ast.Call) else ():
            if isinstance(given, ast.Constant) and isinstance(given.value, str):
                yield given.value


def _written_out(node, module):
    """``virt.function`` in the texts of a test, but for those a runner is called with."""
    runners = {"run", "run_json"}
    runner = {id(text) for call in _calls(node, runners) for text in ast.walk(call)}
    for text in _texts(node):
        if id(text) not in runner and "salt-run" not in text.value:
            yield from re.findall(rf"\b{module}\.([a-z]\w*)", text.value)


def _by_name(node, helpers):
    """``hv.call("function")``, or of a variable that runs through a list of functions.

    helpers: functions of the same file that hand a function's name on to ``call``.
    """
    for call in _calls(node, {"call"}, helpers):
        for given in call.args:
            if isinstance(given, ast.Constant):
                yield str(given.value)
            elif isinstance(given, ast.Name | ast.JoinedStr):
                yield from (text.value for text in _listed(node))


def _passes_on(node):
    """Is it a function that calls ``x.call(name)`` with a parameter of its own?"""
    if not isinstance(node, ast.FunctionDef) or node.name.startswith("test_"):
        return False
    own = {arg.arg for arg in node.args.args}
    first = (call.args[0] for call in _calls(node, {"call"}) if call.args)
    return any(isinstance(given, ast.Name) and given.id in own for given in first)


def _calls(node, methods, functions=()):
    for call in ast.walk(node):
        if isinstance(call, ast.Call):
            name, known = call.func, functions
            if isinstance(name, ast.Attribute):
                name, known = name.attr, methods
            elif isinstance(name, ast.Name):
                name = name.id
            if name in known:
                yield call


def _listed(node):
    """Texts in the decorators and in what the loops of a test run through."""
    for decorator in getattr(node, "decorator_list", ()):
        yield from _texts(decorator)
    for loop in ast.walk(node):
        if isinstance(loop, ast.For):
            yield from _texts(loop.iter)


def _texts(node):
    for text in ast.walk(node):
        if isinstance(text, ast.Constant) and isinstance(text.value, str):
            yield text
