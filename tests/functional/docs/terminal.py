"""A terminal of a master with one host, ``hv1``: real modules, a private libvirtd and QEMU. Only
Salt's transport is missing. Guests have no system of their own."""

import importlib.util
import os
import shlex
import subprocess

import salt.config
import salt.utils.args

from saltvirt.operations.access import access_check, bulk
from saltvirt.operations.create import deploy, init_list
from tests.functional.cloud import Fleet
from tests.functional.conftest import load
from tests.tools import api

MIB = 2**20
# an interface on the host's br0 is one that needs no bridge here
VIRT = {
    "placement": {
        "reserved_memory_kib": 0,
        "memory_ratio": 10,
        "reserved_disk_bytes": 0,
        "disk_ratio": 100,
        "cpu_ratio": 20,
    },
    "nic": {"default": {"eth0": {"type": "user"}}},
}


def module_of(path):
    """A file of this tree, as Python loads it."""
    spec = importlib.util.spec_from_file_location(f"typed_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class _Cloud(Fleet):
    """The Fleet of all verbs."""

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        return None

    def disconnect(self):
        return None

    def direct_hosts(self):
        return self.hosts()

    def each(self, host, fun, calls, **options):
        return [answer for kwarg in calls for answer in self.ask([host], fun, kwarg)]


class Terminal:
    """``type(command)``: what ``salt-run`` or ``salt`` prints, and its exit code.

    root: the folder for images (``srv``), what the master serves and what it keeps. patch: a
    pytest.MonkeyPatch.
    """

    def __init__(self, uri, root, patch):
        for name in ("srv", "salt", "lock"):
            (root / name).mkdir()
        minion = {
            "file_client": "local", "file_roots": {"base": [str(root / "salt")]},
            "cachedir": str(root / "minion"),
        }  # fmt: skip
        folders = {"images": str(root / "srv"), "lock": str(root / "lock")}
        self.modules = load(uri, minion=minion, **folders, **VIRT)
        self.root, self.fleet = root, _Cloud(self.modules, root)
        self.fleet.opts = {
            **salt.config.master_config(None), **self.fleet.opts, "output": "json", "timeout": 5,
            "file_roots": {"base": [str(root / "salt")]}, "virt": {"placement": VIRT["placement"]},
        }  # fmt: skip
        for module in (bulk, access_check, deploy, init_list):
            patch.setattr(module, "Fleet", lambda _opts, like=None: self.fleet)
        self._verbs = self._load()
        for function in self._verbs.values():
            salt_functions = function.function.__globals__["__salt__"]
            salt_functions |= {f"virt.{name}": verb for name, verb in self._verbs.items()}
        self._output = module_of(api.REPOSITORY / "_output/virt_query.py").output

    def _load(self):
        """{verb: function} of the runner."""
        found = {}
        for path in sorted((api.REPOSITORY / "_runners").glob("virt*.py")):
            module = module_of(path)
            module.__opts__, module.__salt__ = self.fleet.opts, {}
            if hasattr(module, "Fleet"):
                module.Fleet = lambda _opts: self.fleet
            aliases = getattr(module, "__func_alias__", {})
            found |= {aliases.get(name, name): function for name, function in vars(module).items()
                      if hasattr(function, "function")}  # fmt: skip
        return found

    def image(self, name="debian.qcow2", size="16M", kind="qcow2"):
        """Serve a disk image with a boot sector, and nothing to boot."""
        raw, path = self.root / "raw", self.root / "salt" / name
        raw.write_bytes(bytes(510) + b"\x55\xaa" + b"data" * 1024)
        os.truncate(raw, 8 * MIB)
        subprocess.run(["qemu-img", "convert", "-O", kind, raw, path], check=True)
        subprocess.run(["qemu-img", "resize", "-q", "-f", kind, path, size], check=True)
        return path

    def type(self, command):
        """(Exit code, what it prints)"""
        program, *words = shlex.split(command)
        target = words.pop(0) if program == "salt" else None
        function, *words = [word for word in words if not word.startswith("--")]
        args, kwargs = salt.utils.args.parse_input(words, condition=False)
        if target is not None:
            return 0, self._output({"hv1": self.modules[function](*args, **kwargs)})
        data = self._verbs[function.removeprefix("virt.")](*args, **kwargs)["data"]
        return data.get("retcode", 0), self._output(data)
