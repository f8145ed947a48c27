"""The library of Salt Virt: everything except Salt's adapters.

Salt syncs this package to ``extmods/utils`` of masters and minions. A long-lived process can have
an old copy of it in memory after ``sync_all`` has installed a new one. Every adapter therefore
begins with::

    import saltvirt
    saltvirt = saltvirt.fresh()

which imports the package again if its files have changed, and every connection to libvirt or the
cloud calls :func:`check`, which refuses a mixture of old and new code. Salt loads every adapter on
every minion that has them, and few minions are hypervisors: an adapter imports the rest of the
library in :func:`later`.

`make publish` publishes this package as one archive: ``bundle.py`` then runs this file, and has set
``PACKED`` here: the archive's path and the digest of the unpacked content.
"""

from __future__ import annotations

import builtins
import contextlib
import importlib
import os
import pkgutil
import sys
import threading
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

__version__ = "0.9.0"


class _Outputters(dict[str, str]):
    """The outputter of each function of an execution module, as Salt's loader looks it up."""

    def __contains__(self, function: object) -> bool:
        return True

    def __missing__(self, function: str) -> str:
        return "virt_query"


OUTPUTTERS = _Outputters()

_HOME = os.path.dirname(os.path.realpath(__file__))


def _sources(folder: str) -> Iterator[tuple[str, os.stat_result]]:
    """(path, stat) of each source file below the folder. It runs in every job, so it avoids
    pathlib."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(".py"):
                with contextlib.suppress(FileNotFoundError):  # a sync is replacing the file
                    yield entry.path, entry.stat()
            elif entry.name != "__pycache__" and entry.is_dir():
                with contextlib.suppress(FileNotFoundError):
                    yield from _sources(entry.path)


def fingerprint() -> frozenset[tuple[str, int, int]]:
    """The state of the package's files on disk.

    Returns a frozenset of (path, mtime_ns, size), one for each source file.
    """
    return frozenset((path, s.st_mtime_ns, s.st_size) for path, s in _sources(_HOME))


_PACKED: tuple[str, str] | None = globals().get("PACKED")
_LOADED = frozenset() if _PACKED else fingerprint()


def stale() -> bool:
    """True if the files on disk differ from those that this process has imported."""
    if _PACKED:
        from saltvirt import bundle  # noqa: PLC0415 - only a packed library needs it

        return bundle.digest(_PACKED[0]) != _PACKED[1]
    return fingerprint() != _LOADED


def fresh() -> ModuleType:
    """The package as it is on disk: this one, or imported again if it is stale."""
    if not stale():
        return sys.modules[__name__]
    for name in [n for n in sys.modules if n == __name__ or n.startswith(__name__ + ".")]:
        del sys.modules[name]
    importlib.invalidate_caches()
    return importlib.import_module(__name__)


class Later(ModuleType):
    """A module that is imported at the first use of one of its names, with its group."""

    def __init__(self, name: str, group: dict[str, Later]) -> None:
        super().__init__(name)
        vars(self).update(_group=group, _module=None)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # inspecting an adapter does not use the library
            raise AttributeError(f"module {self.__name__!r} is not imported yet: no {name!r}")
        return getattr(self._imported(), name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self._imported(), name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._imported(), name)

    def _imported(self) -> ModuleType:
        """The module. All modules of its group are imported together, so that a long operation does
        not start with files from before a sync and end with those after it."""
        if self._module is None:
            check()
            for name, member in self._group.items():
                vars(member)["_module"] = importlib.import_module(name)
        module: ModuleType = self._module
        return module


_switching = threading.RLock()
# by name of an adapter. Salt executes an adapter again in the same module: a group in the
# module itself would contain modules of an older library.
_groups: dict[str, dict[str, Later]] = {}


@contextlib.contextmanager
def later() -> Iterator[None]:
    """Make ``from saltvirt.PACKAGE import MODULE`` lazy during the block.

    For the top of an adapter: its functions use the modules as usual, and the first use of any of
    them imports all modules of the adapter's blocks; `make publish` joins several adapters into one
    file. Only modules can be imported this way, not their content. Modules that the process has
    already imported are used directly.
    """
    real, thread, is_within = builtins.__import__, threading.get_ident(), True

    def take(*args: Any, **kwargs: Any) -> Any:
        # another copy of the library, in another thread, may restore this function later
        is_mine = is_within and threading.get_ident() == thread and not kwargs
        if not is_mine or args[0].split(".", maxsplit=1)[0] != __name__:
            return real(*args, **kwargs)
        package, adapter, _, names, _ = args
        return SimpleNamespace(**{name: _later(f"{package}.{name}", adapter) for name in names})

    with _switching:
        builtins.__import__ = take
        try:
            yield
        finally:
            builtins.__import__, is_within = real, False


def _later(name: str, adapter: dict[str, Any]) -> ModuleType:
    """A module that is already imported, or a lazy one of the adapter's group."""
    group = _groups.setdefault(adapter["__name__"], {})
    return sys.modules.get(name) or group.setdefault(name, Later(name, group))


def preload() -> None:
    """Import the complete library, if libvirt's binding is installed.

    For a process that forks for each job, as a minion does: its jobs need not import what it has
    imported, which is most of the time of a small job. Without the binding nothing is imported, so
    that a job finds the binding as soon as it is installed; other missing packages are left to the
    jobs that need them.
    """
    try:
        importlib.import_module("libvirt")
    except ImportError:
        return
    for module in pkgutil.walk_packages(__path__, f"{__name__}."):
        with contextlib.suppress(ImportError):
            importlib.import_module(module.name)


def check() -> None:
    """Refuse to continue with an old library in memory.

    Raises saltvirt.errors.StaleLibrary, which says what to do.
    """
    if stale():
        from saltvirt.errors import StaleLibrary  # noqa: PLC0415 - a cycle otherwise

        raise StaleLibrary(
            "saltvirt was updated while this process ran: run saltutil.refresh_modules, "
            "or restart this salt-master or salt-minion, and try again"
        )
