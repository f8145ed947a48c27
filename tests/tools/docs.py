"""Makes the references of execution module, states, engine and grain, the picture of the layers,
and the dashboard for Perses: ``make docs``."""

import ast
import inspect
import re
import sys
import textwrap

from tests.ha import tables
from tests.swarm import seen
from tests.tools import api, layers, perses

DOCS = api.REPOSITORY / "docs"
FOLDER = DOCS / "reference"
HEAD = """# The execution module

Every function of `virt` and `seed`, as `salt 'hyper*' virt.FUNCTION`. Made from the
docstrings in `_modules` by `make docs`: change it there.

All functions that ask libvirt take `connection`, `username` and `password`, which override
`virt:connection:uri`, `virt:connection:auth:username` and `virt:connection:auth:password` of
the configuration for one call. A failure is one line, and exit code 1.
"""
STATES = """# The states

Every state of `virt`, with all its parameters. Made from the docstrings in `_states` by
`make docs`: change it there. What they are for, and what they print:
[states.md](../how-to/states.md).

All but `virt.keys` take `connection`, `username` and `password`, which override
`virt:connection:uri`, `virt:connection:auth:username` and `virt:connection:auth:password` of
the configuration. An unknown parameter is an error that names the nearest known one.
"""
_FIELD = re.compile(r":(param|returns?|raises?|type|depends)\s*([^:]*):\s*(.*)")
_CONNECTION = {"connection", "username", "password"}
# the same of a function that takes them as they are given
_OVERRIDES = "``connection``, ``username`` and ``password`` override"


RUNNER = """# The runner

Every function of the runner `virt`, as `salt-run virt.FUNCTION` on the master. Made from the
docstrings in `_runners` by `make docs`: change it there. What they are for, and what they
print: [runner.md](../how-to/runner.md).

What they give back is under `data` for programs; a failure is one line, and exit code 1.
"""


def document(head, *sections):
    """The manual of all functions of some sections of the API, as Markdown."""
    parts, contents = [], []
    for path, functions in _by_file(sections).items():
        title, _, intro = _module_docstring(path).partition("\n")
        contents.append(f"- {title.rstrip('.')}: " + ", ".join(_link(f) for f in functions))
        parts.append(f"## {title.rstrip('.')}\n\n{markdown(intro)}")
        parts += [_function(function) for function in functions]
    return "\n".join([head, *contents, "", "\n\n".join(part.strip() for part in parts), ""])


def engine_and_grain():
    """The manual of what runs by itself, as Markdown."""
    parts = ["# The engines and the grain", "Made from the docstrings by `make docs`."]
    for title, path in (
        ("The engine libvirt_events", "_engines/libvirt_events.py"),
        ("The engine virt_exporter", "_engines/virt_exporter.py"),
        ("The engine virt_ha", "_engines/virt_ha.py"),
        ("The engine virt_reach", "_engines/virt_reach.py"),
        ("The grain virt_host", "_grains/virt_host.py"),
    ):
        parts += [f"## {title}", markdown(_module_docstring(path))]
    return "\n\n".join(parts) + "\n"


FACTS = """# Facts that travel

What hosts tell each other and the master, and what is written to files, as plain data: each is a
dataclass of the library, with these keys. Made from the classes by `make docs`: change it there.

The other side may be of another version: a key that is not known is passed over, one with a default
may be missing. What is there has its type, or the answer is refused, with the host and the key.
A `Mark` is a whole number of 64 bits that is compared and never counted with.
"""
# where they are, and who tells them
_FACTS = (
    ("placement/facts.py", "What `virt.inventory` answers"),
    ("placement/account.py", "What goes with a request to a host"),
    ("answers/guests.py", "What a host answers of all its guests"),
    ("answers/maintenance.py", "What a host answers of its maintenance"),
    ("answers/created.py", "What a host answers of a guest that it made or renamed"),
    ("answers/migration.py", "What a host answers of a migration"),
    ("answers/power.py", "What a host answers of a verb by a guest's name"),
    ("answers/snapshots.py", "What a host answers of a guest's snapshots"),
    ("answers/removal.py", "What a host answers of what it would remove"),
    ("fleet/authorization.py", "What is in the permission to hand in a guest's key"),
    ("operations/journal/intent_log.py", "What the master writes down while a guest is made"),
    ("host/storage/sharing.py", "What other hosts are asked about storage"),
    ("images/cache.py", "What is written down of an image in the cache"),
    ("migration/facts.py", "What a migration asks of the guest's host"),
    ("migration/journal.py", "What a migration writes down"),
    ("host/provision/disk_journal.py", "What is written down while disks are made"),
)


def facts():
    """The manual of what travels as a wire.Fact, as Markdown."""
    parts = [FACTS.strip()]
    for path, title in _FACTS:
        tree = ast.parse((layers.LIBRARY / path).read_text(encoding="utf-8"))
        parts.append(f"## {title}")
        for node in (n for n in tree.body if isinstance(n, ast.ClassDef) and n.bases):
            doc = " ".join((ast.get_docstring(node) or "").split())
            parts += [f"### {node.name}", _inline(doc), _keys(node)]
    return "\n\n".join(filter(None, parts)) + "\n"


