"""The package ``salt_virt`` of `pip install salt-virt`, through which Salt's loader finds Salt
Virt.

Salt calls :func:`folders` for each kind of modules that it loads (entry points of the group
``salt.loader``). Synced modules take precedence: a host must not run adapters of one version with
the library of another. Salt's own order would be the adapters of pip first, and the library
depending on the path.
"""

from __future__ import annotations

import os
import sys
from typing import Any

# Salt's names of the kinds of modules
KINDS = ("modules", "states", "runners", "pillar", "engines", "grains", "output")
_HOME = os.path.dirname(os.path.realpath(__file__))
_LIBRARY = os.path.join(_HOME, "library")


def folders() -> dict[str, list[str]]:
    """The folders for Salt's loader by kind of module; none if Salt Virt was synced."""
    if _is_synced(_loader_options()):
        _forget()
        return {}
    if _LIBRARY not in sys.path:
        sys.path.append(_LIBRARY)
    return {kind: [os.path.join(_HOME, kind)] for kind in KINDS}


def _loader_options() -> dict[str, Any]:
    """Salt's configuration from the caller's frame: Salt 3006 to 3008 do not pass it
    (salt/loader/__init__.py, _module_dirs)."""
    frame = sys._getframe(1)
    while frame.f_back:
        frame = frame.f_back
        if frame.f_code.co_name == "_module_dirs":
            opts: dict[str, Any] = frame.f_locals.get("opts") or {}
            return opts
    return {}


def _is_synced(options: dict[str, Any]) -> bool:
    synced = options.get("extension_modules") or ""
    return os.path.isfile(os.path.join(synced, "utils", "saltvirt", "__init__.py"))


def _forget() -> None:
    """Make a process that started before the sync use the synced library from now on."""
    if _LIBRARY in sys.path:
        sys.path.remove(_LIBRARY)
    loaded = sys.modules.get("saltvirt")
    if loaded and str(loaded.__file__).startswith(_LIBRARY + os.sep):
        for name in [n for n in sys.modules if n == "saltvirt" or n.startswith("saltvirt.")]:
            del sys.modules[name]
