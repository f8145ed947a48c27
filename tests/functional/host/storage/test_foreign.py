"""Guests that the connection does not show: those of libvirt's other drivers and of users' own
libvirts."""

import os
import time

import pytest

libvirt = pytest.importorskip("libvirt")
pytest.importorskip("salt")

from saltvirt.host.storage import foreign_guests, usage
from saltvirt.system import bounded_io
from tests.functional import hung
from tests.functional.host.storage.test_usage import GUEST, create, disk, place  # noqa: F401

ALICE, BOB = 4001, 4002


class Machine:
    """Folders as libvirt and users have them."""

    def __init__(self, root, monkeypatch):
        self.root, self.monkeypatch = root, monkeypatch
        self.home = root / "home" / "alice"
        self.config = self.home / ".config" / "libvirt" / "qemu"
        self.config.mkdir(parents=True)
        passwd = root / "passwd"
        passwd.write_text(f"alice:x:{ALICE}:1::{self.home}:/bin/sh\nnobody:x:9:9::/nonexistent:\n")
        monkeypatch.setattr(foreign_guests, "SYSTEM", (str(root / "etc"), str(root / "run")))
        monkeypatch.setattr(foreign_guests, "LIBRARY", str(root / "lib"))
        monkeypatch.setattr(foreign_guests, "PASSWD", str(passwd))
        monkeypatch.setattr(foreign_guests, "HOMES", str(root / "home"))
        monkeypatch.setattr(foreign_guests, "RUNTIME", str(root / "user"))

    def put(self, path, devices, name="theirs", around="{}"):
        path = self.root / path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(around.format(GUEST.format(name=name, more="", os="", devices=devices)))
        return path


@pytest.fixture
def machine(place, monkeypatch):  # noqa: F811
    place.base.chmod(0o644)
    root = place.root / "machine"
    root.mkdir()
    return Machine(root, monkeypatch)


@pytest.mark.parametrize(
    ("path", "around"),
    [
        ("etc/lxc/c1.xml", "{}"),
        ("etc/libxl/c1.xml", "<!-- WARNING: by libvirt -->\n{}"),
        ("etc/qemu/c1.xml", "{}"),
        ("run/lxc/c1.xml", "<domstatus state='running' pid='1'>{}</domstatus>"),
        (
            "lib/qemu/snapshot/c1/one.xml",
            "<domainsnapshot><name>one</name>{}</domainsnapshot>",
        ),
        (
            "lib/qemu/checkpoint/c1/one.xml",
            "<domaincheckpoint><name>one</name>{}</domaincheckpoint>",
        ),
    ],
)
def test_another_driver_of_the_system(place, machine, path, around):  # noqa: F811
    place.base.chmod(0o600)
    above = create(place.above, place.base)
    assert place.why() is None
    machine.put(path, disk(above), around=around)
    driver = path.split("/")[1]
    assert place.why() == f"used by theirs ({driver}:///system)"


def test_a_folder_that_a_container_has(place, machine):  # noqa: F811
    folder = f"<filesystem type='mount'><source dir='{place.base.parent}'/><target dir='/'/>"
    machine.put("etc/lxc/c1.xml", f"{folder}</filesystem>")
    assert place.why() == "used by theirs (lxc:///system)"


def test_of_another_machine_the_guests_of_this_one_say_nothing(place, machine, monkeypatch):  # noqa: F811
    machine.put("etc/lxc/c1.xml", disk(place.base, "raw"))
    monkeypatch.setattr(usage.connection, "is_local", lambda conn: False)
    assert place.why() is None


def test_the_connections_own_driver_is_asked_and_not_read(machine):
    machine.put("etc/qemu/c1.xml", "")
    machine.put("etc/lxc/c2.xml", "")
    assert [one.guest_label for one in foreign_guests.read("qemu:///system")] == [
        "theirs (lxc:///system)"
    ]
    assert [one.guest_label for one in foreign_guests.read("lxc:///system")] == [
        "theirs (qemu:///system)"
    ]
    assert len(list(foreign_guests.read("qemu:///session"))) == 2


def test_one_without_a_name_is_called_as_its_file(place, machine):  # noqa: F811
    text = GUEST.format(name="theirs", more="", os="", devices=disk(place.base))
    (machine.config / "x.xml").write_text(text.replace("<name>theirs</name>", ""))
    assert "used by x.xml (qemu:///session of alice" in place.why()


def test_what_the_system_has_and_cannot_be_read_is_a_doubt(place, machine):  # noqa: F811
    machine.put("etc/lxc/c1.xml", "", around="no {} xml <")
    assert "c1.xml, a guest of lxc:///system" in place.why()


