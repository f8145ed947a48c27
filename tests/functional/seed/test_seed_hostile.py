"""Images that try to make this host seed, read or wait for something else."""

import fcntl
import os
import pathlib
import stat
import struct
import subprocess
import sys
import time
import types

import pytest

from saltvirt import errors, seed
from saltvirt.seed import backends, guestfish, keys, mounted, network, partitions
from saltvirt.seed.tree import MAX_FILE_BYTES, DirTree
from saltvirt.system import paths
from tests import clock
from tests.functional.conftest import load
from tests.functional.seed.test_seed import system
from tests.lab import kvm

MIB = 1024 * 1024


@pytest.fixture(scope="module")
def data():
    return seed.SeedData("web1", *keys.generate(), master="10.0.0.1", hostname="web1")


@pytest.fixture
def host(tmp_path):
    """Stands for the hypervisor itself."""
    return system(tmp_path / "host")


def content(root):
    """All that is in a folder: kinds and texts."""
    found = {}
    for folder, names, files in os.walk(root):
        for name in names + files:
            path = os.path.join(folder, name)
            mode = os.lstat(path).st_mode
            found[path] = (mode, pathlib.Path(path).read_bytes() if stat.S_ISREG(mode) else None)
    return found


# -- a tree that leads out of itself ------------------------------------------------------

MOUNTING = pytest.mark.skipif(
    os.geteuid() != 0 or not mounted.available("fuse"), reason="mounting needs root and /dev/fuse"
)


@MOUNTING
@pytest.mark.parametrize("name", ["@", "root", "@rootfs"])
def test_an_image_does_not_make_the_host_the_guest(tmp_path, host, data, name):
    inside = tmp_path / "inner"
    inside.mkdir()
    (inside / name).symlink_to(host)
    (inside / "padding").write_bytes(bytes(MIB))
    disk = whole_disk(tmp_path, inside)
    before = content(host)
    with pytest.raises(
        errors.SeedFailed, match="no file system of the disk contains an operating system"
    ):
        seed.apply(str(disk), "raw", data, "fuse")
    assert content(host) == before


def whole_disk(tmp_path, inside):
    """A raw disk that is one ext4 with what is in the folder ``inside``."""
    disk = tmp_path / "disk.raw"
    with open(disk, "wb") as file:
        file.truncate(20 * MIB)
    subprocess.run(["mkfs.ext4", "-q", "-d", str(inside), str(disk)], check=True)
    return disk


@MOUNTING
def test_a_subvolume_that_is_one_is_seeded(tmp_path, data):
    inside = tmp_path / "inner"
    inside.mkdir()
    system(inside / "@")
    disk = whole_disk(tmp_path, inside)
    seed.apply(str(disk), "raw", data, "fuse")
    with backends._shown(str(disk), "raw", "fuse", False) as tree:
        assert tree.read("/etc/hostname") == b"web1\n"


LINKS = ["/etc", "/etc/salt", "/etc/hosts", "/etc/ssh", "/usr", "/etc/salt/pki/minion"]


@pytest.mark.parametrize("up", ["", "../../../../../../../../.."])
@pytest.mark.parametrize("place", LINKS)
def test_no_link_in_the_tree_leads_to_the_host(tmp_path, host, data, place, up):
    root = system(tmp_path / "root")
    where = root / place[1:]
    subprocess.run(["rm", "-rf", where], check=True)
    where.symlink_to(f"{up}{host}{place}")
    before = content(host)
    try:
        seed.apply(str(root), None, data)
    except errors.SeedFailed as exc:
        assert "\n" not in str(exc)
    assert content(host) == before


def test_paths_stay_in_the_tree(tmp_path, host):
    root = tmp_path / "root"
    (root / "a/b").mkdir(parents=True)
    (root / "a/up").symlink_to("../../../../../../../..")
    (root / "a/back").symlink_to("b/../b")
    (root / "a/b/file").write_text("ours")
    with DirTree(root) as tree:
        assert tree.read("/a/up/a/b/file") == tree.read("/../../a/back/file") == b"ours"
        assert not tree.exists("/a/up" + str(host) + "/etc/hostname")
        assert tree.names("/a/up") == ["a"]
        tree.write("/a/up/etc/x", b"x", 0o644)
        assert (root / "etc/x").read_text() == "x"
        tree.remove("/a/up")
        assert not os.path.lexists(root / "a/up")
        assert tree.names("/") == ["a", "etc"]


