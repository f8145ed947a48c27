"""Generate parts of the manuals. ``make docs`` writes the committed ones: diagrams, tables of the
code, the dashboard for Perses. ``make site`` adds the references of :func:`references`, which are
not committed."""

import ast
import inspect
import re
import sys
import textwrap

from tests.swarm import seen
from tests.tools import api, diagrams, layers, perses

DOCS = api.REPOSITORY / "docs"
REFERENCE = "docs/reference"
HEAD = """# The execution module

Every function of `virt` and `seed` that you can call as `salt 'hyper*' virt.FUNCTION`, from the
docstrings in `_modules`.

All functions that connect to libvirt also accept `connection`, `username` and `password`, which
override `virt:connection:uri`, `virt:connection:auth:username` and
`virt:connection:auth:password` for one call. If a function fails, it prints one line, and the
exit code is 1.
"""
STATES = """# The states

Every state of `virt`, from the docstrings in `_states`. For their use see
[States](../how-to/states.md).

All states except `virt.keys` also accept `connection`, `username` and `password`, which override
`virt:connection:uri`, `virt:connection:auth:username` and `virt:connection:auth:password`. An
unknown parameter is an error that names the most similar one.
"""
RUNNER = """# The runner

Every function of the runner `virt`, called as `salt-run virt.FUNCTION` on the master, from the
docstrings in `_runners`. For their use see [Runner](../how-to/runner.md).

Programs find the result under `data`. If a function fails, it prints one line, and the exit code
is 1.
"""
# functions that only the master, a state or the formula calls
INTERNAL = {
    "answer", "answers", "firewall_made", "ha_kept", "remove_made",
    "running_names", "working",
}  # fmt: skip
_FIELD = re.compile(r":(param|returns?|raises?|type|depends)\s*([^:]*):\s*(.*)")
_CONNECTION = {"connection", "username", "password"}
# the same of a function that takes them as they are given
_OVERRIDES = "``connection``, ``username`` and ``password`` override"
_PAGE = re.compile(r"docs/(tutorial|how-to|explanation|reference)/([a-z0-9-]+)\.md")


def document(head, *sections, internal=frozenset()):
    """Return the reference of the functions of sections of the API, as Markdown."""
    parts = [head.strip()]
    for path, functions in _by_file(sections).items():
        shown = [one for one in functions if one.name not in internal]
        if shown:
            title, intro = _title(_module_docstring(path))
            parts += [
                f"## {_inline(title)}",
                markdown(intro),
                _contents(shown),
                *map(_function, shown),
            ]
    return "\n\n".join(filter(None, parts)) + "\n"


def engine_and_grain():
    """Return the reference of the engines and the grain, as Markdown."""
    parts = ["# The engines and the grain"]
    for kind in ("engine", "grain"):
        for path in sorted((api.REPOSITORY / f"_{kind}s").glob("*.py")):
            parts += [f"## The {kind} {path.stem}", markdown(_module_docstring(path))]
    return "\n\n".join(parts) + "\n"


MESSAGES = """# Messages

The data that hosts send each other and the master, and that Salt Virt writes to files. Each
message is a dataclass of the library with these keys.

The other side may run another version: unknown keys are ignored, and keys with a default may be
missing. A value of another type is refused, with the host and the key. A `Mark` is an integer of
64 bits that is only compared.
"""
_MESSAGES = (
    ("placement/facts.py", "Inventory of a host"),
    ("placement/account.py", "Requests of the master to a host"),
    ("answers/guests.py", "Answers about all guests of a host"),
    ("answers/maintenance.py", "Answers about maintenance"),
    ("answers/inspection.py", "Answers about networks, pools, images and addresses"),
    ("answers/created.py", "Answers about guests that were created or renamed"),
    ("answers/migration.py", "Answers about migrations"),
    ("answers/power.py", "Answers about power operations"),
    ("answers/snapshots.py", "Answers about snapshots"),
    ("answers/removal.py", "Answers about removal"),
    ("fleet/authorization.py", "Permission to submit a guest's key"),
    ("operations/journal/intent_log.py", "Records of guests that are being created"),
    ("host/storage/sharing.py", "Requests to other hosts about storage"),
    ("images/cache.py", "Records of cached images"),
    ("migration/facts.py", "Facts for a migration"),
    ("migration/journal.py", "Journal of a migration"),
    ("host/provision/disk_journal.py", "Journal of disks that are being created"),
)