@pytest.mark.parametrize("where", ["config", "snapshot", "run"])
def test_a_users_own_guest(place, machine, where):  # noqa: F811
    folder = {
        "config": machine.config,
        "snapshot": machine.config / "snapshot" / "one",
        "run": machine.root / "user" / str(ALICE) / "libvirt" / "qemu" / "run",
    }[where]
    machine.put(folder / "x.xml", disk(create(place.above, place.base)))
    assert place.why() == "used by theirs (qemu:///session of alice)"


def test_a_user_keeps_nothing_that_he_cannot_open(place, machine):  # noqa: F811
    """Else anybody could keep any disk from being deleted."""
    machine.put(machine.config / "x.xml", disk(place.base, "raw"))
    folder = f"<filesystem type='mount'><source dir='{place.base.parent}'/><target dir='/'/>"
    machine.put(machine.config / "y.xml", f"{folder}</filesystem>", "all")
    assert place.why() == "used by theirs (qemu:///session of alice)"
    place.base.chmod(0o600)
    assert place.why() is None
    os.chown(place.base, ALICE, 0)
    assert place.why() == "used by theirs (qemu:///session of alice)"


def _broken(path):
    path.write_text("<domain")


def _fifo(path):
    os.mkfifo(path)


def _bomb(path):
    path.write_text("<!DOCTYPE x [<!ENTITY a 'aaaa'>]><domain><name>&a;</name></domain>")


def _endless(path):
    path.symlink_to("/dev/zero")


def _large(path):
    path.write_text(f"<domain><!--{'x' * foreign_guests._MAX_FILE_BYTES}--></domain>")


def _padded(path):
    path.write_text(f"<network/>{' ' * foreign_guests._MAX_FILE_BYTES}")


def _missing_base(path):
    (path.parent / "empty").mkdir()
    overlay = create(path.parent / "o.qcow2", path.parent / "empty" / "gone.qcow2", "qcow2")
    path.write_text(GUEST.format(name="theirs", more="", os="", devices=disk(overlay)))


@pytest.mark.parametrize("make", [_broken, _fifo, _bomb, _endless, _large, _padded, _missing_base])
def test_what_cannot_be_read_is_a_doubt_about_what_that_user_may_open(place, machine, make):  # noqa: F811
    make(machine.config / "x.xml")
    assert "it cannot be proven to be unused" in place.why()
    assert "alice" in place.why()
    place.base.chmod(0o600)
    assert place.why() is None


@pytest.mark.parametrize(("make", "why"), [(_fifo, "no file"), (_large, "it is longer than")])
def test_why_a_definition_cannot_be_read_is_said(place, machine, make, why):  # noqa: F811
    make(machine.config / "x.xml")
    assert f"x.xml, a guest of qemu:///session of alice: {why}" in place.why()


def test_a_definition_as_long_as_they_may_be_is_read(place, machine):  # noqa: F811
    machine.put(machine.config / "x.xml", disk(place.base, "raw"))
    path = machine.config / "x.xml"
    with path.open("ab") as file:
        file.write(b" " * (foreign_guests._MAX_FILE_BYTES - path.stat().st_size))
    assert place.why() == "used by theirs (qemu:///session of alice)"


def test_a_definition_of_any_depth_is_read(place, machine):  # noqa: F811
    """Else any user of this host could keep everything on it from being deleted."""
    deep = "<a>" * 50_000 + f"<b>{place.base}</b>" + "</a>" * 50_000
    machine.put(machine.config / "x.xml", deep)
    assert place.why() == "used by theirs (qemu:///session of alice)"


def test_a_path_longer_than_any_that_can_be_opened_is_no_use(place, machine):  # noqa: F811
    machine.put(machine.config / "x.xml", f"<b>/{'a/' * 200_000}</b>")
    began = time.monotonic()
    assert place.why() is None
    assert time.monotonic() - began < 60


def test_a_file_of_the_kernel_that_has_nothing_to_say_is_a_doubt(place, machine):  # noqa: F811
    """A regular file by its kind, and whoever reads it has to wait, or is told to come again."""
    with open("/proc/kmsg", "rb", buffering=0) as file:
        os.set_blocking(file.fileno(), False)
        while file.read(1 << 20):
            pass
    (machine.config / "x.xml").symlink_to("/proc/kmsg")
    assert "x.xml, a guest of qemu:///session of alice" in place.why()


def test_more_files_than_anybody_has(place, machine, monkeypatch):  # noqa: F811
    monkeypatch.setattr(foreign_guests, "_MAX_NAMES", 2)
    for number in range(3):
        machine.put(machine.config / f"{number}.xml", "")
    assert "more than 2 names" in place.why()
    place.base.chmod(0o600)
    assert place.why() is None


