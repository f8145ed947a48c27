"""Do the tests notice when what decides is changed? `make mutation`, or ARGS="MODULE... [TEST...]".

Each mutant is one change to a function of a module: a comparison turned, a condition negated, a
statement left out, a number one more. The tests that run its line are run on it, in a process of
its own with an end; a mutant that all of them pass lives. In GUARDED none may live but those of
mutants.txt, which says in one line each why such a change changes nothing.

To write the test that a living mutant wants, look at one function with one file of tests, which
takes seconds: ARGS="host.domain.purge:plan tests/functional/host/domain/test_purge_plan.py".
"""

import ast
import functools
import importlib
import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.lab import process
from tests.lab.paths import REPOSITORY
from tests.tools import sealed

EQUIVALENT = Path(__file__).with_name("mutants.txt")
ROOT = REPOSITORY / "_utils"
UNIT = "tests/unit"
# what decides on deletion, on trust, or which host runs a guest → the tests beside the unit tests
DELETION = {
    "backup.manager.replaced_guest": (),
    "backup.manager.overdue": (),
    "backup.manager.target_upkeep": (),
    "backup.target.prune": ("test_backup_keep", "test_backup_stood_on"),
    "backup.target.pins": ("test_backup_stood_on", "test_stands"),
    "backup.target.target": (
        "test_backup_keep",
        "test_backup_sealed",
        "test_backup_stood_on",
        "test_backup_target",
    ),
    "backup.model.pins": (),
    "backup.model.age": (),
    "backup.model.backup_ids": (),
    "backup.model.verification": (),
    "backup.model.checksum_blocks": (),
    "backup.model.record": (),
    "backup.model.retention": (),
    "backup.model.catalog": (),
    "backup.model.chains": (),
    "backup.export.replaced_guest": ("test_aside",),
    "host.domain.purge": ("test_purge_plan", "test_shared", "test_still_needed"),
    "host.domain.removal": ("test_removal", "test_still_needed"),
    "host.migration.backing_images": ("test_migrate_images",),
    "host.migration.departures": ("test_moved", "test_recovery"),
    "host.migration.shared_folders": ("test_migrate_facts", "test_migrate_shared"),
    "host.migration.confirm": ("test_confirm", "test_migrate_ends"),
    "host.migration.move_journal": ("test_migrate_faults", "test_migrate_journal", "test_recovery"),
    "host.migration.offline": ("test_migrate_cold", "test_migrate_ends"),
    "host.migration.recovery": ("test_leavings", "test_migrate_ends", "test_recovery"),
    "host.migration.reservations": ("test_migrate_faults", "test_reservations"),
    "host.migration.target_leftovers": ("test_leavings",),
    "host.migration.unreachable_target": ("test_unreachable_target",),
    "host.provision.disk_journal": ("test_making",),
    "host.provision.undo_disks": ("test_undo_disks",),
    "host.snapshot.affected_files": ("test_needs", "test_snapshots_shared", "test_still_needed"),
    "host.storage.chains": ("test_usage",),
    "host.storage.deletion": ("test_foreign", "test_purge_plan", "test_still_needed"),
    "host.storage.foreign_guests": ("test_foreign",),
    "host.storage.identity": (),
    "host.storage.image_users": ("test_cache", "test_still_needed"),
    "system.file_probe": (),
    "system.message_file": ("test_migrate_journal",),
    "system.mounts": (),
    "host.storage.references": ("test_still_needed",),
    "host.storage.secret": ("test_pool_secrets",),
    "host.storage.sharing": ("test_shared",),
    "host.storage.unchanged_disks": ("test_guest_lock", "test_still_needed"),
    "host.storage.usage": (
        *("test_dead_storage", "test_foreign", "test_shared", "test_still_needed", "test_usage"),
        "test_usage_rules",
    ),
    "images.cache": ("test_cache", "test_cache_fetch", "test_download", "test_images"),
    "operations.move.target_leftovers": ("test_leavings",),
    "operations.guest.purge": (),
    "operations.repair": ("test_repair_keys",),
    "operations.core.report": (),
    "operations.guest.snapshots": ("test_snapshots", "test_snapshots_shared"),
    "operations.create.interrupted_create": ("test_unended_keys",),
}
TRUST = {
    "fleet.answer": (),
    "fleet.authorization": ("test_keys",),
    "fleet.keys": ("test_keys", "test_trust"),
    "fleet.proof": (),
    "fleet.shape": (),
    "fleet.target": (),
    "names": (),
    "operations.access.access_check": (),
    "operations.access.owners": (),
    "operations.cluster.shared_storage_check": ("test_trust",),
    "pki.authority.authorize": (),
    "pki.authority.ca": (),
    "pki.authority.crl": (),
    "pki.authority.issue": ("test_pki_life",),
    "pki.authority.naming": (),
    "pki.authority.policy": (),
    "pki.authority.request_rules": (),
    "pki.authority.responder": (),
    "pki.authority.rotation": (),
    "pki.authority.store": (),
    "pki.common.certs": ("test_peer_network",),
    "pki.common.files": (),
    "fleet.seal": (),
    "pki.host.validity": ("test_pki_life",),
    "rights.grants": (),
}
WHICH_HOST = {
    "ha.model.*": ("test_ha_scenarios",),
    "ha.agent.fencing": ("test_agent_service",),
    "ha.fencing.agents": (),
    "ha.fencing.setting": (),
    "ha.manager.fencer": (),
    "ha.manager.fencing": (),
    "ha.manager.leases": (),
    "ha.manager.remote_fences": (),
    "host.domain.power": ("test_power",),
    "host.node.detect": (),
    "host.provision.admission": ("test_admission", "test_locks"),
    "migration.*": (),
    "operations.cluster.start_safety": (),
    "operations.journal.evacuated": (),
    "operations.create.deploy": (),
    "operations.move.evacuate": (),
    "operations.cluster.find": (),
    "system.file_lock": (),
    "operations.create.identity": ("test_identity",),
    "operations.create.init": (),
    "operations.create.init_list": (),
    "operations.create.batched_jobs": (),
    "operations.guest.lifecycle": (),
    "operations.move.rebalance": (),
    "operations.journal.lock": (),
    "operations.move.migrate": (),
    "operations.journal.location_cache": (),
    "operations.move.moves": (),
    "operations.create.cluster_snapshot": (),
    "operations.move.recover": (),
    "operations.create.batch_lookup": (),
    "operations.create.batch_queue": (),
    "operations.cluster.unique": (),
    "placement.*": (),
}
GUARDED = {**DELETION, **TRUST, **WHICH_HOST}
# and three times what its tests took before: a slow machine is no test
MOST_S = 10
# they hold the lab and the layers, and decide nothing of these
NOT_THESE = ("test_lab.py", "test_floors.py", "test_waits.py")
TURNED = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE,
    ast.GtE: ast.Gt, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