def test_a_tree_that_changes_under_us_leads_nowhere_else(tmp_path, host):
    """A folder becomes a link to the host again and again while files are written."""
    root = tmp_path / "root"
    (root / "etc").mkdir(parents=True)
    (root / "swap").symlink_to(host / "etc")
    script = (
        "import os, sys\n"
        "while True:\n"
        "    try: os.rename('etc', 'keep'); os.rename('swap', 'etc')\n"
        "    except OSError: pass\n"
        "    try: os.rename('etc', 'swap'); os.rename('keep', 'etc')\n"
        "    except OSError: pass\n"
    )
    before = content(host)
    with (
        subprocess.Popen([sys.executable, "-c", script], cwd=root) as swapper,
        DirTree(root) as tree,
    ):
        end = time.monotonic() + 1
        while time.monotonic() < end:
            for action in (
                lambda: tree.write("/etc/hostname", b"evil", 0o644),
                lambda: tree.remove("/etc/machine-id"),
                lambda: tree.make_dir("/etc/salt", 0o777),
            ):
                try:
                    action()
                except OSError:
                    continue
        swapper.kill()
    assert content(host) == before


def test_the_script_for_a_bootstrap_stays_in_the_guest(tmp_path, host):
    pytest.importorskip("salt")
    root = system(tmp_path / "root")
    (root / "tmp").symlink_to("../host")
    before = content(host)
    script = tmp_path / "bootstrap.sh"
    script.write_text("#!/bin/sh\n")
    modules = load("test:///default", seed={"bootstrap": str(script)})
    made, inside = modules["seed.prep_bootstrap"](str(root))
    assert content(host) == before
    assert made.startswith(str(root))
    assert pathlib.Path(made).read_text() == "#!/bin/sh\n"
    with DirTree(root) as tree:
        assert tree.read(f"{inside}/bootstrap-salt.sh") == b"#!/bin/sh\n"


# -- what never ends ----------------------------------------------------------------------


def a_pipe(path):
    path.unlink()
    os.mkfifo(path)


def a_sparse_file(path):
    with open(path, "wb") as file:
        file.truncate(1024**4)


def a_device(path):
    path.unlink()
    os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 5))  # /dev/zero


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (a_pipe, "not a regular file"),
        (a_sparse_file, "is larger than"),
        pytest.param(
            a_device, "not a regular file",
            marks=pytest.mark.skipif(os.geteuid() != 0, reason="makes a device: needs root"),
        ),
    ],
)  # fmt: skip
def test_what_never_ends_is_not_read(tmp_path, data, make, why):
    root = system(tmp_path / "root")
    make(root / "etc/hosts")
    with pytest.raises(errors.SeedFailed, match=f"/etc/hosts in the guest {why}|{why}"):
        seed.apply(str(root), None, data)


def test_a_folder_of_endless_names_is_not_listed(tmp_path, monkeypatch):
    monkeypatch.setattr("saltvirt.seed.tree.MAX_NAMES", 3)
    for name in "abc":
        (tmp_path / name).touch()
    with DirTree(tmp_path) as tree:
        assert tree.names("/") == ["a", "b", "c"]
        (tmp_path / "d").touch()
        with pytest.raises(errors.SeedFailed, match=r"^/ in the guest has more than 3 files$"):
            tree.names("/")


def test_many_files_of_netplan_are_not_all_read(tmp_path):
    root = system(tmp_path / "root")
    netplan = root / "etc/netplan"
    netplan.mkdir(parents=True)
    (root / "usr/sbin").mkdir(parents=True, exist_ok=True)
    (root / "usr/sbin/netplan").write_text("")
    for number in range(100):
        with open(netplan / f"{number:03}.yaml", "wb") as file:
            file.truncate(MIB)
    with DirTree(root) as tree, pytest.raises(errors.SeedFailed, match="netplan in the guest has"):
        network.configure(tree, [{"mac": "52:54:00:00:00:01", "addresses": ["192.0.2.7/24"]}])