@pytest.mark.parametrize("where", ["x-{}.log", "snapshot/{}/x.xml", "snapshot/one/{}.xml"])
def test_more_names_than_anybody_has_are_not_even_listed(place, machine, monkeypatch, where):  # noqa: F811
    """Whatever they are of, in whichever folder."""
    monkeypatch.setattr(foreign_guests, "_MAX_NAMES", 4)
    for number in range(5):
        machine.put(machine.config / where.format(number), "")
    assert "cannot list the guests of qemu:///session of alice" in place.why()
    assert "more than 4 names" in place.why()


@pytest.mark.parametrize(
    "names", [["1", "2", "3", "{run}/4", "{run}/5"], ["snapshot/1/2", "snapshot/3/4"]]
)
def test_names_are_counted_through_all_folders_of_a_user(place, machine, monkeypatch, names):  # noqa: F811
    """Five: the folders are names too. What is called otherwise is no definition."""
    run = machine.root / "user" / str(ALICE) / "libvirt" / "qemu" / "run"
    for name in names:
        machine.put(machine.config / name.format(run=run), disk(place.base, "raw"))
    for most, why in ((5, "None"), (4, "more than 4 names")):
        monkeypatch.setattr(foreign_guests, "_MAX_NAMES", most)
        assert why in str(place.why())


def test_a_folder_that_cannot_be_listed_is_a_doubt_and_is_named(place, machine):  # noqa: F811
    machine.config.rmdir()
    machine.config.symlink_to(machine.config)
    said = f"cannot list the guests of qemu:///session of alice: {machine.config}: Too many levels"
    assert said in place.why()


def test_more_bytes_than_anybody_has(place, machine, monkeypatch):  # noqa: F811
    """Each file for itself is short enough."""
    monkeypatch.setattr(foreign_guests, "_MAX_BYTES", 3000)
    for number in range(9):
        machine.put(machine.config / f"{number}.xml", f"<!--{'x' * 1000}-->")
    assert "alice: more than 3000 bytes" in place.why()
    most = sum(path.stat().st_size for path in machine.config.iterdir())
    for size, known in ((most, True), (most - 1, False)):
        monkeypatch.setattr(foreign_guests, "_MAX_BYTES", size)
        assert (place.why() is None) is known
    place.base.chmod(0o600)
    assert place.why() is None


@pytest.mark.parametrize("how", ["in one", "in each"])
def test_more_files_named_than_anybody_has(place, machine, monkeypatch, how):  # noqa: F811
    """Each is looked for, and so is all that it is based on."""
    monkeypatch.setattr(foreign_guests, "MAX_FILES", 50)
    names, asked = "".join(f"<a>/n/{number}</a>" for number in range(40)), []
    read = usage.chains.read
    monkeypatch.setattr(usage.chains, "read", lambda *of: asked.append(of) or read(*of))
    for number in range(1 if how == "in one" else 9):
        names += "".join(f"<a>/n/{how}/{number}/{other}</a>" for other in range(40))
        machine.put(machine.config / f"{number}.xml", names)
    assert "they refer to more than 50 files" in place.why()
    assert len({path for path, *_ in asked if path.startswith("/n/")}) <= 50
    place.base.chmod(0o600)
    assert place.why() is None


def test_one_name_over_and_over_is_asked_for_once(place, machine, monkeypatch):  # noqa: F811
    asked, read = [], usage.chains.read
    monkeypatch.setattr(usage.chains, "read", lambda *of: asked.append(of) or read(*of))
    machine.put(machine.config / "x.xml", f"<a>{place.base}</a>" * 30_000)
    assert place.why() == "used by theirs (qemu:///session of alice)"
    assert len(asked) < 100


def test_a_chain_of_any_depth_is_read_in_good_time(place, machine):  # noqa: F811
    deep = "<backingStore><source file='/n'/>" * 20_000 + "</backingStore>" * 20_000
    machine.put(machine.config / "x.xml", f"<disk><source file='{place.base}'/>{deep}</disk>")
    assert place.why() == "used by theirs (qemu:///session of alice)"


@pytest.mark.parametrize(("leads_to", "doubt"), [("gone", False), ("x.xml", True)])
def test_a_definition_that_goes_while_it_is_looked_for_is_none(machine, place, leads_to, doubt):  # noqa: F811
    """And what cannot be opened, here for a link that leads to itself, may be one."""
    (machine.config / "x.xml").symlink_to(machine.config / leads_to)
    assert bool(place.why()) == doubt
    assert not doubt or "x.xml, a guest of qemu:///session of alice: " in place.why()


def test_what_is_no_guest_and_a_folder_that_is_gone_need_nothing(place, machine):  # noqa: F811
    (machine.config / "x.xml").write_text(f"<network><bridge name='{place.base}'/></network>")
    (machine.config / "z.xml").write_text("<domstatus/>")
    folder = "<filesystem type='mount'><source dir='/nowhere/x'/><target dir='/'/></filesystem>"
    machine.put(machine.config / "y.xml", folder)
    assert place.why() is None


