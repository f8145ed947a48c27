"""The swarm: a network of its own, a master, its minions, and the state of the hosts."""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

from tests.clock import until
from tests.lab import paths
from tests.lab.publish import ARCHIVE, LIBRARY, packed
from tests.lab.sh import run
from tests.swarm import kinds
from tests.swarm.minions import MASTER

START_S = 300
PORTS = (4505, 4506)
KEY_BITS = 2048
# where a sync puts the folders of the tree, below a master's extension_modules
SYNCED = {"_runners": "runners", "_output": "output", "_pillar": "pillar"}


def named(number):
    """The ids of so many hosts."""
    return [f"hv{one:03}" for one in range(1, number + 1)]


class Swarm:
    """folder: a new one of its own. number: of hosts. ill: so many of them are dead, hung or slow.
    timeout_s: the master's ``timeout``. guests: host to its guests, in place of such hosts.
    To be made and started in namespaces of its own, whose first process we are: with us all that is
    started ends."""

    def __init__(self, folder, number, ill, timeout_s, guests=None):
        self.folder, self.timeout_s = Path(folder), timeout_s
        self.guests = guests or {
            name: [f"{name}-g{one}" for one in range(kinds.GUESTS)] for name in named(number)
        }
        names = list(self.guests)
        self.kinds = kinds.of(names, ill)
        self.addresses = {
            name: f"10.77.{1 + one // 250}.{1 + one % 250}" for one, name in enumerate(names)
        }
        self.said = self.folder / "said"
        self.master = self.minions = None

    def of(self, *wanted):
        """The hosts of these kinds."""
        return [name for name, kind in self.kinds.items() if kind in wanted]

    def start(self):
        """All of it; it is there when this returns."""
        self._network()
        self._keys()
        self._library()
        self._config()
        with open(self.folder / "master.out", "wb") as out:
            self.master = self._program("salt_master", [], stdout=out, stderr=out)
        until(self._listens, "the master's ports", START_S)
        self._minions()

    def stop(self):
        """End what was started."""
        for one in (self.minions, self.master):
            if one:
                one.kill()
                one.wait()

    def _listens(self):
        for port in PORTS:
            with contextlib.closing(socket.socket()) as one:
                if one.connect_ex((MASTER, port)):
                    return False
        return True

    def _network(self):
        lines = ["link set lo up", "link add br0 type bridge", f"addr add {MASTER}/32 dev lo"]
        lines += [f"addr add {address}/32 dev lo" for address in self.addresses.values()]
        run(["ip", "-batch", "-"], input="\n".join(lines))

    def _keys(self):
        """One pair for all minions, accepted for each of them."""
        import salt.crypt

        accepted = self.folder / "master/pki/minions"
        accepted.mkdir(parents=True)
        private, public = salt.crypt.gen_keys(KEY_BITS)
        for name in self.kinds:
            pki = self.folder / "hosts" / name / "pki"
            pki.mkdir(parents=True)
            (pki / "minion.pem").write_text(private)
            (pki / "minion.pub").write_text(public)
            (accepted / name).write_text(public)

    def _library(self):
        """Salt Virt on the master as a sync brings it."""
        synced = self.folder / "master/extmods"
        for here, there in SYNCED.items():
            shutil.copytree(
                paths.REPOSITORY / here,
                synced / there,
                ignore=shutil.ignore_patterns("__pycache__"),
            )
        package = synced / "utils/saltvirt"
        package.mkdir(parents=True)
        library = paths.REPOSITORY / LIBRARY
        shutil.copy(library / "bundle.py", package / "__init__.py")
        names = sorted(str(path.relative_to(paths.REPOSITORY)) for path in library.rglob("*.py"))
        (package / ARCHIVE).write_bytes(packed(paths.REPOSITORY, names))

    def _config(self):
        root = self.folder / "master"
        config = {
            "interface": MASTER, "user": "root", "root_dir": str(root),
            "pki_dir": str(root / "pki"), "cachedir": str(root / "cache"),
            "sock_dir": str(root / "run"), "extension_modules": str(root / "extmods"),
            "log_file": str(root / "log"), "log_level": "error", "log_level_logfile": "warning",
            "pidfile": str(root / "pid"), "token_dir": str(root / "tokens"),
            "file_roots": {"base": []}, "pillar_roots": {"base": []}, "virt": {"hosts": "hv*"},
            "timeout": self.timeout_s,
        }  # fmt: skip
        (root / "run").mkdir()
        (root / "etc").mkdir()
        (root / "etc/master").write_text(json.dumps(config))

    def command(self, name, arguments):
        """The words of a process that is one of Salt's programs, such as ``salt_run``."""
        code = f"import salt.scripts; salt.scripts.{name}()"
        return [sys.executable, "-c", code, "-c", self.folder / "master/etc", *arguments]

    def _program(self, name, arguments, **how):
        return subprocess.Popen(self.command(name, arguments), stdin=subprocess.DEVNULL, **how)

    def _minions(self):
        about = self.folder / "hosts"
        config = {
            "master": MASTER, "user": "root", "root_dir": str(about),
            "pki_dir": str(about / "pki"), "cachedir": str(about / "cache"),
            "log_file": str(about / "log"), "enable_fqdns_grains": False, "zmq_monitor": False,
        }  # fmt: skip
        (self.folder / "minion").write_text(json.dumps(config))
        hosts = {
            name: {
                "kind": kind,
                "address": self.addresses[name],
                "guests": self.guests[name],
            }
            for name, kind in self.kinds.items()
        }
        plan = {"hosts": hosts, "config": str(self.folder / "minion"), "folder": str(about)}
        (self.folder / "plan").write_text(json.dumps(plan))
        env = {**os.environ, "PYTHONPATH": str(self.folder / "master/extmods/utils")}
        with open(self.folder / "minions.log", "wb") as log:
            self.minions = subprocess.Popen(
                [sys.executable, "-m", "tests.swarm.minions", self.folder / "plan"],
                cwd=paths.REPOSITORY, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=log, text=True,
            )  # fmt: skip
        said = self.minions.stdout.readline()
        assert said == "ready\n", (self.folder / "minions.log").read_text()[-3000:]

    def ask(self, what):
        """What the process of the minions answers: see there."""
        self.minions.stdin.write(f"{what}\n")
        self.minions.stdin.flush()
        return json.loads(self.minions.stdout.readline())

    def last_words(self):
        """The ends of the logs."""
        logs = [self.folder / name for name in ("master/log", "minions.log", "errors")]
        return "\n".join(f"{one}:\n{one.read_text(errors='replace')[-3000:]}" for one in logs)

    def typed(self, fun, *arguments, **named):
        """The process of ``salt-run fun …``, that has begun; its answer will be in ``said``."""
        words = [*map(str, arguments), *(f"{k}={json.dumps(v)}" for k, v in named.items())]
        with open(self.said, "wb") as out, open(self.folder / "errors", "wb") as err:
            given = ["--out=json", fun, *words]
            return self._program("salt_run", given, stdout=out, stderr=err)