def test_a_file_as_large_as_is_read(tmp_path):
    (tmp_path / "file").write_bytes(bytes(MAX_FILE_BYTES))
    with DirTree(tmp_path) as tree:
        assert len(tree.read("/file")) == MAX_FILE_BYTES


GUESTFISH = """#!/bin/sh
while read -r line; do
    case $line in
        -download*) yes | head -c 100000000;;
        -sleep*) sleep 600;;
        echo*) echo "${line#echo }";;
    esac
done
"""


@pytest.fixture
def session(tmp_path, monkeypatch):
    (tmp_path / "guestfish").write_text(GUESTFISH)
    (tmp_path / "guestfish").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    with guestfish.Session() as found:
        yield found


def test_guestfish_says_no_more_than_we_read(session):
    with pytest.raises(errors.SeedFailed, match="printed more than"):
        session.run("download", "/etc/hosts", "-")


def test_guestfish_is_not_waited_for_without_end(session):
    with pytest.raises(errors.SeedFailed, match="did not respond within 1 s: sleep"):
        session.run("sleep", 600, timeout_s=1)


def test_guestfish_that_ends_is_one_line(tmp_path, monkeypatch):
    (tmp_path / "guestfish").write_text("#!/bin/sh\nread -r line\necho no appliance >&2\n")
    (tmp_path / "guestfish").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    with guestfish.Session() as session:
        for _ in range(2):  # it has ended the second time
            with pytest.raises(errors.SeedFailed, match=r"^guestfish ended: no appliance$"):
                session.run("run")
            session._process.wait()
            session._error_offset = 0


def test_guestfish_that_does_not_end_is_ended(tmp_path, monkeypatch):
    (tmp_path / "guestfish").write_text("#!/bin/sh\nexec sleep 600\n")
    (tmp_path / "guestfish").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(guestfish, "_END_S", 0.1)
    with guestfish.Session() as session:
        process = session._process
    assert process.returncode == -9


def test_a_guestfish_that_has_ended_is_not_killed(tmp_path, monkeypatch):
    """Its number may be another process's by then."""
    (tmp_path / "guestfish").write_text("#!/bin/sh\nread -r line\n")
    (tmp_path / "guestfish").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    killed = []
    monkeypatch.setattr(guestfish.os, "killpg", lambda *who: killed.append(who))
    with guestfish.Session() as session:
        session._process.stdin.write(b"end\n")
        session._process.stdin.flush()
        session._process.wait()
        with pytest.raises(errors.SeedFailed, match=r"^guestfish ended: "):
            session.save(bytes, "download", "/etc/hosts", "-")
    assert killed == []


def test_an_appliance_lives_until_all_of_it_has_ended(tmp_path, monkeypatch):
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as process:
        assert guestfish._has_living(process.pid)
        process.kill()
        clock.until(lambda: not guestfish._has_living(process.pid), "only its status is left")
    (tmp_path / "guestfish").write_text(GUESTFISH)
    (tmp_path / "guestfish").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    answers = [True, True, False]
    monkeypatch.setattr(guestfish, "_has_living", lambda _group: answers.pop(0))
    with (
        pytest.raises(errors.SeedFailed, match="did not respond"),
        guestfish.Session() as session,
    ):
        session.run("sleep", 600, timeout_s=0.1)
    assert answers == [], "it is waited for"


@pytest.mark.parametrize("way", ["timeout", "told-to-end"])
def test_the_disk_is_free_when_an_appliance_was_given_up(tmp_path, monkeypatch, way):
    """The second way to start an appliance, by software alone, met the lock of the first one's
    QEMU, which outlived its guestfish by a moment."""
    (tmp_path / "disk").touch()
    (tmp_path / "guestfish").write_text(
        f"#!/bin/sh\nflock {tmp_path}/disk sh -c 'echo $$ > {tmp_path}/pid; exec sleep 600' &\n"
        "read -r line\nexec sleep 600\n"
    )
    (tmp_path / "guestfish").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)

    def given_up():
        with guestfish.Session() as session:
            clock.until((tmp_path / "pid").exists, "the appliance's QEMU runs")
            if way == "told-to-end":
                raise KeyboardInterrupt
            session.run("run", timeout_s=0.1)

    with pytest.raises((errors.SeedFailed, KeyboardInterrupt)):
        given_up()
    with open(tmp_path / "disk") as disk:
        fcntl.flock(disk, fcntl.LOCK_EX | fcntl.LOCK_NB)


