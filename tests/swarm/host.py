"""A host of the swarm: Salt Virt's own execution modules over a libvirt of its own.

libvirt's test driver keeps a host in memory, so one process has as many as it likes. What the
library keeps in files it finds below the working directory of the thread that does a job: each
such thread has one of its own, and goes to its host's folder before it begins.

Two answers are not libvirt's. The test driver cannot migrate: here the guest is defined on the
other host once that has admitted it, and undefined on this one. And all that a minion does beside
`virt` is the job list of `saltutil.find_job`.
"""

import ctypes
import functools
import importlib.util
import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from tests import machine
from tests.lab import paths

# what a thread's own working directory is called, whichever thread asks
HERE = "/proc/thread-self/cwd"
CLONE_FS = 0x200
CPUS, MEMORY_KIB, GUEST_KIB = 32, 128 * 1024**2, 1024**2
NODE = f"""\
<node>
  <cpu>
    <mhz>2000</mhz><model>x86_64</model><active>{CPUS}</active><nodes>1</nodes>
    <sockets>1</sockets><cores>{CPUS}</cores><threads>1</threads>
  </cpu>
  <memory>{MEMORY_KIB}</memory>
</node>
"""
GUEST = f"""\
<domain type='test'>
  <name>{{name}}</name><memory unit='KiB'>{GUEST_KIB}</memory><vcpu>1</vcpu>
  <os><type arch='i686'>hvm</type></os>
</domain>
"""
_at_work = threading.local()


def host():
    """The host whose job this thread does."""
    return _at_work.host


def begin_thread():
    """Give this thread a working directory of its own."""
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_FS):
        raise OSError(ctypes.get_errno(), "a thread cannot have a working directory of its own")


class _Of(Mapping):
    """A mapping of the host that is at work. get: which one, of a Host."""

    def __init__(self, get):
        self._get = get

    def __getitem__(self, key):
        return self._get(host())[key]

    def __iter__(self):
        return iter(self._get(host()))

    def __len__(self):
        return len(self._get(host()))


class _Context(dict):
    """Salt's ``__context__``: of a job, and so of a thread."""

    def __setitem__(self, key, value):
        _at_work.context[key] = value


def library(folder):
    """Import Salt Virt so that it serves many hosts; ``virt.…`` to its functions.

    folder: what the locks on the machine's own devices are in.
    """
    machine.keep_in(HERE)
    from saltvirt.system import paths as host_paths

    host_paths.RUN = str(folder)
    from saltvirt.fleet import proof
    from saltvirt.host import connection

    connection._open = lambda _settings: host().connection
    # 45 ms of a process' one CPU, which each real host has for itself; here all have one key
    proof.load_pem_private_key = functools.cache(proof.load_pem_private_key)
    found = {}
    for path in sorted((paths.REPOSITORY / "_modules").glob("virt*.py")):
        found.update(_functions(path))
    return {**found, "virt.migrate": migrate, "virt.migratable": migratable}


