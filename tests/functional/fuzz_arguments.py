"""Calls every function of the execution modules and every state with one invalid argument, in a
sandbox. Prints a JSON object: the number of calls, and each fault with an example."""

import ast
import datetime
import gc
import inspect
import json
import os
import random
import re
import shutil
import signal
import sys
import time
import traceback

from saltvirt.backup.export import replaced_guest
from tests.driver import only_test
from tests.functional import backed_up, hostile
from tests.functional.boxed import BOX
from tests.functional.conftest import REPOSITORY, load
from tests.functional.pki_master import Master

URI = "test:///default"
IMAGES = BOX / "images"
MIB = 1024**2
OTHER = """<domain type='test'><name>web2</name><memory>65536</memory><os><type>hvm</type></os>
<devices><disk type='file'><driver name='qemu' type='raw'/><source file='{}/web2.raw'/>
<target dev='vda'/></disk></devices></domain>"""
# a backup has taken its place
THIRD = """<domain type='test'><name>web3</name><uuid>00000000-0000-4000-8000-000000000003</uuid>
<memory>65536</memory><os><type>hvm</type></os><devices><disk type='file'>
<driver name='qemu' type='raw'/><source file='{}'/><target dev='vda'/></disk></devices></domain>"""
THIRD_UUID = "00000000-0000-4000-8000-000000000003"
VAULT, SAVED = str(BOX / "vault"), BOX / "saved"
IDENT = "000003-20261123T155220Z-00000000"
VOLUME = "<volume><name>{}</name><capacity>1048576</capacity></volume>"
DOMAIN = "<domain type='test'><name>x1</name><memory>1</memory><os><type>hvm</type></os></domain>"

# where the library keeps what it does, and coverage.py what it has seen, where that measures
OWN = ("/run/salt-virt", "/var/lib/salt-virt",
       *map(os.path.dirname, filter(None, [os.environ.get("COVERAGE_PROCESS_START")])))  # fmt: skip
# what no host answers within, however busy it is, where nothing has to be waited for
LONG_S = 120
VALUES = (
    *hostile.VALUES, "test", "default", "default-pool", "-h", "--all", "-", "=", "/", "/dev/null",
    "/etc/shadow", "/no/such", "no/such", "[a-z]*", "(?:", ".*", "%s", "{}", "{{ x }}", "yes",
    "null", "~", "1e3", "0x10", "1_000", "1K", "-1G", "9" * 30 + "T", "a\0b", "a\nb", "\n", " ",
    " test ", "TEST", "é", "\udc80", "\U0001f600", "<a/>", "&amp;", "]]>", "'\"", "salt://x",
    "pool://default-pool/v1", "http://127.0.0.1:1/x", "file:///etc/shadow", "qemu:///system",
    datetime.date(2026, 1, 1), datetime.datetime(2026, 1, 1), (1, 2), {1, 2}, {None: None},
    [{}], [[]], [{"name": "a"}], [{"name": "a", "size": "x"}], [{"name": ["a"]}], ["test", "web2"],
    {"name": "test"}, {"boot": []}, {"maximum": {}}, {"type": 7}, {"a": [1, {"b": None}]}, 10**12,
    [None, None], {"mode": "x", "hosts": 7}, {"memory": "x"}, {"utc": "x", "offset": []},
)  # fmt: skip