SWAPPED = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.BitOr: ast.BitAnd,
    ast.FloorDiv: ast.Mult, ast.Div: ast.Mult, ast.BitAnd: ast.BitOr,
}  # fmt: skip
# nobody looks at them when the program runs
ANNOTATIONS = ("annotation", "returns")
NAMES = {"any": "all", "all": "any", "min": "max", "max": "min"}


def changes(node):  # noqa: PLR0912 - a table
    """(what, a function that changes a copy of the node in place) for each change of one node."""
    kind = type(node)
    if kind is ast.Compare:
        for place, op in enumerate(node.ops):
            turned = TURNED[type(op)]
            yield (f"{type(op).__name__} → {turned.__name__}",
                   lambda n, p=place, t=turned: n.ops.__setitem__(p, t()))  # fmt: skip
    elif kind is ast.BoolOp:
        other = ast.Or if type(node.op) is ast.And else ast.And
        yield f"→ {other.__name__}", lambda n, o=other: setattr(n, "op", o())
        for place in range(len(node.values)):
            yield f"operand {place + 1} left out", lambda n, p=place: _leave_out(n, p)
    elif kind is ast.BinOp and type(node.op) in SWAPPED and not _is_text(node):
        other = SWAPPED[type(node.op)]
        yield f"→ {other.__name__}", lambda n, o=other: setattr(n, "op", o())
    elif kind is ast.UnaryOp and type(node.op) is ast.Not:
        yield "not left out", lambda n: setattr(n, "operand", ast.UnaryOp(ast.Not(), n.operand))
    elif kind is ast.Constant and isinstance(node.value, bool):
        yield f"→ {not node.value}", lambda n: setattr(n, "value", not n.value)
    elif kind is ast.Constant and isinstance(node.value, int):
        yield f"{node.value} → {node.value + 1}", lambda n: setattr(n, "value", n.value + 1)
    elif kind in (ast.If, ast.IfExp, ast.While):
        for value in (True, False):
            if not (kind is ast.While and value):
                yield (f"condition → {value}",
                       lambda n, v=value: setattr(n, "test", ast.Constant(v)))  # fmt: skip
    elif kind is ast.comprehension:
        for place in range(len(node.ifs)):
            yield "filter left out", lambda n, p=place: n.ifs.pop(p)
    elif kind is ast.Call and isinstance(node.func, ast.Name) and node.func.id in NAMES:
        other = NAMES[node.func.id]
        yield f"→ {other}", lambda n, o=other: setattr(n.func, "id", o)
    elif kind is ast.Return and node.value is not None and not _is_none(node.value):
        yield "return → None", lambda n: setattr(n, "value", ast.Constant(None))


