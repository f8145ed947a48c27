"""The layers of the library: which packages are in each, who may import whom, and their picture.

``tests/unit/tree/test_layers.py`` holds the rule; ``make docs`` draws ``layers.svg`` from the code.
"""

import ast
import functools
from html import escape

from tests.tools import api

LIBRARY = api.REPOSITORY / "_utils/saltvirt"
PURE, SHARED, HOST, CLOUD = "pure", "shared", "host", "cloud"
LAYER = {
    "errors": PURE, "sanitize": PURE, "units": PURE, "names": PURE,
    "settings": PURE, "spec": PURE, "xml": PURE, "design": PURE, "diff": PURE, "placement": PURE,
    "migration": PURE, "rights": PURE, "answers": PURE, "revert": PURE, "snapshot": PURE,
    "states": PURE, "schema": PURE, "features": PURE,
    "system": SHARED,
    "host": HOST, "hostnet": HOST, "images": HOST, "seed": HOST,
    "fleet": CLOUD, "operations": CLOUD, "pki": CLOUD,
}  # fmt: skip
# modules of this name answer a host's calls: adapters, which import what they need of all layers
HANDLERS = "handlers.py"
# a feature is a directory with its layers inside, and can be missing
FEATURES = {
    "ha": {
        "ha.model": PURE, "ha.fencing": SHARED, "ha.transport": SHARED, "ha.agent": HOST,
        "ha.manager": CLOUD,
    },
    "backup": {
        "backup.model": PURE, "backup.export": HOST, "backup.target": HOST,
        "backup.manager": CLOUD,
    },
    "metrics": {
        "metrics.model": PURE, "metrics.exporter": SHARED, "metrics.host": HOST,
        "metrics.master": CLOUD,
    },
    "console": {
        "console.calls": SHARED, "console.guestagent": PURE, "console.protocol": SHARED,
        "console.host": HOST, "console.master": CLOUD, "web": CLOUD,
    },
}  # fmt: skip
for _feature, _layers in FEATURES.items():
    LAYER |= _layers if (LIBRARY / _feature).is_dir() else {}
MAY_IMPORT = {
    PURE: {PURE}, SHARED: {PURE, SHARED}, HOST: {PURE, SHARED, HOST}, CLOUD: {PURE, SHARED, CLOUD},
}  # fmt: skip
FOREIGN = {
    PURE: set(), SHARED: {"prometheus_client"}, HOST: {"libvirt", "libvirt_qemu", "nbd"},
    CLOUD: {"salt", "cryptography", "tornado"},
}  # fmt: skip
ADAPTERS = ("_modules", "_states", "_grains", "_engines", "_runners", "_pillar")

_SAYS = {
    PURE: ("pure", "facts in, decision out: no clock, files, libvirt, Salt"),
    SHARED: ("shared", "both talk by it; neither libvirt nor Salt"),
    HOST: ("host", "libvirt and the tools of the distribution; never Salt"),
    CLOUD: ("cloud", "Salt and cryptography; never libvirt"),
}
_COLOUR = {PURE: "#2e7d5b", SHARED: "#6b4fa0", HOST: "#2f6db5", CLOUD: "#9a5b13", None: "#5b5f66"}
_WIDTH, _PAD, _ROW, _LETTER = 960, 16, 30, 7.6


def package(path):
    """Return the key of LAYER of a file: a package, or a package within a feature."""
    return key(module(path).partition(".")[2])


def key(name):
    """Return the key of LAYER of a module, by its name below ``saltvirt``."""
    parts = name.removesuffix(".__init__").split(".")
    return ".".join(parts[:2]) if parts[0] in FEATURES else parts[0]


def part(name):
    """Return the package of a module for which cycles are excluded: its key in LAYER, and within
    ``operations`` the package below it."""
    parts = name.split(".")[1:]
    return ".".join(parts[:2]) if parts[:1] == ["operations"] else key(".".join(parts))


@functools.cache
def parsed(path):
    """Return the statements of a file that import, and all names that it uses."""
    statements, names = [], set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Name):
            names.add(node.id)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            statements.append(node)
    return statements, names


def imports(path):
    """Every name that a file imports, ``saltvirt.host`` for ``from saltvirt import host``."""
    for node in parsed(path)[0]:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        else:
            assert node.level == 0, f"{path}: relative import"
            if node.module.removeprefix("saltvirt.") in ("saltvirt", *FEATURES):
                yield from (f"{node.module}.{alias.name}" for alias in node.names)
            else:
                yield node.module


def module(path):
    """Return the dotted name of a file of the library."""
    parts = ("saltvirt", *path.relative_to(LIBRARY).with_suffix("").parts)
    return ".".join(parts).removesuffix(".__init__")


def imported(path, modules):
    """Return the names of the modules that a file imports, for types alone among them."""
    names = set()
    for node in parsed(path)[0]:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        else:
            full = {f"{node.module}.{alias.name}" for alias in node.names}
            names |= full | ({node.module} if full - set(modules) else set())
    return names & set(modules)


def cycles(graph):
    """Return the groups of modules that import each other, by Tarjan's algorithm."""
    order, low, stack, groups = {}, {}, [], []

    def visit(name):
        order[name] = low[name] = len(order)
        stack.append(name)
        for other in sorted(graph[name]):
            if other not in order:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], order[other])
        if low[name] == order[name]:
            start = stack.index(name)
            if len(stack) - start > 1:
                groups.append(sorted(stack[start:]))
            del stack[start:]

    for name in graph:
        if name not in order:
            visit(name)
    return groups