# what functions are called with beside the argument that is wrong
EXAMPLES = {
    "vm_": "test", "name": "web2", "pool": "default-pool", "volume": "v1", "memory": 64, "vcpus": 1,
    "xml": DOMAIN, "cpu": 1, "mem": 64, "bridge": "br0", "forward": "nat", "ptype": "dir",
    "target": "/mnt/images", "disk": "vda", "size": 16, "file": "/mnt/file", "path": "/mnt/xml",
    "mpt": "/mnt/tree", "disks": ["/mnt/images/web2.raw"], "source": "/mnt/images/web2.raw",
    "config": {}, "fun": "virt.vm_state", "guests": {}, "interface": "eth7",
}  # fmt: skip
FOR = {
    "virt.init": {"name": "new1", "seed": False, "start": False, "nic": None, "disk": None},
    "virt.update": {"name": "test", "cpu": 0, "mem": 0}, "virt.clone": {"vm_": "web2", "name": "n"},
    "virt.rename": {"vm_": "web2", "name": "n"}, "virt.start": {"name": "web2"},
    "virt.stop": {"name": "test"}, "virt.reboot": {"name": "test"},
    "virt.network_define": {"name": "net9"}, "virt.network_update": {"name": "default"},
    "virt.network_get_xml": {"name": "default"}, "virt.network_start": {"name": "default"},
    "virt.network_stop": {"name": "default"}, "virt.network_undefine": {"name": "default"},
    "virt.network_set_autostart": {"name": "default"}, "virt.network_info": {"name": "default"},
    "virt.pool_define": {"name": "pool9"}, "virt.volume_define": {"name": "v9", "size": 1},
    "virt.volume_clone": {"name": "v9"}, "virt.migrate": {"target": "hv2"},
    "virt.migrate_non_shared": {"target": "hv2"}, "virt.migrate_non_shared_inc": {"target": "hv2"},
    "virt.seed_non_shared_migrate": {"disks": {}}, "virt.screenshot": {"path": "/mnt/shot"},
    "virt.define_vol_xml_str": {"xml": VOLUME.format("v9")}, "seed.apply": {"path": "/mnt/tree"},
    "virt.define_vol_xml_path": {"path": "/mnt/volume.xml"}, "virt.purge": {"vm_": "web2"},
    "virt.undefine": {"vm_": "web2"}, "virt.snapshot": {"domain": "test", "name": "s1"},
    "virt.revert_snapshot": {"name": "test"}, "virt.delete_snapshots": {"name": "test"},
    "virt.firewall_plan": {"hosts": []}, "virt.firewall_apply": {"hosts": []},
    "state virt.firewall": {"hosts": []},
    "state virt.defined": {"name": "new1", "seed": False}, "state virt.absent": {"name": "web2"},
    "state virt.running": {"name": "new1", "seed": False},
    "state virt.network_defined": {"name": "net9"}, "state virt.network_running": {"name": "net9"},
    "state virt.network_absent": {"name": "default"}, "state virt.migrated": {"target": "hv2"},
    "state virt.pool_defined": {"name": "pool9"}, "state virt.pool_running": {"name": "pool9"},
    "state virt.pool_deleted": {"name": "default-pool"}, "state virt.on_host": {"target": "hv2"},
    "state virt.volume_defined": {"name": "v9", "size": 1}, "state virt.bridge": {"name": "br0"},
    "state virt.volume_absent": {"name": "v1"}, "state virt.image_cached": {"name": "/mnt/file"},
    **{f"state virt.{verb}": {"name": "test"} for verb in (
        "stopped", "powered_off", "unpowered", "rebooted", "snapshot", "saved", "reverted")},
}  # fmt: skip
for _noun in ("info", "get_xml", "start", "build", "stop", "undefine", "delete", "refresh",
              "set_autostart", "list_volumes", "update"):  # fmt: skip
    FOR.setdefault(f"virt.pool_{_noun}", {"name": "default-pool"})
for _name in ("virt.tls_update", "state virt.keys", "state libvirt.keys"):
    FOR[_name] = {"basepath": "/mnt/pki", "reload": False}
FOR["state virt.deployed"] = {"guests": {"web1": {"mem": 64}}}
# backups: nobody shows anything on the port, and no system is in the disk
_VAULT = {"folder": VAULT}
FOR |= {
    "virt.backup_end": {"name": "test", "backup_id": IDENT},
    "virt.backup_list": _VAULT,
    "virt.backup": {**_VAULT, "name": "test"},
    "virt.backup_bring": {**_VAULT, "name": "web1", "backup": "9"},
    "virt.backup_ls": {**_VAULT, "name": "web1", "backup": "9"},
    "virt.backup_get": {**_VAULT, "name": "web1", "path": "/etc/fstab", "backup": "9"},
    "virt.backup_prune": {**_VAULT, "retention": {"last": 1}}, "virt.backup_verify": _VAULT,
    "virt.backup_confirm": {"vm_": "web3"},
    "virt.backup_undo": {"name": "web3"},
}  # fmt: skip
# the bootstrap script is run in the folder that is seeded, which has no system to run it with
FOR["seed.apply"]["install"] = False
# what it writes on the host is its whole work; no systemd is here that would take it
WRITES = ("firewall", "bridge", "prep_bootstrap", "mkconfig", "screenshot", "ha_")


# below the box what is not the host's: of the box itself, locks, and the master's
NOT_ITS = ("upper", "work", "lock", "master")


def orchestrated(function, kwarg):
    """What the runner answers to a state; its own arguments are in test_hostile_answers."""
    assert function in ("virt.deployed", "virt.ha_enable", "virt.ha_disable", "virt.backup_due",
                        "virt.backup_restore")  # fmt: skip
    told = {"result": True, "comment": "nothing is to be done", "changes": {}}
    of_one = kwarg["guests"][0] if function == "virt.backup_due" else kwarg.get("name")
    return {"data": {str(kwarg.get("deployment", of_one)): told}}


class TooLong(BaseException):
    pass


def _alarm(*_args):
    raise TooLong


