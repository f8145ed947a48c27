"""Two machines on this one, for backups of a guest that runs: a libvirtd of our own with real QEMU,
and the real modules in processes of their own beside it, which are killed as those of a minion are.

    python -m tests.functional.backing NAME URI FOLDER

is such a process: a question a line of JSON, [function, arguments], and a line with the answer.
"""

import contextlib
import json
import os
import select
import subprocess
import sys
import time
from pathlib import Path

from tests.functional.daemon import Daemon

REPOSITORY = Path(__file__).resolve().parents[2]
# what measures the tests is there, too
PATH = [str(REPOSITORY), f"{REPOSITORY}/_utils", *filter(None, [os.environ.get("PYTHONPATH")])]
HERE = "127.0.0.1"
MIB = 1024**2
SIZE = 48 * MIB
AT = "/machine/peripheral/virtio-disk0/virtio-backend"
GUEST = """<domain type='qemu'><name>web1</name><memory>65536</memory>
<os><type arch='x86_64'>hvm</type></os><devices><disk type='file' device='disk'>
<driver name='qemu' type='qcow2'/><source file='{}'/><target dev='vda' bus='virtio'/></disk>
</devices></domain>"""
# what of a backup is there while none is under way
TRACES = """
ls -d {images}/_backup/* /var/lib/salt-virt/backups/* 2>/dev/null
ls /run/salt-virt/backups 2>/dev/null | grep -E 'sock|nbd|show-|pull-'
ss -Htln 'sport >= 10809 and sport < 10825'
pgrep -af 'export[.]export_serve[r]|storage-daemo[n]|target[.]pul[l]|qemu-nb[d]'
virsh -q -c {uri} domjobinfo web1 2>/dev/null | grep -E 'Backup|Unbounded'
find {target} -name '.new-*'
"""


class Salt:
    """A process of Salt that answers one question at a time. Raises AssertionError with an
    error."""

    def __init__(self, name, inside, uri, folder):
        self.argv = [*inside, sys.executable, "-m", __name__, name, uri, str(folder)]
        self.process = None

    def ask(self, function, **kwargs):
        """(the answer, its error)."""
        if self.process is None:
            env = {**os.environ, "PYTHONPATH": os.pathsep.join(PATH)}
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
            self.process = subprocess.Popen(self.argv, cwd=REPOSITORY, env=env, **pipes)
        line = ""
        with contextlib.suppress(OSError):
            print(json.dumps([function, kwargs]), file=self.process.stdin, flush=True)
            line = self.process.stdout.readline()
        if not line:
            self.close()
            return None, "the minion did not return"
        said = json.loads(line)
        return said.get("answer"), said.get("error")

    def close(self):
        """Its input ends, and then it does: what nsenter started has another parent. What it
        reached is written down by then."""
        if self.process:
            self.process.stdin.close()
            select.select([self.process.stdout], [], [], 10)
            self.process.kill()
            self.process.wait()
            self.process = None


class Machines:
    """The hypervisor and the machine of the target. disk: of the guest; now: what it holds."""

    def __init__(self, folder):
        self.daemon, self.folder = Daemon(alone=True), folder
        self.images, self.target = folder / "images", folder / "target"
        self.disk, self.now = folder / "web1.qcow2", bytearray(SIZE)
        os.chmod(folder, 0o755)
        self.images.mkdir()
        self.target.mkdir(mode=0o700)
        (folder / "web1.xml").write_text(GUEST.format(self.disk))
        self.daemon.wait()
        parts = self.daemon.inside, self.daemon.uri, folder
        self.hypervisor, self.machine = Salt("hv1", *parts), Salt("b1", *parts)

    def prepare(self):
        """The guest, off, with an empty disk; no backup, and nothing of any."""
        self.signal("CONT", "guest=web1,")
        self.until(lambda: self.sh(f"virsh -q -c {self.daemon.uri} list && echo yes", check=False))
        self.signal("KILL", "export[.]export_server|qemu-storage-daemo[n]|target[.]pul[l]")
        self.virsh("destroy web1", check=False)
        self.virsh("undefine web1 --checkpoints-metadata", check=False)
        self.sh(
            "rm -rf /var/lib/salt-virt/backups /run/salt-virt/backups/*.sock "
            f"{self.target}/* {self.images}/*; qemu-img create -q -f qcow2 {self.disk} {SIZE}"
        )
        self.virsh(f"define {self.folder}/web1.xml")
        self.now = bytearray(SIZE)

    @contextlib.contextmanager
    def small(self, folder, mib):
        """A file system of so many MiB is there for the block."""
        self.sh(f"mount -t tmpfs -o size={mib}m,mode=700 none {folder}")
        try:
            yield
        finally:
            self.hypervisor.close()
            self.machine.close()
            self.virsh("destroy web1", check=False)
            self.sh(f"umount -l {folder}")

    def sh(self, script, check=True, **more):
        """What a script prints that runs beside libvirtd."""
        argv = [*self.daemon.inside, "bash", "-c", script]
        done = subprocess.run(argv, capture_output=True, text=True, check=False, **more)
        assert not check or done.returncode == 0, f"{script}: {done.stderr}"
        return done.stdout.strip()

    def virsh(self, words, check=True):
        return self.sh(f"virsh -q -c {self.daemon.uri} {words}", check)

    def state(self):
        return self.virsh("domstate web1 --reason")

    def write(self, offset, length, byte):
        """By the guest's own QEMU."""
        told = f'qemu-io -d {AT} "write -P {byte} {offset} {length}"'
        said = self.virsh(f"qemu-monitor-command web1 --hmp '{told}'")
        assert not said, said
        self.now[offset : offset + length] = bytes([byte]) * length

    def as_it_is(self):
        """After a crash the file says what was kept."""
        raw = self.folder / "now"
        self.sh(f"qemu-img convert -O raw {self.disk} {raw}")
        self.now = bytearray(raw.read_bytes())

    def signal(self, name, pattern):
        """To what runs there, and nowhere else."""
        self.sh(f"pkill -{name} -f -- '{pattern}'", check=False)

    def traces(self):
        uri = self.daemon.uri
        return self.sh(
            TRACES.format(images=self.images, target=self.target, uri=uri), check=False
        ).splitlines()

    def until(self, wanted, seconds=60):
        end = time.monotonic() + 5 * seconds
        while not (found := wanted()):
            assert time.monotonic() < end, f"not within {5 * seconds} s; {self.traces()}"
            time.sleep(0.1)
        return found

    def close(self):
        self.hypervisor.close()
        self.machine.close()
        self.daemon.stop()


def main(name, uri, folder):
    from tests.functional import asking
    from tests.functional.conftest import load

    out, sys.stdout = sys.stdout, sys.stderr
    modules = load(uri, images=f"{folder}/images", lock=f"{folder}/lock", backup={"address": HERE})
    for line in sys.stdin:
        function, kwargs = json.loads(line)
        try:
            said = {"answer": asking.answer(modules, function, **kwargs)}
        except Exception as exc:
            said = {"error": str(exc)}
            if "saltvirt" not in type(exc).__module__:
                said = {"error": f"traceback of {name}:\n{type(exc).__name__}: {exc}"}
        print(json.dumps(said), file=out, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
