"""A master and its minions, started by the user who runs the tests, with all files in one folder
and free ports."""

import contextlib
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import time
import uuid
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import salt.client
import salt.runner
from saltfactories.manager import FactoriesManager
from saltfactories.plugins.event_listener import EventListener

from saltvirt.fleet import proof
from saltvirt.fleet.client import Fleet
from tests.clock import until
from tests.lab import paths
from tests.lab.publish import BRANCH, publish
from tests.rootless.libvirtd import Libvirtd
from tests.tools import wheel

HOSTS = ("hv1", "hv2")
# a machine may be busy: how long whoever is there may take to answer
PATIENCE_S = 60
# what the tags of libvirt's events begin with
ENGINE = "rootless/libvirt"
# the test driver's host has 3 GiB and a running guest of 8
ROOMY = {"memory_ratio": 10, "reserved_memory_kib": 0}
PROGRAM = """#!{python}
import sys

from salt import scripts

if __name__ == "__main__":
    sys.exit(scripts.{function}())
"""
_QUIET = {"log_level_logfile": "warning", "log_level": "warning", "keysize": 2048}


class Cloud:
    """``master``: the master's daemon. ``minions``: id to a minion's daemon. ``libvirtds``: id to
    the daemon that the minion's libvirt is. ``way``: how Salt Virt comes to all of them, ``sync``
    (by gitfs), ``pip``, or ``none``. ``events``: what came over the master's bus. ``tree``: the
    folder of salt:// before gitfs."""

    hosts = HOSTS

    def __init__(self, root, way="sync"):
        self.root, self.way, self.site = root, way, root / "site"
        if way == "pip":
            self.install()
        self.events = EventListener(timeout=3600)  # how long it keeps what it heard
        self.factories = FactoriesManager(
            root_dir=root / "salt", log_server_port=0, log_server_level="error",
            log_server_host="127.0.0.1", event_listener=self.events, slow_stop=False,
            start_timeout=300, scripts_dir=programs(root / "bin"),
            # a master and a minion keep what Python compiles, unlike pytest-salt-factories'
            environ={**os.environ, "PYTHONDONTWRITEBYTECODE": ""},
        )  # fmt: skip
        self.minions, self.libvirtds = {}, {}
        self._pool = ThreadPoolExecutor()
        # a process of its own, for Salt's loader takes the library from what was synced
        context = multiprocessing.get_context("spawn")
        self._runner = ProcessPoolExecutor(1, context, _import_from, [str(self.site)])

    def start(self):
        """All of it, and Salt Virt there."""
        self.events.start()
        self._runner.submit(os.getpid)  # it imports Salt while the master starts
        if self.way == "sync":
            publish(paths.REPOSITORY, self.root / "git")
        self.libvirtds = {host: Libvirtd(self.root / host) for host in HOSTS}
        self.master = self.factories.salt_master_daemon("master", overrides=self.master_config())
        self.tree = Path(self.master.config["file_roots"]["base"][0])
        for kind in ("modules", "grains"):
            shutil.copytree(Path(__file__).parent / kind, self.tree / f"_{kind}")
        self.master.start()
        self.minions = {host: self.minion(host) for host in HOSTS}
        for daemon in self.libvirtds.values():
            daemon.wait()
        # an engine is loaded when its minion starts: hv1 has it by then, as after a restart
        first = self._pool.submit(self.call, "hv1", "saltutil.sync_all")
        second = self._pool.submit(self.minions["hv2"].start)
        self.run("saltutil.sync_all")
        self.synced = {"hv1": first.result()}
        first = self._pool.submit(self.minions["hv1"].start)
        second.result()
        self.synced |= self.salt("hv2", "saltutil.sync_all")
        first.result()

    def install(self):
        """Have what `make wheel` builds on the path of every Salt that is started from now on."""
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "-q"]
        found = wheel.build(self.root / "wheel")
        subprocess.run([*pip, "--no-deps", "--target", self.site, found], check=True)
        path = [str(self.site), os.environ.get("PYTHONPATH", "")]
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, path))

    def stop(self):
        """End all of it."""
        for one in self.minions.values():
            one.terminate()
        if hasattr(self, "master"):
            self.master.terminate()
        for one in self.libvirtds.values():
            one.stop()
        self.events.stop()
        self._pool.shutdown()
        self._runner.shutdown()

    def master_config(self):
        """What of the master's configuration is not pytest-salt-factories'."""
        return {
            **_QUIET, "timeout": 15, "gather_job_timeout": 10, "worker_threads": 3,
            "auto_accept": True, "fileserver_list_cache_time": 20,
            **(self.by_gitfs() if self.way == "sync" else {}),
            "virt": {"hosts": "hv*", "placement": ROOMY, "backup": self.backups()},
            "pytest-master": {"log": {"disabled": True}},
        }  # fmt: skip

    def backups(self):
        """What of the master's configuration is of backups: their folder is ``root / "vault"``."""
        vault = {"host": HOSTS[1], "folder": str(self.root / "vault")}
        return {"targets": {"vault": vault}, "retention": {"last": 1}}

    def by_gitfs(self):
        """What of the master's configuration serves Salt Virt."""
        return {
            "fileserver_backend": ["roots", "gitfs"], "gitfs_provider": "gitpython",
            "gitfs_base": BRANCH, "gitfs_update_interval": 600,
            "gitfs_remotes": [f"file://{self.root / 'git'}"],
        }  # fmt: skip

    def minion(self, name):
        """A minion that is configured, and not started."""
        libvirt = self.libvirtds[name]
        virt = {
            "connection": {"uri": libvirt.uri, "timeout": 10}, "lock": str(libvirt.folder / "lock"),
            "images": str(libvirt.folder / "images"), "placement": ROOMY,
        }  # fmt: skip
        engine = {"libvirt_events": {"uri": libvirt.uri, "tag_prefix": ENGINE}}
        engines = [engine, {"virt_log": {"interval": 5}}]
        config = {
            **_QUIET, "engines": engines if name == HOSTS[0] else [], "virt": virt,
            "enable_fqdns_grains": False, "enable_gpu_grains": False,
            "pytest-minion": {"log": {"disabled": True}},
        }  # fmt: skip
        return self.master.salt_minion_daemon(name, overrides=config)

    def fleet(self, now=time.monotonic, **opts):
        """The library's Fleet on this master. now: its clock. opts: in place of the master's."""
        return Fleet({**self.opts(), **opts}, now)

    def opts(self):
        """The master's configuration."""
        return _thawed(self.master.config)

    def run(self, fun, *arguments, **named):
        """What a function of the master's runners returns, without how it is to be shown."""
        return self._runner.submit(_run, self.opts(), fun, arguments, named).result()

    def salt(self, target, fun, *arguments, **named):
        """What the minions of a compound target answer to a function, by id."""
        with contextlib.closing(_Client(self.opts())) as client:
            return client.cmd(target, fun, arguments, PATIENCE_S, "compound", kwarg=named)

    def called(self, host, *arguments):
        """The ended process of ``salt-call …`` on a minion."""
        return self._program("salt-call", "-c", self.minions[host].config_dir, *arguments)

    def call(self, host, fun, *arguments, **named):
        """What ``salt-call fun …`` prints on a minion; it must succeed."""
        done = self.called(host, "--out=json", fun, *words(arguments, named))
        assert done.returncode == 0, done
        return json.loads(done.stdout)["local"]

    def calls(self, fun, *arguments, **named):
        """What :meth:`call` returns on all minions, by id; all at once."""
        at_once = {
            host: self._pool.submit(self.call, host, fun, *arguments, **named) for host in HOSTS
        }
        return {host: one.result() for host, one in at_once.items()}

    def typed(self, fun, *arguments, **named):
        """(Exit code, the lines that are shown) of ``salt-run fun …``."""
        config = self.master.config_dir
        done = self._program("salt-run", "-c", config, fun, *words(arguments, named))
        return done.returncode, done.stdout.rstrip().splitlines()

    def shown(self, target, fun, *arguments, **named):
        """(Exit code, the lines that are shown) of ``salt target fun …``."""
        config = self.master.config_dir
        done = self._program("salt", "-c", config, target, fun, *words(arguments, named))
        return done.returncode, done.stdout.rstrip().splitlines()

    def _program(self, name, *arguments):
        script = self.factories.get_salt_script_path(name)
        return subprocess.run(
            [sys.executable, script, *arguments], capture_output=True, text=True, check=False
        )

    def proc(self, host):
        """The folder in which a minion has the jobs it is at work at."""
        return Path(self.minions[host].config["cachedir"]) / "proc"

    def asked(self):
        """The functions that Fleet asked hosts for, in their order."""
        jobs = [one.data for one in self.events.store if one.tag.endswith("/new")]
        given = [job["arg"][0] for job in jobs if job["fun"] == proof.FUNCTION]
        return [one["fun"] for one in given if isinstance(one, dict)]

    def asked_by_now(self, fleet):
        """How many :meth:`asked` has, once it has all of them: events arrive in their order."""
        tag = f"rootless/now/{uuid.uuid4()}"
        fleet.fire_event(tag, {})
        until(lambda: any(one.tag == tag for one in self.events.store), "our own event")
        return len(self.asked())

    def written_jobs(self):
        """The files in which the master has written down jobs and their returns."""
        folder = Path(self.opts()["cachedir"]) / "jobs"
        return [path for path in folder.rglob("*") if path.is_file()]