class Host:
    """The modules and the states on libvirt's test driver; as new when it has been changed."""

    def __init__(self, box):
        import libvirt
        import salt.loader

        from saltvirt.seed import keys

        self.box, self.libvirt = box, libvirt
        libvirt.registerErrorHandler(lambda *_: None, None)
        libvirt.virEventRegisterDefaultImpl()
        self.modules = load(
            URI, images=str(IMAGES), lock=str(BOX / "lock"),
            placement={"reserved_memory_kib": 0, "memory_ratio": 10, "reserved_disk_bytes": 0},
            # an image is refused by it, where libguestfs would start a machine of its own
            seed={"backend": "directory"},
        )  # fmt: skip
        self.modules.opts.update(id="hv1", pki_dir=str(BOX / "minion"))
        (BOX / "minion").mkdir()
        (BOX / "minion/minion.pem").write_text(keys.generate()[0])
        master = Master(BOX / "master", hosts="hv*").accept("hv1", "hv2")
        # of modules of Salt that are not about guests; what a master answers
        for name, function in {
            "network.interfaces": dict, "config.gather_bootstrap_script": lambda: "/dev/null",
            "pillar.ext": master.ext("hv1"), "saltutil.runner": orchestrated,
        }.items():  # fmt: skip
            # the loader whose functions modules call each other by is another since Salt 3008.3
            for loader in (self.modules, getattr(self.modules, "_dunder_salt", self.modules)):
                loader.get(name)  # so that its module is loaded, and not again
                loader._dict[name] = function
        opts = dict(self.modules.opts)
        opts["states_dirs"] = [str(REPOSITORY / "_states")]
        self.states = salt.loader.states(opts, self.modules, {}, None)
        self.conn = None
        guest = backed_up.Guest(SAVED)
        guest.write(7, 7)
        guest.back_up(made=IDENT)
        self.renew()

    def renew(self):
        """The host as it is at the beginning of each call."""
        if self.conn is not None:
            self.conn.close()
            gc.collect()  # a traceback can hold a connection, and the host lives as long as one
        self.conn = self.libvirt.open(URI)
        only_test(self.conn)
        shutil.rmtree(VAULT, ignore_errors=True)
        for name in ("images", "lock", "tree", "pki"):
            shutil.rmtree(BOX / name, ignore_errors=True)
            (BOX / name).mkdir()
        for path in (IMAGES / "web2.raw", IMAGES / "web3.raw", IMAGES / "web3.2.raw", BOX / "file"):
            path.write_bytes(bytes(510) + b"\x55\xaa" + bytes(1024))
            os.truncate(path, MIB)
        (BOX / "xml").write_text(DOMAIN)
        (BOX / "volume.xml").write_text(VOLUME.format("v8"))
        self.conn.defineXML(OTHER.format(IMAGES))
        self.conn.defineXML(THIRD.format(IMAGES / "web3.2.raw"))
        made = (str(IMAGES / "web3.2.raw"),)
        replaced_guest.store(
            replaced_guest.ReplacedGuest(
                THIRD_UUID, "web3", IDENT, THIRD.format(IMAGES / "web3.raw"), made
            )
        )
        shutil.copytree(SAVED, VAULT)
        self.conn.storagePoolLookupByName("default-pool").createXML(VOLUME.format("v1"))
        self.box.read_if_changed()
        self.before = self.state()

    def state(self):
        """All that libvirt has, and the files of our own folders."""
        found = {}
        conn = self.conn
        for one in conn.listAllDomains():
            about = [one.XMLDesc(flags) for flags in (0, self.libvirt.VIR_DOMAIN_XML_INACTIVE)]
            about += [sorted(s.getName() for s in one.listAllSnapshots()), one.autostart()]
            found[f"domain {one.name()}"] = about
        for one in conn.listAllNetworks():
            found[f"network {one.name()}"] = one.XMLDesc(), one.isActive(), one.autostart()
        for one in conn.listAllStoragePools():
            volumes = [v.XMLDesc() for v in one.listAllVolumes()] if one.isActive() else None
            found[f"pool {one.name()}"] = one.XMLDesc(), one.isActive(), one.autostart(), volumes
        for folder, _, files in os.walk(BOX):
            if folder.startswith(tuple(str(BOX / name) for name in NOT_ITS)):
                continue
            locks = folder.endswith("/_base/.locks")  # of the cache of images: never removed
            for name in files:
                path = os.path.join(folder, name)
                size = os.lstat(path).st_size
                if size or not locks:
                    found[path] = size
        return found

    def functions(self):
        """Name to the function, of all that are ours."""
        found = {}
        for folder, loader, prefix in (
            ("_modules", self.modules, ""), ("_states", self.states, "state "),
        ):  # fmt: skip
            for path in sorted((REPOSITORY / folder).glob("*.py")):
                tree = ast.parse(path.read_text(encoding="utf-8"))
                module = path.stem if path.stem in ("seed", "libvirt") else "virt"
                for node in tree.body:
                    if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                        name = f"{module}.{node.name.rstrip('_')}"
                        found[prefix + name] = loader[name]
        return found