def _keys(node):
    """The table of a Fact's fields."""
    fields = [n for n in node.body if isinstance(n, ast.AnnAssign)]
    named_by = [f.value.value for f in fields if f.target.id == "NAMED_BY"]
    fields = [f for f in fields if _is_key(f) and f.target.id not in named_by]
    above = [base.id for base in node.bases if base.id != "Fact"]
    rows = [f"| `{f.target.id}` | `{_of(f.annotation)}` | {_default(f.value)} |" for f in fields]
    more = [f"And the keys of {', '.join(above)}."] if above else []
    return "\n".join(
        ["| key | type | default |", "|---|---|---|", *rows, *(["", *more] if more else [])]
    )


def _is_key(field):
    called = field.value.func if isinstance(field.value, ast.Call) else None
    return "ClassVar" not in ast.unparse(field.annotation) and getattr(called, "id", "") != "untold"


def _of(annotation):
    return ast.unparse(annotation).replace("|", "or")


def _default(value):
    if value is None or ast.unparse(value) == "field()":
        return "must be there"
    if not isinstance(value, ast.Call):
        return f"`{ast.unparse(value)}`"
    if getattr(value.func, "id", "") == "seldom":
        return f"`{ast.unparse(value.args[0])}`, left out then"
    return "empty"


def pages():
    """{path: text} of every page that is made."""
    scale = DOCS / "explanation/scale.md"
    return {
        FOLDER / "execution-module.md": document(HEAD, "modules.virt", "modules.seed"),
        FOLDER / "states.md": document(STATES, "states.virt"),
        FOLDER / "runner.md": document(RUNNER, "runners.virt"),
        FOLDER / "engine-and-grain.md": engine_and_grain(),
        FOLDER / "facts.md": facts(),
        DOCS / "explanation/layers.svg": layers.picture(),
        perses.PERSES: perses.dashboard(),
        **{
            DOCS / name: tables.page((DOCS / name).read_text(encoding="utf-8"))
            for name in ("how-to/ha.md", "explanation/ha-design.md")
        },
        scale: seen.page(scale.read_text(encoding="utf-8")),
        DOCS / "explanation/scale.svg": seen.plot(),
    }


def _by_file(sections):
    found = {}
    for function in (function for section in sections for function in api.ours(section)):
        found.setdefault(function.path, []).append(function)
    return found


def _module(function):
    return "seed" if function.path.endswith("/seed.py") else "virt"


def _module_docstring(path):
    tree = ast.parse((api.REPOSITORY / path).read_text(encoding="utf-8"))
    return (ast.get_docstring(tree) or path).strip()


def _link(function):
    return f"[{function.name}](#{_module(function)}{function.name})"


def _function(function):
    name = f"{_module(function)}.{function.name}"
    call = f"{name}({', '.join(function.parameters)})"
    call = "\n".join(textwrap.wrap(call, 92, subsequent_indent="    "))
    return f"### {name}\n\n```python\n{call}\n```\n\n{markdown(function.docstring)}"


def markdown(text):
    """A docstring of reStructuredText as Markdown: fields, code blocks, literals."""
    lines, out = inspect.cleandoc(text).splitlines(), []
    while lines:
        line = lines.pop(0)
        field = _FIELD.match(line)
        if line.startswith(".. code-block::"):
            out += ["```" + line.split("::")[1].strip(), *_block(lines), "```"]
        elif field:
            more = [part.strip() for part in _block(lines, blank=False)]
            out += _field(*field.groups()[:2], " ".join([field.group(3), *more]), out)
        elif line.endswith("::"):
            out += [_inline(line[:-1]), "", "```", *_block(lines), "```"]
        else:
            out.append("**CLI example**" if line.startswith("CLI Example") else _inline(line))
    return re.sub(r"\n{3,}", "\n\n", "\n".join(out)).strip()


def _block(lines, blank=True):
    """Takes the indented lines that follow; blank: also with empty lines in them."""
    block = []
    while lines and (lines[0].startswith(" ") or (blank and not lines[0].strip())):
        block.append(lines.pop(0))
    while block and not block[-1].strip():
        lines.insert(0, block.pop())
    while block and not block[0].strip():
        block.pop(0)
    return textwrap.dedent("\n".join(block)).splitlines()


def _field(kind, name, text, before):
    """A field's lines; the first parameter gets a heading."""
    if kind == "param" and name not in _CONNECTION and not text.startswith(_OVERRIDES):
        head = [] if any(line.startswith("- **") for line in before) else ["**Parameters**", ""]
        return [*head, f"- **{name}**: {_inline(text)}"]
    if kind in ("return", "returns"):
        return ["", f"**Returns** {_inline(text)}"]
    if kind in ("raise", "raises"):
        return ["", f"**Raises** `{name}`: {_inline(text)}"]
    if kind == "depends":
        return [f"Needs {_inline(text)}."]
    return []


def _inline(text):
    text = re.sub(r":(?:py:)?(?:func|class|mod|meth):`~?([^`]+)`", r"`virt.\1`", text)
    text = re.sub(r"``(.+?)``", r"`\1`", text)
    return text.replace("virt.virt.", "virt.")


def main():
    """Writes the pages; with ``--check`` says whether they are as the docstrings are."""
    old = [p for p, text in pages().items() if not p.exists() or p.read_text("utf-8") != text]
    if "--check" in sys.argv[1:]:
        print("\n".join(f"{path} is old: make docs" for path in old) or "up to date")
        return 1 if old else 0
    FOLDER.mkdir(parents=True, exist_ok=True)
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