def _leave_out(node, place):
    """The and, or without one of its operands. One alone is none for Python: what changes nothing
    goes before it."""
    node.values.pop(place)
    if len(node.values) == 1:
        node.values.insert(0, ast.Constant(isinstance(node.op, ast.And)))


def _is_none(node):
    return isinstance(node, ast.Constant) and node.value is None


def _is_text(node):
    return any(isinstance(side, ast.JoinedStr) or
               (isinstance(side, ast.Constant) and isinstance(side.value, str))
               for side in (node.left, node.right))  # fmt: skip


def left_out(statement):
    """Is a statement one that can be left out by itself?"""
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, (ast.Call, ast.Yield))
    return isinstance(statement, (ast.Raise, ast.Continue, ast.Break, ast.AugAssign, ast.Delete))


class Mutant:
    """One change to one function: its name, line, what is changed, and what changes its tree."""

    def __init__(self, module, function, line, text, apply):
        self.module, self.function, self.line = module, function, line
        self.text, self.apply = text, apply

    def __str__(self):
        line = lines_of(self.module)[self.line - 1].strip()
        return f"{self.module} | {self.function} | {line} | {self.text}"

    def code(self):
        """The compiled code of the changed function."""
        tree = ast.parse(source(self.module))
        self.apply(tree)
        return code_of(tree, self.function, str(path_of(self.module)))


@functools.cache
def source(module):
    """The text of a module, as it was when it was first read."""
    return path_of(module).read_text(encoding="utf-8")


def lines_of(module):
    return source(module).splitlines()


def path_of(module):
    return ROOT / "saltvirt" / f"{module.replace('.', '/')}.py"


def mutants(module):
    """All mutants of a module's functions."""
    tree = ast.parse(source(module))
    for name, function in functions(tree):
        nodes = list(inside(function))
        for place, node in enumerate(nodes):
            for text, change in changes(node):
                yield Mutant(module, name, _line(node, nodes), text,
                             lambda t, n=name, p=place, c=change: c(_at(t, n, p)))  # fmt: skip
            for field in ("body", "orelse", "finalbody"):
                if isinstance(node, (ast.IfExp, ast.Lambda)):
                    continue
                for index, statement in enumerate(getattr(node, field, None) or []):
                    if isinstance(statement, ast.stmt) and left_out(statement):
                        yield Mutant(module, name, statement.lineno, "statement left out",
                                     lambda t, n=name, p=place, f=field, i=index:
                                     _pass(getattr(_at(t, n, p), f), i))  # fmt: skip