class Appliance:
    """Stands for a guestfish that runs: command and arguments to what it says, or an error."""

    def __init__(self, **answers):
        self.answers, self.asked = answers, []

    def run(self, command, *arguments, timeout_s=None):
        self.asked.append((command, *arguments))
        found = self.answers.get(command.replace("-", "_"), "")
        found = found(*arguments) if callable(found) else found
        if found is None:
            raise errors.SeedFailed(f"libguestfs: {command} {arguments}")
        return found.encode()

    def text(self, *command):
        return self.run(*command).decode().strip()

    def mounted(self):
        return [asked[1:] for asked in self.asked if asked[0] in ("mount", "umount-all")]


PARTS = {"list_partitions": "/dev/sda1 /dev/sda2", "vfs_type": "ext4"}


def test_a_plain_disk_without_a_system_is_looked_at_more_closely():
    one = Appliance(list_devices="/dev/sda", vfs_type="ext4", is_dir="true")
    guestfish._mount(one)
    assert one.mounted() == [("/dev/sda", "/")]
    other = Appliance(
        list_devices="/dev/sda", vfs_type="ext4", is_dir="false", inspect_os="/dev/sda",
        inspect_get_mountpoints="/: btrfsvol:/dev/sda/root\n",
    )  # fmt: skip
    guestfish._mount(other)
    assert other.mounted() == [("/dev/sda", "/"), (), ("btrfsvol:/dev/sda/root", "/")]


def test_the_system_is_mounted_as_its_own_table_says():
    """One of its folders that cannot be mounted is left out; the system itself is not."""
    points = "/var/log: /dev/vg/log\n/: /dev/vg/root\n/var: /dev/vg/var\n"
    known = {**PARTS, "inspect_os": "/dev/vg/root", "inspect_get_mountpoints": points}
    found = Appliance(**known, mount=lambda device, _point: None if "var" in device else "")
    guestfish._mount(found)
    assert found.mounted() == [
        ("/dev/vg/root", "/"), ("/dev/vg/var", "/var"), ("/dev/vg/log", "/var/log"),
    ]  # fmt: skip
    with pytest.raises(errors.SeedFailed, match="libguestfs: mount"):
        guestfish._mount(Appliance(**known, mount=None))
    two = Appliance(**PARTS, inspect_os="/dev/sda1 /dev/sda2")
    with pytest.raises(errors.SeedFailed, match=r"^the disk has 2 operating systems$"):
        guestfish._mount(two)
    assert two.mounted() == []


def test_a_system_of_no_known_name_is_one_that_has_its_folders():
    held = []

    def mount(device, _point):
        held[:] = [device]
        return None if device == "/dev/broken" else ""

    systems = "/dev/swap: swap\n/dev/broken: ext4\n/dev/data: xfs\n/dev/root: ext4\n"
    known = {**PARTS, "list_filesystems": systems, "mount": mount}
    found = Appliance(**known, is_dir=lambda path: str(held == ["/dev/root"]).lower())
    guestfish._mount(found)
    assert found.mounted() == [("/dev/broken", "/"), ("/dev/data", "/"), (), ("/dev/root", "/")]
    with pytest.raises(
        errors.SeedFailed, match="no file system of the disk contains an operating system"
    ):
        guestfish._mount(Appliance(**known, is_dir="false"))