def layers_of(paths):
    """The layers that files import from, of the three."""
    found = {key(name.partition(".")[2]) for path in paths for name in imports(path) if ours(name)}
    return {LAYER[name] for name in found if name in LAYER}


def ours(name):
    """Is it a name of a package in the library?"""
    return name.startswith("saltvirt.")


def contents(layer):
    """{package of the layer: its sub-packages}, modules of their own last."""
    found = {}
    for name in sorted((n for n, where in LAYER.items() if where == layer), key=_modules_last):
        below = (LIBRARY / name.replace(".", "/")).glob("*/__init__.py")
        found[name] = sorted(path.parent.name for path in below)
    return found


def _modules_last(name):
    return not (LIBRARY / name.replace(".", "/")).is_dir(), name


def picture():
    """The layers as SVG: what is in each, and an arrow for each layer that another one imports."""
    half = (_WIDTH - 3 * _PAD) // 2
    adapters, adapters_end = _band(
        _PAD, 64, _WIDTH - 2 * _PAD, None, {name: [] for name in ADAPTERS}
    )
    cloud, cloud_end = _band(_PAD, adapters_end + 44, half, CLOUD, contents(CLOUD))
    host, host_end = _band(2 * _PAD + half, adapters_end + 44, half, HOST, contents(HOST))
    middle = max(cloud_end, host_end)
    shared, low = _band(_PAD, middle + 44, _WIDTH - 2 * _PAD, SHARED, contents(SHARED))
    pure, end = _band(_PAD, low + 44, _WIDTH - 2 * _PAD, PURE, contents(PURE))
    at = {CLOUD: _PAD + half // 2, HOST: 2 * _PAD + half + half // 2, SHARED: _WIDTH // 3}
    lines = [*adapters, *cloud, *host, *shared, *pure]
    for layer in sorted(_adapters_import()):
        x, bottom = at.get(layer, _WIDTH // 2), low + 42 if layer == PURE else adapters_end + 42
        lines.append(_arrow(x, adapters_end, bottom))
    for layer, bottom in ((CLOUD, cloud_end), (HOST, host_end), (SHARED, low)):
        found = layers_of(_files(layer)) - {layer}
        if PURE in found:
            lines.append(_arrow(at[layer], bottom, low + 42))
        if SHARED in found:
            lines.append(_arrow(at[layer] + 80, bottom, middle + 42))
    title = _text(_PAD, 36, "Salt Virt: an arrow is an import", 18, "#222", "bold")
    return "\n".join([*_head(end + _PAD), title, *lines, "</svg>", ""])


def _adapters_import():
    return layers_of(path for name in ADAPTERS for path in (api.REPOSITORY / name).glob("*.py"))


def _files(layer):
    return [
        path
        for path in LIBRARY.rglob("*.py")
        if path.name != HANDLERS and LAYER.get(package(path)) == layer
    ]


def _head(height):
    return [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img" '
        'font-family="sans-serif">',
        "<title>The layers of the library</title>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" '
        'markerHeight="8" orient="auto"><path d="M0 0 8 4 0 8z" fill="#444"/></marker></defs>',
        f'<rect width="{_WIDTH}" height="{height}" fill="#fff"/>',
    ]


def _arrow(x, top, bottom):
    return (
        f'<line x1="{x}" y1="{top}" x2="{x}" y2="{bottom}" stroke="#444" stroke-width="1.5" '
        'marker-end="url(#tip)"/>'
    )


def _text(x, y, words, size, colour, weight="normal"):
    return (
        f'<text x="{x}" y="{y}" font-size="{size}" fill="{colour}" font-weight="{weight}">'
        f"{escape(words)}</text>"
    )


def _band(x, y, width, layer, packages):
    """(the lines of one layer, the y below it): a box with its name and its packages."""
    name, says = _SAYS.get(layer, ("adapters", "what Salt loads: arguments in, plain data out"))
    colour, left, row = _COLOUR[layer], x + _PAD, y + 48
    boxes = []
    for title, below in packages.items():
        words = f"{title}: {', '.join(below)}" if below else title
        for part in _wrapped(words, int((width - 3 * _PAD) / _LETTER)):
            long = len(part) * _LETTER + 14
            if left > x + _PAD and left + long > x + width - _PAD:
                left, row = x + _PAD, row + _ROW
            boxes.append(
                f'<rect x="{left:.0f}" y="{row}" width="{long:.0f}" height="24" rx="4" '
                f'fill="#fff" stroke="{colour}"/>'
            )
            boxes.append(_text(round(left) + 7, row + 16, part, 13, "#222"))
            left += long + 6
    height = row + _ROW + 8 - y
    frame = (
        f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="8" fill="{colour}" '
        f'fill-opacity="0.09" stroke="{colour}"/>'
    )
    title = _text(x + _PAD, y + 22, name, 16, colour, "bold")
    return [frame, title, _text(x + _PAD, y + 39, says, 12, "#444"), *boxes], y + height


def _wrapped(words, most):
    """A text in lines of so many letters at most."""
    lines = [""]
    for word in words.split(" "):
        if lines[-1] and len(lines[-1]) + 1 + len(word) > most:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return lines