def test_users_whom_no_table_names_are_found_by_their_folders(place, machine, monkeypatch):  # noqa: F811
    monkeypatch.setattr(foreign_guests, "PASSWD", str(machine.root / "none"))
    machine.put(machine.config / "x.xml", disk(place.base, "raw"))
    os.chown(machine.home, ALICE, 0)
    os.chown(place.base, ALICE, 0)
    place.base.chmod(0o600)
    assert place.why() == "used by theirs (qemu:///session of alice)"


@pytest.mark.parametrize("where", ["of one", "of all"])
def test_what_users_have_whom_nobody_knows_may_be_anything(place, machine, monkeypatch, where):  # noqa: F811
    """A home of which not even the owner can be told: he may have a guest with any disk."""
    monkeypatch.setattr(bounded_io, "LIST_TIMEOUT_S", 1)
    monkeypatch.setattr(bounded_io, "ANSWER_TIMEOUT_S", 1)
    monkeypatch.setattr(bounded_io, "_table", [])
    place.base.chmod(0o600)
    folder = machine.root / "home"
    if where == "of one":
        folder = folder / "bob"
        folder.mkdir()
    assert place.why() is None
    monkeypatch.setattr(bounded_io, "_table", [])
    with hung.mounted(folder):
        user = "bob" if where == "of one" else f"an unknown user with a folder in {folder}"
        assert f"the guests of qemu:///session of {user}: " in place.why()
        assert foreign_guests.may_open(ALICE, f"{folder}/x"), "what cannot be told"


def test_a_home_that_does_not_answer(place, machine, monkeypatch):  # noqa: F811
    monkeypatch.setattr(bounded_io, "LIST_TIMEOUT_S", 1)
    monkeypatch.setattr(bounded_io, "ANSWER_TIMEOUT_S", 1)
    monkeypatch.setattr(bounded_io, "_table", [])
    with hung.mounted(machine.home):
        assert f"alice: {machine.config}" in place.why()
        place.base.chmod(0o600)
        assert place.why() is None


@pytest.mark.parametrize(
    "row", ["", "+::::::", "rel:x:7", "rel:x:seven:7::/rel:/bin/sh", "rel:x:7:7::rel:"]
)
def test_a_row_of_no_user_is_passed_over(place, machine, monkeypatch, row):  # noqa: F811
    """As those of NIS, and a home that is nobody's folder."""
    monkeypatch.chdir(machine.root)
    machine.put("rel/.config/libvirt/qemu/x.xml", disk(place.base, "raw"))
    (machine.root / "passwd").write_text(f"{row}\n{(machine.root / 'passwd').read_text()}")
    assert place.why() is None
    machine.put(machine.config / "x.xml", disk(place.base, "raw"))
    assert place.why() == "used by theirs (qemu:///session of alice)"


def test_a_user_without_a_shell_is_one_and_a_folder_of_nobody_is_none(place, machine):  # noqa: F811
    (machine.root / "user" / "lost+found").mkdir(parents=True)
    passwd = machine.root / "passwd"
    passwd.write_text(f"{passwd.read_text()}bob:x:{BOB}:1::{machine.root}/bob\n")
    machine.put("bob/.config/libvirt/qemu/x.xml", disk(place.base, "raw"))
    assert place.why() == "used by theirs (qemu:///session of bob)"


def test_users_that_only_a_directory_service_knows(place, machine):  # noqa: F811
    bob = machine.root / "home" / "bob"
    machine.put(bob / ".config/libvirt/qemu/x.xml", disk(place.base, "raw"))
    os.chown(bob, BOB, BOB)
    place.base.chmod(0o600)
    assert place.why() is None
    os.chown(place.base, BOB, 0)
    assert place.why() == "used by theirs (qemu:///session of bob)"
    run = machine.root / "user" / "4003" / "libvirt" / "qemu" / "run"
    machine.put(run / "y.xml", disk(place.base, "raw"))
    os.chown(place.base, 4003, 0)
    assert place.why() == "used by theirs (qemu:///session of user 4003)"


def test_another_host_asks(place, machine, monkeypatch):  # noqa: F811
    monkeypatch.setattr(usage.sharing, "sharing_reason", lambda path: "nfs4")
    asked = [usage.file_identity(place.conn, str(place.base))]
    assert usage.users_here(place.conn, asked)[str(place.base)] is None
    _broken(machine.config / "x.xml")
    assert "alice" in usage.users_here(place.conn, asked)[str(place.base)]
    machine.put(machine.config / "x.xml", disk(place.base, "raw"))
    assert usage.users_here(place.conn, asked)[str(place.base)] == (
        "used by theirs (qemu:///session of alice)"
    )