def arguments(name, function):
    """(those that it is called with, the names of all that it takes)."""
    given, known = {}, {}
    for parameter in inspect.signature(function.func).parameters.values():
        if parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
            continue
        known[parameter.name] = None
        if parameter.default is parameter.empty:
            given[parameter.name] = EXAMPLES.get(parameter.name, "x")
    documented = re.findall(r":param ([a-z_]+):", inspect.unwrap(function.func).__doc__ or "")
    given.update(FOR.get(name, {}))
    known.update(dict.fromkeys(documented))
    known.pop("kwargs", None)
    known.pop("names", None)
    return given, list(known)


def calls(functions):
    """(name, arguments, the one that is wrong) of each call."""
    for name, function in functions.items():
        given, known = arguments(name, function)
        yield name, given, None
        for word in known:
            for value in VALUES:
                yield name, {**given, word: value}, word
            if isinstance(given.get(word), (dict, list)) and given[word]:
                for (where, *_), value in hostile.twisted(given[word]):
                    yield name, {**given, word: value}, f"{word}.{'.'.join(map(str, where))}"
        if inspect.signature(function.func).parameters.get("kwargs"):
            for word in ("colour", "-h", "connectio"):
                yield name, {**given, word: 1}, word


def short(value):
    text = repr(value)
    return text if len(text) < 60 else f"{text[:40]}…{len(text)}"


def _where(exc):
    """The last line of ours in a traceback."""
    frames = traceback.extract_tb(exc.__traceback__)
    ours = [f for f in frames if "saltvirt" in f.filename or str(REPOSITORY) in f.filename]
    frame = (ours or frames)[-1]
    return f"{os.path.basename(frame.filename)}:{frame.lineno}"


def is_said(exc):
    """Whether Salt shows this as one line."""
    return any(one.__name__ == "CommandExecutionError" for one in type(exc).__mro__)


def one(host, name, function, given):
    """What was wrong with a call: sentences."""
    failed, told = False, None
    signal.alarm(LONG_S)
    try:
        told = function(**given)
    except TooLong as exc:
        yield f"takes longer than {LONG_S} s at {_where(exc)}"
    except Exception as exc:
        failed = True
        if not is_said(exc):
            yield f"{type(exc).__name__}: {str(exc)[:150]} at {_where(exc)}"
        elif len(str(exc).splitlines()) > 1:
            yield f"more than one line at {_where(exc)}: {str(exc)[:100]!r}"
        elif not str(exc).strip():
            yield f"says nothing at {_where(exc)}"
    finally:
        signal.alarm(0)
    if name.startswith("state ") and not failed:
        failed = not (isinstance(told, dict) and told.get("result") is not False)
        if not isinstance(told, dict) or set(told) < {"name", "changes", "result", "comment"}:
            yield f"no state's answer: {short(told)}"
        elif len(str(told["comment"]).splitlines()) > 1:
            yield f"more than one line: {told['comment'][:150]!r}"
    now, news = host.state(), host.box.read_if_changed()
    if failed and now != host.before and not (isinstance(told, dict) and told.get("changes")):
        changed = [k for k in {*now, *host.before} if now.get(k) != host.before.get(k)]
        yield f"failed, and changed {', '.join(sorted(changed))}"
    news = [path for path in news if not path.startswith(OWN)]
    if news and not any(word in name for word in WRITES):
        yield f"wrote {', '.join(news)[:200]}"
    if now != host.before or news:
        host.renew()


def go(box, seed="1", most="1000", only=""):
    """most: how many calls, of all; 0: all. only: names that match this pattern."""
    signal.signal(signal.SIGALRM, _alarm)
    host, wrong, counted, slow = Host(box), {}, 0, {}
    functions = host.functions()
    functions = {k: v for k, v in functions.items() if re.search(only, k)}
    cases = list(calls(functions))
    if int(most):
        plain = [case for case in cases if case[2] is None]
        cases = [*plain, *random.Random(int(seed)).sample(cases, min(int(most), len(cases)))]
    for name, given, word in cases:
        counted += 1
        began = time.monotonic()
        try:
            found = list(one(host, name, functions[name], given))
        except Exception:
            print(f"{name}({word}={short(given.get(word))})", file=sys.stderr)
            raise
        slow[name] = max(slow.get(name, 0), time.monotonic() - began)
        for why in found:
            called = ", ".join(f"{k}={short(v)}" for k, v in given.items())
            wrong.setdefault(f"{name} {why}", f"{name}({called})  [{word}]")
    slowest = sorted(slow.items(), key=lambda item: -item[1])[:8]
    print(json.dumps({"functions": sorted(functions), "calls": counted, "all": len(cases),
                      "slowest": slowest, "wrong": wrong}))  # fmt: skip
