"""A terminal of a master with one host, ``hv1``, or more: real modules, and for each host a private
libvirtd and QEMU. Only Salt's transport is missing. Guests have no system of their own."""

import copy
import fnmatch
import importlib.util
import json
import os
import re
import shlex
import subprocess

import salt.config
import salt.output
import salt.state
import salt.utils.args
import salt.utils.dictupdate
import salt.utils.yaml

from saltvirt.fleet import requester
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
    """The Fleet of all verbs. modules: {host: its loaded modules}"""

    def __init__(self, modules, root):
        super().__init__(modules["hv1"], root)
        self.of = {host: Fleet(found, root, host) for host, found in modules.items()}

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        return None

    def hosts(self, only=None):
        return [*self.of]

    def ask(self, hosts, fun, kwarg=None, **options):
        for host in hosts:
            yield from self.of[host].ask([host], fun, kwarg, **options)

    def disconnect(self):
        return None

    def direct_hosts(self):
        return self.hosts()

    def each(self, host, fun, calls, **options):
        return [answer for kwarg in calls for answer in self.ask([host], fun, kwarg)]


class Terminal:
    """``type(command)``: what ``salt-run`` or ``salt`` prints, and its exit code.

    uris: {host: its libvirt}. root: the folder for images (``srv``; of another host than ``hv1``
    below its name), what the master serves (``salt``) and what it keeps. patch: a
    pytest.MonkeyPatch. groups: {user: groups of the master's system}, for ``--username=``.
    """

    groups = {}

    def __init__(self, uris, root, patch):
        (root / "salt").mkdir()
        for host in uris:
            for name in ("srv", "lock"):
                (self._folder(root, host) / name).mkdir(parents=True)
        self._uris, self._config = uris, copy.deepcopy(VIRT)
        hosts = {host: self._host(host, root) for host in uris}
        self.modules, self.root, self.fleet = hosts["hv1"], root, _Cloud(hosts, root)
        self.fleet.opts = {
            **salt.config.master_config(None), **self.fleet.opts, "output": "json", "timeout": 5,
            "__cli": requester.COMMAND_LINE,
            "file_roots": {"base": [str(root / "salt")]},
            "virt": {"placement": {**VIRT["placement"]}},
        }  # fmt: skip
        for module in (bulk, access_check, deploy, init_list):
            patch.setattr(module, "Fleet", lambda _opts, like=None: self.fleet)
        patch.setattr(requester, "requesting_user", lambda *_caller: self._user)
        patch.setattr(requester, "groups", lambda _opts, _eauth, user: self.groups.get(user, []))
        self._user, self._verbs, self._highs = None, self._load(), {}
        for function in self._verbs.values():
            salt_functions = function.function.__globals__["__salt__"]
            salt_functions |= {f"virt.{name}": verb for name, verb in self._verbs.items()}
        self._output = module_of(api.REPOSITORY / "_output/virt_query.py").output

    @staticmethod
    def _folder(root, host):
        return root if host == "hv1" else root / host

    def _host(self, host, root):
        """The loaded modules of a host."""
        folder = self._folder(root, host)
        minion = {
            "file_client": "local", "cachedir": str(folder / "minion"),
            "file_roots": {"base": [str(root / "salt"), str(api.REPOSITORY / "formulas")]},
            "pillar_roots": {"base": [str(root / "pillar")]},
            "states_dirs": [str(api.REPOSITORY / "_states")], "color": False, "id": host,
        }  # fmt: skip
        folders = {"images": str(folder / "srv"), "lock": str(folder / "lock")}
        return load(self._uris[host], minion=minion, host=host, **folders, **self._config)

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

    def write(self, text):
        """Write a file of a manual: its first line names the path. What the master or the minions
        are configured with takes effect at once, on the host that the line names or on all; a text
        without a path is ignored."""
        named = re.match(r"# /(?:srv|etc/salt)/(salt|pillar|master\.d|minion\.d)/(\S+)", text)
        if named is None:
            return
        folder, name = named.groups()
        if folder in ("salt", "pillar"):
            (self.root / folder).mkdir(exist_ok=True)
            (self.root / folder / name).write_text(text, encoding="utf-8")
            return
        given = salt.utils.yaml.safe_load(text)
        if folder == "master.d":
            salt.utils.dictupdate.update(self.fleet.opts, given)
            return
        salt.utils.dictupdate.update(self._config, given["virt"])
        named = [host for host in self.fleet.of if f" {host}" in text.partition("\n")[0]]
        for host in named or self.fleet.of:
            self.fleet.of[host].modules = self._host(host, self.root)
        self.modules, self._highs = self.fleet.of["hv1"].modules, {}

    def type(self, command):
        """(Exit code, what it prints)"""
        program, *words = shlex.split(command)
        target = "hv1" if program == "salt-call" else None
        if program == "salt":
            target = words.pop(0)
        options = [word for word in words if word.startswith("--")]
        function, *words = [word for word in words if not word.startswith("--")]
        args, kwargs = salt.utils.args.parse_input(words, condition=False)
        if function.startswith("state."):
            return self._apply(target, function, args, kwargs)
        if target is not None:
            hosts = fnmatch.filter(self.fleet.of, target)
            answers = {host: self.fleet.of[host].modules[function](*args, **kwargs)
                       for host in hosts}  # fmt: skip
            return 0, self._output(answers)
        self._user = next((one.partition("=")[2] for one in options if "--username" in one), None)
        data = self._verbs[function.removeprefix("virt.")](*args, **kwargs)["data"]
        printed = json.dumps(data, indent=4) if "--out=json" in options else self._output(data)
        return data.get("retcode", 0), printed

    def _apply(self, host, function, args, kwargs):
        """The same of a state's function: of a host, or of the master's orchestrations if None."""
        high = self._high(host, kwargs.pop("test", False))
        if function.endswith("single"):
            (module, name), subject = args[0].split("."), kwargs.pop("name", args[-1])
            call = {"state": module, "fun": name, "__id__": subject, "name": subject, **kwargs}
            found = {f"{module}_|-{subject}_|-{subject}_|-{name}": high.state.call(call)}
        else:
            high.building_highstate.clear()
            chunks, wrong = high.render_highstate({"base": [args[0]]})
            assert not wrong, wrong
            # a process of its own would have to load the verbs
            for body in chunks.values():
                for call in body.values() if isinstance(body, dict) else ():
                    if isinstance(call, list) and {"parallel": True} in call:
                        call.remove({"parallel": True})
            found = high.state.call_high(chunks)
        failed = any(one["result"] is False for one in found.values())
        opts = high.state.opts
        return int(failed), salt.output.out_format({opts["id"]: found}, "highstate", opts)

    def _high(self, host, test):
        """Salt's states of a host, or of the master if None."""
        if (host, test) in self._highs:
            return self._highs[host, test]
        opts = {**self.fleet.of[host or "hv1"].modules.opts, "test": test}
        high = salt.state.HighState({**opts, "id": host or "master_master"})
        high.state.functions["saltutil.runner"] = self._called
        self._highs[host, test] = high
        return high

    def _called(self, name, **options):
        """What ``saltutil.runner`` returns."""
        given = options.pop("kwarg", None) or options
        return self._verbs[name.removeprefix("virt.")](**given)