def messages():
    """Return the reference of the messages, as Markdown."""
    parts = [MESSAGES.strip()]
    for path, title in _MESSAGES:
        tree = ast.parse((layers.LIBRARY / path).read_text(encoding="utf-8"))
        parts.append(f"## {title}")
        for node in (n for n in tree.body if isinstance(n, ast.ClassDef) and n.bases):
            doc = " ".join((ast.get_docstring(node) or "").split())
            parts += [f"### {node.name}", _inline(doc), _keys(node)]
    return "\n\n".join(filter(None, parts)) + "\n"


def _keys(node):
    """The table of a message's fields."""
    fields = [n for n in node.body if isinstance(n, ast.AnnAssign)]
    named_by = [f.value.value for f in fields if f.target.id == "NAMED_BY"]
    fields = [f for f in fields if _is_key(f) and f.target.id not in named_by]
    above = [base.id for base in node.bases if base.id != "Message"]
    rows = [
        f"| `{f.target.id}` | `{_annotation(f.annotation)}` | {_default(f.value)} |" for f in fields
    ]
    more = [f"And the keys of {', '.join(above)}."] if above else []
    return "\n".join(
        ["| key | type | default |", "|---|---|---|", *rows, *(["", *more] if more else [])]
    )


def _is_key(field):
    called = field.value.func if isinstance(field.value, ast.Call) else None
    return (
        "ClassVar" not in ast.unparse(field.annotation) and getattr(called, "id", "") != "transient"
    )


def _annotation(annotation):
    return ast.unparse(annotation).replace("|", "or")


def _default(value):
    if value is None or ast.unparse(value) == "field()":
        return "required"
    if not isinstance(value, ast.Call):
        return f"`{ast.unparse(value)}`"
    if getattr(value.func, "id", "") == "optional":
        return f"`{ast.unparse(value.args[0])}`, then omitted"
    return "empty"


def references():
    """Return {path in the repository: text} of the references that the site has in addition."""
    return {
        f"{REFERENCE}/execution-module.md": document(
            HEAD, "modules.virt", "modules.seed", internal=INTERNAL
        ),
        f"{REFERENCE}/states.md": document(STATES, "states.virt"),
        f"{REFERENCE}/runner.md": document(RUNNER, "runners.virt"),
        f"{REFERENCE}/engine-and-grain.md": engine_and_grain(),
        f"{REFERENCE}/messages.md": messages(),
    }


def pages():
    """Return {path: text} of every generated file that is committed."""
    limits = DOCS / "explanation/limits.md"
    return {
        **{DOCS / "diagrams" / name: text for name, text in diagrams.pictures().items()},
        DOCS / "explanation/layers.svg": layers.picture(),
        **_of_features(),
        limits: seen.page(limits.read_text(encoding="utf-8")),
        DOCS / "explanation/scale.svg": seen.plot(),
    }


def _of_features():
    """Return {path: text} of the generated files of features, which can be missing."""
    texts = {perses.PERSES: perses.dashboard()} if perses.PERSES.exists() else {}
    pages = [DOCS / name for name in ("how-to/ha.md", "explanation/ha-design.md")]
    if all(page.exists() for page in pages):
        from tests.ha import tables

        texts |= {page: tables.page(page.read_text(encoding="utf-8")) for page in pages}
    return texts


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


def _title(docstring):
    """Return the title of a file's section, and the rest of its docstring."""
    summary, _, rest = docstring.partition("\n\n")
    title, end, more = re.match(r"(.*?)(\.(?= |$)|: |$)(.*)", " ".join(summary.split())).groups()
    more = more.strip()
    if end == ": " and more:
        more = f"See {more}" if _PAGE.match(more) else more[0].upper() + more[1:]
    return title, "\n\n".join(filter(None, (more, rest)))