def _pass(block, index):
    block[index] = ast.copy_location(ast.Pass(), block[index])


def _line(node, nodes):
    """Where all tests come by that run it: of an IfExp over some lines each line is one case's."""
    if isinstance(node, ast.IfExp):
        return node.test.lineno
    if hasattr(node, "lineno"):
        return node.lineno
    return next(n.target.lineno for n in nodes if n is node)


def functions(tree, prefix=""):
    """(qualified name, node) of the functions of a module and of its classes."""
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield prefix + node.name, node
        elif isinstance(node, ast.ClassDef):
            yield from functions(node, f"{prefix}{node.name}.")


def inside(function):
    """The nodes of a function's body, in the order of the source; the function itself first."""
    yield function
    for statement in function.body:
        todo = [statement]
        while todo:
            node = todo.pop(0)
            yield node
            fields = (found for name, found in ast.iter_fields(node) if name not in ANNOTATIONS)
            parts = (found if isinstance(found, list) else [found] for found in fields)
            todo += (part for some in parts for part in some if isinstance(part, ast.AST))


def _at(tree, name, place):
    function = dict(functions(tree))[name]
    return list(inside(function))[place]


def span(module, name):
    """The first and the last line of a function of a module."""
    found = dict(functions(ast.parse(source(module))))[name]
    return found.lineno, found.end_lineno


def code_of(tree, name, filename):
    """The compiled code of a function of a tree."""
    code = compile(ast.fix_missing_locations(tree), filename, "exec")
    for part in name.split("."):
        code = [c for c in code.co_consts if hasattr(c, "co_name") and c.co_name == part][-1]
    return code


def live(module, name):
    """The function object in the loaded module, whatever it is wrapped in."""
    found = importlib.import_module(f"saltvirt.{module}")
    for part in name.split("."):
        found = vars(found)[part]
    while not hasattr(found, "__code__") or hasattr(found, "__wrapped__"):
        for field in ("__wrapped__", "fget", "__func__", "func"):
            if getattr(found, field, None) is not None:
                found = getattr(found, field)
                break
        else:
            return None
    return found