def _functions(path):
    """The public functions of a file of ``virt``, by name."""
    spec = importlib.util.spec_from_file_location(f"swarm_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    module.__salt__ = _Of(lambda one: one.functions)
    module.__opts__ = _Of(lambda one: one.opts)
    module.__grains__ = _Of(lambda one: one.grains)
    module.__pillar__, module.__context__ = {}, _Context()
    spec.loader.exec_module(module)
    if module.__virtualname__ != "virt":
        return {}
    alias = getattr(module, "__func_alias__", {})
    return {
        f"virt.{alias.get(name, name)}": thing
        for name, thing in vars(module).items()
        if not name.startswith("_") and getattr(thing, "__module__", "") == module.__name__
    }


def connection_class():
    """libvirt's connection that has a host's name, and outlives who closes it."""
    import libvirt

    class Connection(libvirt.virConnect):
        def getHostname(self):
            return self.named

        def close(self):
            return 0

    return Connection


def refused(*_arguments, **_named):
    """No guest of the swarm is seeded or has an image."""
    raise NotImplementedError("the hosts of the swarm fetch nothing from the master")


class Host:
    """name: also its minion's id. opts: its minion's configuration. guests: the names of those that
    it has and that run. others: name to Host, of all.
    functions: ``virt.…`` to what :func:`library` has. send: sends an event to the master."""

    def __init__(self, name, opts, guests, others, functions, send):
        import libvirt

        self.name, self.opts, self.others = name, opts, others
        self.folder = Path(opts["cachedir"])
        self.grains = {}
        self.jobs = {}
        self.functions = {
            **functions, "test.ping": lambda: True, "saltutil.find_job": self.find_job,
            "config.get": self.config_get, "event.send": send, "pillar.ext": refused,
            "cp.get_url": refused,
        }  # fmt: skip
        node = self.folder / "node.xml"
        node.write_text(NODE, encoding="utf-8")
        self.connection = libvirt.open(f"test://{node}")
        self.connection.__class__ = connection_class()
        self.connection.named = name
        for guest in guests:
            self.connection.defineXML(GUEST.format(name=guest)).create()

    def config_get(self, key, default="", **_how):
        """Salt's ``config.get`` of the minion's configuration."""
        found = self.opts
        for word in key.split(":"):
            if not isinstance(found, Mapping) or word not in found:
                return default
            found = found[word]
        return found

    def find_job(self, jid):
        """Salt's own: a job that is at work, or {}."""
        return self.jobs.get(str(jid), {})

    def call(self, fun, arguments, named):
        """(what the function returned, its exit code), in a thread that has begun."""
        _at_work.host, _at_work.context = self, {}
        os.chdir(self.folder)
        try:
            returned = self.functions[fun](*arguments, **named)
        except Exception as exc:
            return f"ERROR: {exc}", 1
        return returned, _at_work.context.get("retcode", 0)

    def guests(self):
        """Name to whether it runs."""
        return {dom.name(): bool(dom.isActive()) for dom in self.connection.listAllDomains()}


def migratable(vm_, target=None, **_kwargs):
    """``virt.migratable`` of a guest that is here: its other host has all that it needs."""
    from saltvirt.answers.migration import Certificate, MigrationCheck
    from saltvirt.host.domain import lookup

    lookup.find(host().connection, vm_)
    hosts = [host().name, target]
    valid = [Certificate(one, "/etc/pki/qemu", "2027-11-21T09:00:00Z") for one in hosts]
    more = {"disks": {"vda": "overlay"}, "certificates": tuple(valid)} if target else {}
    return MigrationCheck(True, (), **more).to_answer()


def migrate(vm_, target, **kwargs):
    """``virt.migrate`` where libvirt cannot: the other host admits the guest, and has it then."""
    from saltvirt import settings
    from saltvirt.answers.migration import MigrationResult
    from saltvirt.host.domain import guest_lock, lookup
    from saltvirt.host.provision import admission
    from saltvirt.xml.domain.domain import Domain

    source, began = host(), time.monotonic()
    there = source.others[target]
    with guest_lock.acquire(guest_lock.folder(source.config_get), "virt.migrate", vm_):
        dom = lookup.find(source.connection, vm_)
        xml, runs = dom.XMLDesc(0), bool(dom.isActive())
        words = ("placement", "overcommit")
        given = {k: v for k, v in settings.user_kwargs(kwargs).items() if k in words}
        try:
            _at_work.host = there
            os.chdir(there.folder)
            config = admission.config_of(there.config_get, given)
            with config.lock():
                built = Domain.fromstring(xml)
                admission.check(there.connection, config, admission.request_of(built))
                made = there.connection.defineXML(xml)
        finally:
            _at_work.host = source
            os.chdir(source.folder)
        if runs:
            made.create()
            dom.destroy()
        dom.undefine()
    source.functions["event.send"](
        f"salt/virt/migrate/{vm_}/progress", {"name": vm_, "percent": 100, "elapsed_s": 0}
    )
    took_ms = int((time.monotonic() - began) * 1000)
    return MigrationResult(
        name=vm_, outcome="moved", source=source.name, target=target, live=runs, transport="memory",
        time_ms=took_ms, downtime_ms=took_ms if runs else None,
    ).to_answer()  # fmt: skip