@pytest.fixture
def begun(monkeypatch, tmp_path):
    """Each start of an appliance: by software alone?, and what it was waited for. It has KVM, under
    which nothing boots; by software it does what `begun.by_software` says."""
    found = types.SimpleNamespace(kvm=True, starts=[], by_software="")

    class Started(Appliance):
        def __init__(self, software_only, _scratch):
            self.software_only = software_only
            super().__init__()

        def run(self, command, *arguments, timeout_s=None):
            if command != "run":
                return super().run(command, *arguments)
            found.starts.append((self.software_only, timeout_s))
            if found.by_software is None or not self.software_only:
                raise errors.SeedFailed("libguestfs: run")
            return b""

        def __enter__(self):
            return self

        def __exit__(self, *_exc):
            pass

    exists = os.path.exists
    monkeypatch.setattr(guestfish, "Session", Started)
    monkeypatch.setattr(
        os.path, "exists", lambda path: found.kvm if path == "/dev/kvm" else exists(path)
    )
    monkeypatch.setattr(paths, "RUN", str(tmp_path))
    monkeypatch.setattr(guestfish, "_NO_KVM", str(tmp_path / "without"))
    return found


BY_KVM, BY_SOFTWARE = (False, 120), (True, 600)


def start():
    with guestfish.launch([guestfish.Added("/disk", "qcow2")]):
        pass


@pytest.mark.usefixtures("begun")
def test_a_disk_of_the_appliance_is_a_file_or_what_a_server_shows():
    shown = guestfish.Added("vda", "raw", read_only=True, socket="/run/nbd")
    with guestfish.launch([guestfish.Added("/disk", "qcow2"), shown]) as session:
        assert [asked for asked in session.asked if asked[0] == "add"] == [
            ("add", "/disk", "format:qcow2"),
            ("add", "vda", "format:raw", "readonly:true", "protocol:nbd", "server:unix:/run/nbd"),
        ]


@pytest.mark.parametrize("kvm", [True, False])
def test_an_appliance_that_does_not_start_is_tried_by_software_alone(begun, kvm):
    begun.kvm, begun.by_software = kvm, None
    for _ in range(2):
        with pytest.raises(errors.SeedFailed, match="libguestfs: run"):
            start()
    # that neither starts says nothing of KVM
    assert begun.starts == ([BY_KVM, BY_SOFTWARE] if kvm else [BY_SOFTWARE]) * 2


def test_kvm_that_starts_nothing_is_not_waited_for_again_on_that_day(begun):
    start()
    start()
    assert begun.starts == [BY_KVM, BY_SOFTWARE, BY_SOFTWARE]
    for age_s in (25 * 3600, -3600):  # it is a day old; the clock was wrong then
        os.utime(guestfish._NO_KVM, times=(time.time() - age_s,) * 2)
        begun.starts.clear()
        start()
        assert begun.starts == [BY_KVM, BY_SOFTWARE]


def test_what_the_labs_probe_has_found_is_noted_where_the_library_reads_it():
    assert str(kvm.KNOWN) == guestfish._NO_KVM


def test_where_nothing_can_be_noted_it_is_tried_each_time(begun, monkeypatch, tmp_path):
    monkeypatch.setattr(guestfish, "_NO_KVM", str(tmp_path / "is" / "not" / "there"))
    start()
    start()
    assert begun.starts == [BY_KVM, BY_SOFTWARE] * 2


def test_what_is_written_and_run_by_libguestfs():
    uploaded = []

    def upload(source, _path):
        uploaded.append(pathlib.Path(source).read_bytes())
        return ""

    found = Appliance(is_dir="true", is_file="false", upload=upload)
    tree = guestfish.GuestfishTree(found)
    for content in (b"a\0b", b"x" * 100_000):
        tree.write("/etc/a", content, 0o640)
        assert uploaded.pop() == content
        assert found.asked[-2:] == [("chown", 0, 0, "/etc/a"), ("chmod", "0640", "/etc/a")]
        assert ("rm-f", "/etc/a") in found.asked
    found.answers["sh"] = None
    with pytest.raises(errors.SeedFailed):
        tree.run_script("echo hi\n", "-X git")
    script = found.asked[-1][1]
    assert found.asked[-1] == ("rm-f", script)
    assert ("write", script, "echo hi\n") in found.asked
    assert ("chmod", "0700", script) in found.asked
    assert found.asked[-2] == ("sh", f"exec /bin/sh {script} -X git >/dev/null")


