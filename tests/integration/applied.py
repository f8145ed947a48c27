"""The fixture ``applied``: states applied on one hypervisor of the lab, and the files that they
wrote."""

import difflib
import json
import subprocess

import pytest

# Salt's own state compiler with the machine's configuration and what was synced to it; a
# process that stays, as a minion's job takes seconds each. A line without a function asks for
# all that a state could have written: definitions, secrets, files with owners, modes, content.
COMPILER = """
import hashlib, json, os, re, sys
import libvirt
import salt.config, salt.loader, salt.state

FOLDERS = ("/etc/libvirt", "/var/lib/salt-virt", "/srv/labpool", "/srv/salt-images")
compilers = {}
for test in (True, False):
    opts = salt.config.minion_config("/etc/salt/minion")
    opts.update(test=test, file_client="local")
    opts["grains"] = salt.loader.grains(opts)
    compilers[test] = salt.state.State(opts)
conn = libvirt.open()

def files():
    for folder in FOLDERS:
        for where, folders, names in os.walk(folder):
            for name in sorted(folders + names):
                path = os.path.join(where, name)
                status = os.lstat(path)
                regular = os.path.isfile(path) and status.st_size < 1 << 24
                digest = hashlib.sha256(open(path, "rb").read()).hexdigest() if regular else ""
                yield [path, oct(status.st_mode), status.st_uid, status.st_gid, digest]

def written():
    things = [*conn.listAllNetworks(), *conn.listAllStoragePools(), *conn.listAllDomains()]
    found = [[t.name(), t.isActive(), t.XMLDesc(0)] for t in things]
    found += [[t.name(), t.XMLDesc(1)] for t in things if t.isPersistent()]
    # how full a file system is changes by itself
    found = [re.sub("<(allocation|available) [^/]*/", "", str(one)) for one in found]
    found += [secret.XMLDesc(0) for secret in conn.listAllSecrets()]
    return sorted(map(str, found)) + sorted(map(str, files()))

out, sys.stdout = sys.stdout, sys.stderr
for line in sys.stdin:
    function, name, parameters, test = json.loads(line)
    if function is None:
        print(json.dumps(written()), file=out, flush=True)
        continue
    if function == "high":
        print(json.dumps(compilers[test].call_high(parameters), default=str), file=out, flush=True)
        continue
    module, _, function = function.partition(".")
    body = [function, *({key: value} for key, value in parameters.items())]
    high = {name: {module: body, "__sls__": "table", "__env__": "base"}}
    (answer,) = compilers[test].call_high(high).values()
    print(json.dumps(answer, default=str), file=out, flush=True)
"""


class Applied:
    """Applies single states and looks at the answers."""

    def __init__(self, hv):
        self.hv = hv
        argv = hv.lab.machine(hv.name).argv(["/opt/salt/bin/python", "-u", "-c", COMPILER])
        pipe = subprocess.PIPE
        self._salt = subprocess.Popen(argv, stdin=pipe, stdout=pipe, text=True)

    def close(self):
        self._salt.stdin.close()
        self._salt.wait(timeout=300)

    def __call__(self, function, name, test=False, **parameters):
        """Salt's answer for one state."""
        return self._ask(f"virt.{function}", name, parameters, test)

    def _ask(self, *request):
        print(json.dumps(request), file=self._salt.stdin, flush=True)
        line = self._salt.stdout.readline()
        assert line, f"{request}: Salt on {self.hv.name} ended"
        return json.loads(line)

    def high(self, high):
        """What ``test=True`` says of an SLS as Salt's compiler has it."""
        return self._ask("high", None, high, True)

    def written(self):
        """All that a state could have written."""
        return self._ask(None, None, None, None)

    def nothing_written(self, before):
        """Since then; what was is in the error."""
        found = self.written()
        if found != before:
            then, now = ("\\n".join(texts).split("\\n") for texts in (before, found))
            raise AssertionError("\n".join(difflib.unified_diff(then, now, n=1, lineterm="")))

    def quiet(self, function, name, **parameters):
        """There is nothing to do, with and without ``test``, and nothing is done."""
        before = self.written()
        for test in (True, False):
            answer = self(function, name, test, **parameters)
            assert (answer["result"], answer["changes"]) == (True, {}), answer
        self.nothing_written(before)
        return answer

    def changes(self, function, name, **parameters):
        """The state changes something: as ``test=True`` said without writing, and once."""
        before = self.written()
        told = self(function, name, True, **parameters)
        assert told["result"] is None, told
        assert told["changes"], told
        self.nothing_written(before)
        done = self(function, name, False, **parameters)
        assert done["result"] is True, done
        assert done["changes"] == told["changes"]
        self.quiet(function, name, **parameters)
        return done

    def fails(self, function, name, **parameters):
        """The comment of a state that fails, with and without ``test``, and writes nothing."""
        before = self.written()
        for test in (True, False):
            answer = self(function, name, test, **parameters)
            assert (answer["result"], answer["changes"]) == (False, {}), answer
        self.nothing_written(before)
        return answer["comment"]


@pytest.fixture(scope="module")
def applied(hv):
    """States of the first hypervisor of the lab."""
    found = Applied(hv)
    yield found
    found.close()