class Runner:
    """The plugin that first sees which test runs which line, then runs each mutant's tests."""

    def __init__(self, modules, only=()):
        self.modules, self.only = modules, only
        self.paths = {str(path_of(module)): module for module in modules}
        for module in modules:
            source(module)
        self.seen = {}
        self.took = {}
        self.results = {}
        self.endless = 0
        self.reach = set()
        self.failed = set()
        self.reasons = reasons()
        self.quiet = os.open(os.devnull, os.O_WRONLY)

    def pytest_runtestloop(self, session):
        """In place of one run: one that looks, and one a mutant."""
        items, wrong = list(session.items), set()
        for item in items:
            self.look(item)
            if item.nodeid in self.failed:  # by the machine's load, perhaps
                self.failed.clear()
                self.look(item)
                wrong |= self.failed
        self.failed = wrong
        items = [item for item in items if item.nodeid in self.reach]
        most_s = 600 + 3 * sum(self.took.values())
        if all(self.in_a_child(lambda: self.run(items), most_s) for _ in range(2)):
            self.failed.add("one of them, run again")
        if self.failed:
            raise pytest.UsageError(f"tests fail without any mutant: {sorted(self.failed)[:5]}")
        by_id = {item.nodeid: item for item in items}
        for module in self.modules:
            began = time.monotonic()
            count, alive, self.endless = 0, [], 0
            for mutant in mutants(module):
                if self.only and mutant.function not in self.only:
                    continue
                count += 1
                ids = self.seen.get((module, mutant.line)) or self.around(mutant)
                order = sorted(ids, key=self.took.get)
                if not self.killed(mutant, [by_id[name] for name in order]):
                    alive.append(mutant)
                    if str(mutant) not in self.reasons:
                        print(f"lives: {mutant} (line {mutant.line})", flush=True)
            self.results[module] = (count, alive)
            excused = sum(str(mutant) in self.reasons for mutant in alive)
            took_s = time.monotonic() - began
            print(f"{module}: {count} mutants, {count - len(alive)} die, {excused} excused, "
                  f"{len(alive) - excused} live, {self.endless} did not end, {took_s:.0f} s",
                  flush=True)  # fmt: skip
        return True

    def look(self, item):
        """Run a test and keep which lines of the modules it runs."""
        lines, new = set(), {}

        def trace(frame, event, _):
            code = frame.f_code
            module = self.paths.get(code.co_filename)
            if module is None:
                return None
            if code not in new:
                new[code] = {line for _, _, line in code.co_lines() if line}
            if not new[code]:
                return None  # a long test runs the same lines very often

            def line(frame, event, _):
                if event == "line":
                    lines.add((module, frame.f_lineno))
                    new[code].discard(frame.f_lineno)
                return line

            lines.add((module, frame.f_lineno))
            new[code].discard(frame.f_lineno)
            return line

        began = time.monotonic()
        threading.settrace(trace)
        sys.settrace(trace)
        try:
            self.run([item])
        finally:
            sys.settrace(None)
            threading.settrace(None)
        self.took[item.nodeid] = time.monotonic() - began
        for where in lines:
            self.seen.setdefault(where, set()).add(item.nodeid)
        if lines:
            self.reach.add(item.nodeid)

    def run(self, items):
        """Run tests; True when one failed."""
        from _pytest.runner import runtestprotocol

        for place, item in enumerate(items):
            after = items[place + 1] if place + 1 < len(items) else None
            reports = runtestprotocol(item, nextitem=after, log=False)
            if any(report.failed for report in reports):
                self.failed.add(item.nodeid)
                return True
        return False

    def around(self, mutant):
        """The tests that run the mutant's function: of a part that Python gives no line."""
        first, last = span(mutant.module, mutant.function)
        found = [self.seen.get((mutant.module, line), set()) for line in range(first, last + 1)]
        return set().union(*found)

    def killed(self, mutant, items):
        """Does a test fail, or not end, on the mutant?"""
        function = live(mutant.module, mutant.function)
        if not items or function is None:
            return False

        code = mutant.code()  # one that Python does not compile is none, and proves nothing

        def changed():
            function.__code__ = code
            return self.run(items)

        return self.in_a_child(changed, MOST_S + 3 * sum(self.took[item.nodeid] for item in items))

    def in_a_child(self, work, most_s):
        """Does the work say yes, break, or not end, in a process of its own?"""
        child = os.fork()
        if not child:
            code = 1
            try:
                process.die_with_parent()
                os.dup2(self.quiet, 1)
                os.dup2(self.quiet, 2)
                signal.signal(signal.SIGALRM, signal.SIG_DFL)
                signal.alarm(int(most_s))
                code = 1 if work() else 0
            finally:
                os._exit(code)
        status = os.waitpid(child, 0)[1]
        self.endless += os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGALRM
        return status != 0


def chosen(words):
    """The modules that are asked for → their tests beside the unit tests: of the guarded ones those
    that have one of the words in their names, and each other module by its whole name."""
    known = {}
    for name, tests in GUARDED.items():
        if name.endswith(".*"):
            folder = ROOT / "saltvirt" / name[:-2].replace(".", "/")
            for path in sorted(folder.rglob("*.py")):
                parts = path.relative_to(folder).with_suffix("").parts
                if parts[-1] != "__init__":
                    known[".".join((name[:-2], *parts))] = tests
        else:
            known[name] = tests
    if not words:
        return known
    found = {name: tests for name, tests in known.items() if any(word in name for word in words)}
    found.update({word: () for word in words if word not in known and path_of(word).exists()})
    nothing = [word for word in words if not any(word in name for name in found)]
    if nothing:
        raise SystemExit(f"mutation: no such module: {', '.join(nothing)} (host.storage.usage is "
                         "_utils/saltvirt/host/storage/usage.py)")  # fmt: skip
    return found