class _Client(salt.client.LocalClient):
    """Salt's LocalClient, that contextlib.closing() ends."""

    def __init__(self, opts):
        super().__init__(mopts=opts)

    close = salt.client.LocalClient.destroy


def _import_from(site):
    """In a process of its own, that has its parent's path: import from a folder, too."""
    sys.path.append(site)


def _run(opts, fun, arguments, named):
    """In a process of its own: call a function of the runners."""
    found = salt.runner.RunnerClient(opts).cmd(fun, arguments, kwarg=named, print_event=False)
    if isinstance(found, dict) and set(found) == {"data", "outputter"}:
        return found["data"]
    return found


def programs(folder):
    """A new folder with Salt's programs under their own names: a minion imports the library for its
    jobs only as ``salt-minion``. Those of a venv that was moved do not run."""
    folder.mkdir()
    for name in ("salt", "salt-call", "salt-key", "salt-master", "salt-minion", "salt-run"):
        function = {"salt": "salt_main"}.get(name, name.replace("-", "_"))
        path = folder / name
        path.write_text(PROGRAM.format(python=sys.executable, function=function))
        path.chmod(0o755)
    return folder


def words(arguments, named):
    """Arguments as Salt's command line takes them."""
    return [*map(str, arguments), *(f"{key}={json.dumps(value)}" for key, value in named.items())]


def _thawed(data):
    """Plain data of pytest-salt-factories' frozen configuration."""
    if isinstance(data, dict) or hasattr(data, "items"):
        return {key: _thawed(value) for key, value in data.items()}
    if isinstance(data, (list, tuple)) or type(data).__name__ == "ImmutableList":
        return [_thawed(value) for value in data]
    return data