def test_libguestfs_is_told_to_read_regular_files_of_some_size():
    answers = {"is-file": b"true\n", "filesize": str(1024**4).encode()}
    asked = []

    def run(command, *_arguments):
        asked.append(command)
        return answers[command]

    tree = guestfish.GuestfishTree(
        type(
            "S",
            (),
            {"run": staticmethod(run), "text": staticmethod(lambda *a: run(*a).decode().strip())},
        )
    )
    with pytest.raises(errors.SeedFailed, match="is larger than"):
        tree.read("/etc/hosts")
    answers["is-file"] = b"false\n"
    with pytest.raises(errors.SeedFailed, match="not a regular file"):
        tree.read("/etc/hosts")
    assert "download" not in asked


# -- servers of a disk ---------------------------------------------------------------------


def test_a_server_that_shows_nothing_is_ended_with_its_words(monkeypatch):
    monkeypatch.setattr(mounted, "_TIMEOUT_S", 3)
    for does in ("echo no fuse >&2; exit 1", "echo no fuse >&2; exec sleep 600"):
        with (
            subprocess.Popen(["sh", "-c", does], stderr=subprocess.PIPE) as process,
            pytest.raises(errors.SeedFailed, match=r"^cannot show /disk: no fuse$"),
        ):
            mounted._wait_until(lambda: False, process, "show /disk")


def test_a_server_that_does_not_end_is_ended(monkeypatch):
    monkeypatch.setattr(mounted, "_TIMEOUT_S", 0.2)
    argv = ["sh", "-c", "trap '' TERM; echo ready >&2; while :; do sleep 0.1; done"]
    with mounted._daemon(argv) as process:
        assert process.stderr.readline() == b"ready\n"
    assert process.returncode == -9


@pytest.mark.skipif(not mounted.available("fuse"), reason="needs qemu-storage-daemon and FUSE")
def test_a_server_is_not_the_last_process_of_its_namespace(tmp_path):
    """Else it unmounts, while it ends, the file system that it serves itself: it waits for ever,
    and with it each program that looks at the loop device, such as lvm."""
    disk = tmp_path / "disk.raw"
    disk.write_bytes(bytes(2**20))
    with mounted.Space() as space:
        with mounted._fuse(space, str(disk), "raw"):
            # as by the death of this process
            space._holder.stdin.close()
            with pytest.raises(subprocess.TimeoutExpired):
                space._holder.wait(1)
        assert space._holder.wait(10) == 0


def test_a_device_of_nbd_that_nobody_uses_is_taken(tmp_path, monkeypatch):
    for name in ("nbd0", "nbd0p1", "nbd1", "nbd10"):
        (tmp_path / name).mkdir()
    (tmp_path / "nbd0" / "pid").touch()
    there = [str(tmp_path / name) for name in ("nbd10", "nbd0p1", "nbd1", "nbd0")]
    monkeypatch.setattr(mounted.glob, "glob", lambda _pattern: list(there))
    (tmp_path / "qemu-nbd").touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert mounted.available("nbd")
    assert mounted._free_nbd() == ("/dev/nbd1", f"{tmp_path}/nbd1/size")
    (tmp_path / "nbd1" / "pid").touch()
    assert mounted._free_nbd()[0] == "/dev/nbd10"
    (tmp_path / "nbd10" / "pid").touch()
    with pytest.raises(errors.SeedFailed, match="is free: load the kernel module nbd"):
        mounted._free_nbd()
    there.clear()
    assert not mounted.available("nbd")


# -- which back end -----------------------------------------------------------------------


