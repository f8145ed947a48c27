"""
What every function of ``virt`` says where Salt's Python lacks the libvirt binding.

The other files do not load there, and Salt would only say that a function is not
available. Here each of their functions says what is missing, in which Python, and which
command mends it.
"""

import ast
from pathlib import Path

import saltvirt

saltvirt = saltvirt.fresh()

from saltvirt import errors  # noqa: E402
from saltvirt.host import connection  # noqa: E402

__virtualname__ = "virt"

try:
    connection.require_binding()
    _MISSING = None
except errors.BindingMissing as exc:
    _MISSING = str(exc)


def __virtual__():
    # never False: Salt would take all of "virt" for missing and not look at the other files
    return __virtualname__


def _refuse(*_args, **_kwargs):
    """Raises BindingMissing with the command that installs the binding."""
    raise errors.BindingMissing(_MISSING)


def _names():
    """Public functions of the files that need the binding."""
    for path in Path(__file__).parent.glob("virt*.py"):
        text = path.read_text(encoding="utf-8")
        if "require_binding" in text:
            tree = ast.parse(text)
            yield from (node.name for node in tree.body if isinstance(node, ast.FunctionDef))


if _MISSING:
    globals().update({name: _refuse for name in _names() if not name.startswith("_")})