def _contents(functions):
    """Return the table of a section's functions, with the first sentence of each."""
    rows = []
    for one in functions:
        summary = " ".join(one.docstring.partition("\n\n")[0].split())
        sentence = re.split(r"(?<=\.) ", summary)[0]
        anchor = f"{_module(one)}{one.name}"
        rows.append(f"| [{one.name}](#{anchor}) | {_cell(sentence)} |")
    return "\n".join(["| function | purpose |", "|---|---|", *rows])


def _function(function):
    name = f"{_module(function)}.{function.name}"
    call = f"{name}({', '.join(function.parameters)})"
    call = "\n".join(textwrap.wrap(call, 92, subsequent_indent="    "))
    defaults = dict(one.partition("=")[::2] for one in function.parameters)
    text = markdown(function.docstring, defaults)
    return f"### {name}\n\n```python\n{call}\n```\n\n{text}"


def markdown(text, defaults=None):
    """Convert a docstring of reStructuredText to Markdown: fields, code blocks, literals.

    Parameters become a table with the defaults of {parameter: default}.
    """
    lines, out = inspect.cleandoc(text).splitlines(), []
    while lines:
        line = lines.pop(0)
        field = _FIELD.match(line)
        if line.startswith(".. code-block::"):
            out += ["```" + line.split("::")[1].strip(), *_block(lines), "```"]
        elif field and field[1] in ("param", "type", "depends"):
            more = [part.strip() for part in _block(lines, blank=False)]
            out += _field(field[1], field[2], " ".join([field[3], *more]), defaults or {}, out)
        elif field:
            out += _outcome(field[1], field[2], field[3], _block(lines))
        elif line.endswith("::"):
            out += [_inline(line[:-1]), "", "```", *(_block(lines) or _paragraph(lines)), "```"]
        else:
            out.append("**CLI example**" if line.startswith("CLI Example") else _inline(line))
    return re.sub(r"\n{3,}", "\n\n", "\n".join(out)).strip()


def _block(lines, blank=True):
    """Take the indented lines that follow; blank: also with empty lines between them."""
    block = []
    while lines and (lines[0].startswith(" ") or (blank and not lines[0].strip())):
        block.append(lines.pop(0))
    while block and not block[-1].strip():
        lines.insert(0, block.pop())
    while block and not block[0].strip():
        block.pop(0)
    return textwrap.dedent("\n".join(block)).splitlines()


def _paragraph(lines):
    """Take the lines up to an empty one, after the empty ones that are first."""
    while lines and not lines[0].strip():
        lines.pop(0)
    taken = []
    while lines and lines[0].strip():
        taken.append(lines.pop(0))
    return taken


_COLUMNS = ["| parameter | default | meaning |", "|---|---|---|"]


def _field(kind, name, text, defaults, before):
    """Return the lines of a parameter, after the head of the table for the first one."""
    if kind == "depends":
        return [f"Requires {_inline(text)}."]
    if kind == "type" or name in _CONNECTION or text.startswith(_OVERRIDES):
        return []
    default = defaults.get(name, "")
    head = [] if before and before[-1].startswith("| ") else ["", *_COLUMNS]
    return [*head, f"| `{name}` | {f'`{default}`' if default else ''} | {_cell(text)} |"]


def _outcome(kind, name, first, more):
    """Return the lines of what a function returns or raises."""
    text = markdown("\n".join([first, *more]))
    if kind.startswith("return"):
        return ["", f"**Returns** {text}"]
    return ["", f"**Raises** `{name}`: {text}"]


def _cell(text):
    """Return a text for a cell of a table."""
    return _inline(text).replace("|", "\\|")


def _inline(text):
    text = re.sub(r":(?:py:)?(?:func|class|mod|meth):`~?([^`]+)`", r"`virt.\1`", text)
    text = re.sub(r"``(.+?)``", r"`\1`", text)
    text = _PAGE.sub(r"[\2](../\1/\2.md)", text)
    return text.replace("virt.virt.", "virt.")


def main():
    """Write the committed pages; with ``--check`` only report whether they are up to date."""
    old = [p for p, text in pages().items() if not p.exists() or p.read_text("utf-8") != text]
    if "--check" in sys.argv[1:]:
        print("\n".join(f"{path} is old: make docs" for path in old) or "up to date")
        return 1 if old else 0
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
