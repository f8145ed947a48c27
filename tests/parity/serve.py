"""Answers rows on one host: `python -m tests.parity.serve WHOSE HOST FOLDER`.

WHOSE is "salt" or "ours". Reads a row a line as JSON from its input and writes an answer a line.
It knows neither module: it runs in the Python of Salt 3007 and in the tests' own.
"""

import contextlib
import gc
import io
import json
import logging
import os
import shutil
import signal
import sys
from pathlib import Path

import libvirt
import salt.config
import salt.loader

from tests import machine
from tests.parity import daemon, state

REPOSITORY = Path(__file__).resolve().parents[2]
ROW_S = 60
# the exit code of a host that could not be made fresh again: start another
SPENT = 75
GRAINS = {
    "id": "hv1",
    "fqdn": "hv1",
    "kernel": "Linux",
    "os": "Debian",
    "os_family": "Debian",
    "osmajorrelease": 12,
    "ps": "ps -efHww",
    "virtual": "physical",
    "virtual_subtype": "",
}


class Host:
    """A libvirt host that is made fresh for each row, and the modules on it."""

    def __init__(self, whose, kind, folder):
        self.whose, self.folder = whose, folder
        if kind == "daemon":
            daemon.start(folder)
            self.uri = "qemu:///system"
        else:
            self.uri = "test:///default"
            if whose == "salt":
                # a binding of before libvirt 5.2 lacks it: Salt 3007 then has a table of its own
                del libvirt.virConnect.getStoragePoolCapabilities
        self.conn = libvirt.open(self.uri)
        self.kind = kind
        self.pristine = state.dump(self.conn)
        self.modules, self.states = self.load()

    def load(self):
        """The execution modules and the states, as Salt's own loader makes them."""
        opts = salt.config.minion_config(None)
        opts["grains"] = dict(GRAINS)
        opts["test"] = False
        opts["virt"] = {
            "connection": {"uri": self.uri},
            "images": f"{self.folder}/images",
            "lock": f"{self.folder}/lock",
            # the test driver's host has 3 GiB and a running guest of 8
            "placement": {"reserved_memory_kib": 0, "memory_ratio": 100, "reserved_disk_bytes": 0},
            "overcommit": True,
        }
        for kind in ("cachedir", "pki_dir", "extension_modules", "sock_dir"):
            opts[kind] = f"{self.folder}/salt/{kind}"
        opts["file_roots"] = {"base": [f"{self.folder}/salt/files"]}
        opts["file_client"] = "local"
        if self.whose == "ours":
            sys.path.insert(0, str(REPOSITORY / "_utils"))
            machine.keep_in(self.folder)
            stand_ins = REPOSITORY / "tests/functional/modules"
            opts["module_dirs"] = [str(REPOSITORY / "_modules"), str(stand_ins)]
            opts["states_dirs"] = [str(REPOSITORY / "_states")]
        utils = salt.loader.utils(opts)
        modules = salt.loader.minion_mods(opts, context={}, utils=utils)
        serializers = salt.loader.serializers(opts)
        # what is loaded keeps the options that it was loaded with
        states = {
            test: salt.loader.states({**opts, "test": test}, modules, utils, serializers)
            for test in (False, True)
        }
        return modules, states

    def fresh(self):
        """Make the host what it was before any row."""
        if self.kind == "test":
            self.conn.close()
            gc.collect()
            self.conn = libvirt.open(self.uri)
        else:
            state.empty(self.conn, self.pristine)
        for name in ("images", "data", "lock"):
            path = f"{self.folder}/{name}"
            if os.path.isdir(path):
                shutil.rmtree(path)
        os.makedirs(f"{self.folder}/images")
        os.makedirs(f"{self.folder}/data")
        return not state.changed(self.pristine, state.dump(self.conn))

    def files(self):
        """What lies in the folders of a row."""
        found = []
        for top in ("images", "data"):
            for folder, _, names in os.walk(f"{self.folder}/{top}"):
                found += [os.path.join(folder, name) for name in names]
        return sorted(found)

    def answer(self, row):
        """What a row's call gave, and what it changed."""
        state.prepare(self.conn, row["setup"])
        before, files = state.dump(self.conn), self.files()
        answer = {"id": row["id"], **self.call(row["function"], row["args"], row["kwargs"])}
        gc.collect()
        answer["changed"] = state.changed(before, state.dump(self.conn))
        now = self.files()
        answer["files"] = {
            "made": sorted({*now} - {*files}),
            "gone": sorted({*files} - {*now}),
        }
        if answer["files"]["made"]:
            answer["images"] = {path: state.image(path) for path in answer["files"]["made"]}
        return answer

    def call(self, function, args, kwargs):
        """The return, or the exception's class and first line."""
        function = function.removeprefix("handed:")
        where, _, name = function.partition(":")
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            try:
                if where == "state":
                    states = self.states[kwargs.pop("__test__", False)]
                    return {"return": plain(states[name](*args, **kwargs))}
                return {"return": plain(self.modules[function](*args, **kwargs))}
            except Exception as exc:
                lines = str(exc).strip().splitlines() or [""]
                kinds = [kind.__name__ for kind in type(exc).__mro__[:-2]]
                return {"error": [kinds[0], lines[0], len(lines), kinds]}


def plain(value):
    """A return as JSON has it."""
    if isinstance(value, dict):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple, set)):
        return [plain(one) for one in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return repr(value)


def late(*_):
    """A row has taken too long."""
    raise TimeoutError("no answer in time")


def main():
    """Answer rows until the input ends."""
    whose, kind, folder = sys.argv[1:]
    logging.disable(logging.CRITICAL)
    libvirt.registerErrorHandler(lambda *_: None, None)
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    signal.signal(signal.SIGALRM, late)
    host = Host(whose, kind, folder)
    gc.collect()
    gc.freeze()  # what is loaded stays: a row's end looks at the row's own alone
    for line in sys.stdin:
        row = json.loads(line)
        if not host.fresh():
            return SPENT
        signal.alarm(ROW_S)
        answer = host.answer(row)
        signal.alarm(0)
        print(json.dumps(answer), file=out, flush=True)
    return 0


if __name__ == "__main__":
    os._exit(main())