def test_auto_is_libguestfs_or_says_what_to_install(tmp_path, monkeypatch):
    """It never falls back to this host's own kernel."""
    monkeypatch.setattr(guestfish, "available", lambda: False)
    monkeypatch.setattr(mounted, "available", lambda backend: True)
    disk = str(tmp_path / "disk.qcow2")
    with pytest.raises(errors.Unsupported, match="install guestfs-tools"):
        backends.choose(disk)
    assert backends.choose(disk, "fuse") == "fuse"
    monkeypatch.setattr(guestfish, "available", lambda: True)
    assert backends.choose(disk) == "libguestfs"
    with pytest.raises(errors.InvalidInput, match=r"^virt:seed:backend must be one of auto, "):
        backends.choose(disk, "kpartx")
    with pytest.raises(errors.InvalidInput, match=r"disk.qcow2 is not a folder, as virt:seed:back"):
        backends.choose(disk, "directory")
    assert backends.choose(str(tmp_path), "fuse") == "directory"


# -- tables that lie ----------------------------------------------------------------------


def test_a_partition_beyond_the_disk_is_passed_over(tmp_path, monkeypatch):
    table = b'{"partitiontable": {"sectorsize": 512, "partitions": [{"start": 36028797018963968, '
    table += b'"size": 8}, {"start": 2048, "size": 36028797018963968}, {"start": 8, "size": 8}]}}'
    monkeypatch.setattr(partitions.tools, "run", lambda *_args, **_more: table)
    assert partitions._table("disk", 20 * MIB) == [(4096, 4096)]


def test_lvm_metadata_of_nothing_but_lines_takes_no_time():
    begun = time.process_time()
    assert not list(partitions.linear_volumes("\n" * 200_000))
    assert time.process_time() - begun < 5


def test_a_volume_without_its_size_is_passed_over():
    text = """g {
extent_size = 8192
physical_volumes {
pv0 {
pe_start = 2048
}
}
logical_volumes {
root {
segment_count = 1
segment1 {
type = "striped"
stripes = ["pv0", 0]
}
}
}
}
"""
    assert list(partitions.linear_volumes(text)) == [(2048 * 512, 0)]


def test_a_table_that_is_no_table_is_one_line(monkeypatch):
    for said in (b"{", b"[]", b'{"partitiontable": {"partitions": [{"start": 1}]}}', b"\xff"):
        monkeypatch.setattr(partitions.tools, "run", lambda *_args, said=said, **_more: said)
        with pytest.raises(errors.SeedFailed, match="cannot be read"):
            partitions._table("disk", MIB)


def volume_head(text, offset, ring=4096, length=None, magic=b" LVM2 x[5A%r0N*>"):
    """The head of a physical volume whose metadata area begins at 4096; the text lies in its ring
    at an offset, and goes on behind the area's header where the ring ends."""
    head, area = bytearray(16384), 4096
    head[512:520] = b"LABELONE"
    struct.pack_into("<I", head, 532, 32)  # where the volume's header is, from the label
    struct.pack_into("<QQQQ", head, 512 + 32 + 40, 0, 0, area, ring)
    head[area + 4 : area + 20] = magic
    struct.pack_into("<Q", head, area + 32, ring)
    struct.pack_into("<QQ", head, area + 40, offset, len(text) if length is None else length)
    first = text[: ring - offset]
    head[area + offset : area + offset + len(first)] = first
    head[area + 512 : area + 512 + len(text) - len(first)] = text[len(first) :]
    return bytes(head)


def test_lvm_metadata_lies_in_a_ring():
    text = b"volumes { " + b"x" * 1000 + b" }"
    for offset in (512, 3000, 4096 - 10, 4096 - 1):
        assert partitions._metadata(volume_head(text, offset)) == text.decode()
    with pytest.raises(errors.SeedFailed, match="the LVM metadata cannot be read: use the backend"):
        partitions._metadata(volume_head(text, 512, magic=bytes(16)))
    with pytest.raises(errors.SeedFailed, match="the LVM metadata is too large: use the backend"):
        partitions._metadata(volume_head(text, 512, length=2 * MIB))


def test_damaged_lvm_metadata_is_one_line(tmp_path):
    disk = tmp_path / "disk"
    head = bytearray(8192)
    head[512 : 512 + 8] = b"LABELONE"
    struct.pack_into("<I", head, 512 + 20, 0xFFFFFFF0)
    disk.write_bytes(head)
    with pytest.raises(errors.SeedFailed, match="LVM metadata"):
        list(partitions._volumes(str(disk), 0))