def imported(path):
    """The modules of saltvirt that a file imports, without the first part."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("saltvirt"):
            package = node.module.partition(".")[2]
            found.add(package)
            found.update(f"{package}.{name.name}".lstrip(".") for name in node.names)
        elif isinstance(node, ast.Import):
            found.update(name.name.partition(".")[2] for name in node.names)
    return found


def touching(modules):
    """The files of unit tests that import one of the modules, or what leads to one."""
    package = ROOT / "saltvirt"
    imports = {}
    for path in package.rglob("*.py"):
        parts = path.relative_to(package).with_suffix("").parts
        imports[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = imported(path)
    del imports[""]  # of the whole nothing follows
    around, before = set(modules), set()
    while around != before:
        before = set(around)
        around |= {name for name, found in imports.items() if around & found}
    for path in sorted((REPOSITORY / UNIT).rglob("test_*.py")):
        if path.name not in NOT_THESE and around & imported(path):
            yield path


def main(words):
    """Run; the exit code. words: parts of modules' names, each with ":" and the name of a function
    where that alone is meant; and tests, where not all shall run."""
    named = [word for word in words if word.startswith("tests/")]
    asked = [word.partition(":") for word in words if word not in named]
    modules = chosen([module for module, _, _ in asked])
    unknown = [name for name in modules if not path_of(name).exists()]
    if unknown:
        raise SystemExit(f"mutation: no such module: {', '.join(unknown)}")
    only = {function for _, _, function in asked if function}
    trees = [ast.parse(source(module)) for module in modules]
    missing = only - {name for tree in trees for name, _ in functions(tree)}
    if missing:
        raise SystemExit(f"mutation: no such function: {', '.join(sorted(missing))}")
    functional = REPOSITORY / "tests/functional"
    files = {path.stem: str(path) for path in functional.rglob("test_*.py")}
    more = {files[name] for tests in modules.values() for name in tests}
    more = named or more.union(map(str, touching(modules)))
    sys.path.insert(0, str(ROOT))
    runner = Runner(modules, only)
    os.chdir(REPOSITORY)
    arguments = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", *sorted(more)]
    code = pytest.main(arguments, plugins=[runner])
    if not runner.results:
        return int(code) or 1
    return report(runner.results, whole=not runner.only)


def reasons():
    """The mutants that may live → why."""
    lines = EQUIVALENT.read_text(encoding="utf-8").splitlines() if EQUIVALENT.exists() else []
    return dict(line.rsplit(" | ", 1) for line in lines if line and not line.startswith("#"))


def report(results, whole=True):
    """Print the sum; 1 when one lives that may not, or a line of mutants.txt names none. whole:
    all functions were changed."""
    excused, bad, used = reasons(), 0, set()
    for _, alive in results.values():
        for mutant in map(str, alive):
            used.add(mutant)
            bad += mutant not in excused
    stale = [text for text in excused if whole
             and text.split(" | ", 1)[0] in results and text not in used]  # fmt: skip
    for text in stale:
        print(f"dies, or is gone: {text}: take its line out of {EQUIVALENT.name}")
    total = sum(count for count, _ in results.values())
    alive = sum(len(some) for _, some in results.values())
    print(f"{total} mutants in {len(results)} modules: {alive} live, {bad} of them may not")
    return 1 if bad or stale else 0


if __name__ == "__main__":
    sealed.enter("tests.tools.mutation", sys.argv[1:])
    sys.exit(main(sys.argv[1:]))
