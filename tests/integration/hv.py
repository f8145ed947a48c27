"""The fixture ``hv``: one hypervisor of the lab for the tests of its functions."""

import json
import shlex
import subprocess

import pytest

# Salt's own loader with the machine's own configuration and what was synced to it. A process
# that stays answers in milliseconds; a minion's job, or salt-call, takes seconds each.
SALT = """
import dataclasses, json, sys, traceback
import salt.config, salt.loader
from salt.exceptions import CommandExecutionError
opts = salt.config.minion_config("/etc/salt/minion")
opts["grains"] = salt.loader.grains(opts)
functions = salt.loader.minion_mods(opts, utils=salt.loader.utils(opts), context={})
functions["virt.answer"]
from saltvirt.answers import calls
def answer(function, args, kwargs):
    request = calls.request_type(function)
    if request is None:
        return functions[function](*args, **kwargs)
    names = [field.name for field in dataclasses.fields(request) if not field.kw_only]
    given = {**dict(zip(names, args)), **kwargs}
    return calls.answer(calls.MinionContext(opts, functions), function, given)
out, sys.stdout = sys.stdout, sys.stderr
for line in sys.stdin:
    function, args, kwargs = json.loads(line)
    try:
        told = {"answer": answer(function, args, kwargs)}
    except CommandExecutionError as exc:
        told = {"error": str(exc)}
    except Exception:
        told = {"error": traceback.format_exc()}
    print(json.dumps(told), file=out, flush=True)
"""


class Hypervisor:
    """What Salt says of it, and what libvirt itself says."""

    def __init__(self, lab, name):
        self.lab, self.name = lab, name
        self._salt = None

    def close(self):
        if self._salt is not None:
            self._salt.stdin.close()
            self._salt.wait(timeout=300)

    def _ask(self, function, args, kwargs):
        if self._salt is None:
            argv = self.lab.machine(self.name).argv(["/opt/salt/bin/python", "-u", "-c", SALT])
            self._salt = subprocess.Popen(
                argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
        print(json.dumps([function, args, kwargs]), file=self._salt.stdin, flush=True)
        line = self._salt.stdout.readline()
        assert line, f"{function}: Salt on {self.name} ended"
        return json.loads(line)

    def call(self, function, *args, **kwargs):
        """What the function returns; fails when it is an error."""
        answer = self._ask(function, args, kwargs)
        assert "error" not in answer, f"{function}: {answer['error']}"
        return answer["answer"]

    def refuses(self, function, *args, **kwargs):
        """The error of a function that must fail: one line, no traceback."""
        answer = self._ask(function, args, kwargs)
        assert "error" in answer, f"{function} did not fail: {answer['answer']}"
        assert len(answer["error"].splitlines()) == 1, answer["error"]
        return answer["error"]

    def sh(self, script, check=True):
        """What a shell script in the machine prints."""
        return self.lab.exec(self.name, script, check=check).stdout

    def virsh(self, *words, check=True):
        """What virsh in the machine prints."""
        return self.lab.exec(self.name, ["virsh", "-q", *words], check=check).stdout

    def define(self, kind, xml):
        """virsh KIND-define (KIND empty: a guest) of an XML text."""
        verb = f"{kind}-define" if kind else "define"
        self.sh(f"printf %s {shlex.quote(xml)} > /root/x.xml && virsh -q {verb} /root/x.xml")

    def table(self, *words):
        """The first words of the lines that virsh prints, sorted."""
        return sorted(line.split()[0] for line in self.virsh(*words).splitlines() if line.strip())

    def facts(self, *words):
        """What virsh prints as lines of ``key: value``."""
        lines = [line.split(":", 1) for line in self.virsh(*words).splitlines() if ":" in line]
        return {key.strip(): value.strip() for key, value in lines}


def guest(name, disks="", memory_mib=64):
    """The XML of a guest with nothing to boot: it runs, under emulation, and idles."""
    return (
        f"<domain type='qemu'><name>{name}</name><memory unit='MiB'>{memory_mib}</memory>"
        "<vcpu>1</vcpu><os><type arch='x86_64' machine='pc'>hvm</type></os>"
        f"<devices>{disks}</devices></domain>"
    )


def file_disk(path, target="vda", kind="qcow2"):
    """A ``<disk>`` of a file."""
    return (
        f"<disk type='file' device='disk'><driver name='qemu' type='{kind}'/>"
        f"<source file='{path}'/><target dev='{target}' bus='virtio'/></disk>"
    )


@pytest.fixture(scope="module")
def hv(lab):
    """The first hypervisor of the lab."""
    machine = Hypervisor(lab, lab.hosts[0])
    # libvirt sets up the bridges of its networks through /proc/sys, read-only in a container
    machine.sh("mount -o remount,rw,bind /proc/sys")
    yield machine
    machine.close()
