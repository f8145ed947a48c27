"""``salt-run virt.console`` on a terminal, to the serial port of a guest of a real QEMU."""

import contextlib
import json
import os
import signal
import sys
import termios

import libvirt
import pytest

from saltvirt import errors
from saltvirt.console.master import console, guest_connection, terminal
from tests.clock import until
from tests.functional import console_child
from tests.functional.daemon import libvirtd  # noqa: F401 - a fixture
from tests.tools import api
from tests.typist import Typist

# SeaBIOS writes to the serial port, and reads it
GUEST = """<domain type='qemu'><name>{name}</name><memory>65536</memory>
<os><type arch='x86_64' machine='pc'>hvm</type><bios useserial='yes'/>
<bootmenu enable='yes' timeout='60000'/></os>
<devices>{serial}</devices></domain>"""
SERIAL = "<serial type='pty'/><console type='pty'/>"


class Console(Typist):
    """The verb on a terminal of its own."""

    @property
    def end(self):
        """(exit code, the answer)."""
        return self.finish(), json.loads(self.seen.strip().splitlines()[-1])

    @property
    def error(self):
        """Of one that failed."""
        code, answer = self.end
        assert code == 1
        return answer["error"]


@pytest.fixture
def conn(libvirtd):  # noqa: F811
    found = libvirt.open(libvirtd.uri)
    yield found
    for dom in found.listAllDomains():
        with contextlib.suppress(libvirt.libvirtError):
            dom.destroy()
    found.close()


@pytest.fixture
def guest(conn):
    return conn.createXML(GUEST.format(name="web1", serial=SERIAL))


@pytest.fixture
def typist(libvirtd, tmp_path):  # noqa: F811
    """Begins one more console: a Typist."""
    with contextlib.ExitStack() as stack:

        def begin(*words):
            argv = [
                sys.executable,
                "-m",
                "tests.functional.console_child",
                libvirtd.uri,
                str(tmp_path),
            ]
            own = [str(api.REPOSITORY), str(api.REPOSITORY / "_utils")]
            path = os.pathsep.join([*own, os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
            env = {**os.environ, "PYTHONPATH": path}
            return stack.enter_context(Console([*argv, *words], env=env, cwd=api.REPOSITORY))

        yield begin


def _relays(guest):
    """The processes that hand on what this guest says; other tests have some of their own."""
    found, whose = [], guest.UUIDString().encode()
    for name in os.listdir("/proc"):
        with contextlib.suppress(OSError):
            if name.isdigit():
                with open(f"/proc/{name}/cmdline", "rb") as file:
                    words = file.read()
                    if b"console.host.relay" in words and whose in words:
                        found.append(int(name))
    return found


def test_it_shows_and_types_and_is_left_by_the_escape(typist, guest):
    one = typist("web1").attached()
    assert b"^] to leave it" in one.seen
    assert termios.tcgetattr(one.theirs)[3] & (termios.ICANON | termios.ECHO | termios.ISIG) == 0
    one.type(b"\x1b")  # SeaBIOS offers its menu, and ESC takes it
    one.until(b"boot device")
    assert len(_relays(guest)) == 1
    one.type(b"\x1d")
    code, answer = one.end
    assert (code, answer["web1"]["comment"]) == (0, "left the console of web1 on hv1")
    until(lambda: not _relays(guest), "no process of it is left")


@pytest.mark.usefixtures("guest")
def test_another_one_has_it(typist):
    one = typist("web1").attached()
    two = typist("web1")
    assert two.error == (
        "hv1: the serial console of web1 is in use; to take it over, use force=True"
    )
    three = typist("web1", "force").attached()
    assert "the guest runs: another user has taken over the console" in one.error
    three.type(b"\x1b")
    three.until(b"boot device")
    three.type(b"\x1d")
    assert three.end[0] == 0


def test_the_guest_is_stopped_meanwhile(typist, guest):
    one = typist("web1").attached()
    guest.destroy()
    assert one.error.startswith("the console of web1 on hv1 has ended: no guest 'web1'")


@pytest.mark.usefixtures("guest")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_and_the_terminal_is_as_it_was(typist, number):
    one = typist("web1").attached()
    one.process.send_signal(number)
    assert one.error == f"ended by {number.name}"


def test_the_hypervisor_goes_without_a_word(typist, guest):
    one = typist("web1").attached()
    [relay] = _relays(guest)
    os.kill(relay, signal.SIGKILL)
    assert "web1 on hv1 has ended" in one.error or "hypervisor is unreachable" in one.error


def test_the_terminal_goes(typist, guest):
    one = typist("web1").attached()
    os.close(one.ours)
    one.process.wait(60)
    until(lambda: not _relays(guest), "no process of it is left")


def test_what_has_no_console(typist, conn):
    serial = "<serial type='null'/>"
    conn.createXML(GUEST.format(name="mute1", serial=serial))
    assert typist("mute1").error == "hv1: mute1 has no serial console that libvirt can open"
    assert "no guest 'web9'" in typist("web9").error


@pytest.mark.usefixtures("guest")
def test_without_a_terminal_and_not_on_the_command_line(libvirtd, tmp_path, monkeypatch):  # noqa: F811
    fleet = console_child.fleet(libvirtd.uri, tmp_path)
    monkeypatch.setattr(os, "isatty", lambda _: False)
    with pytest.raises(errors.Refused, match="needs a terminal"):
        console.run(fleet, "web1", False, "^]")
    monkeypatch.setattr(os, "isatty", lambda _: True)
    fleet.opts["__cli"] = "salt-master"
    with pytest.raises(errors.Refused, match="salt-run on the master"):
        console.run(fleet, "web1", False, "^]")
    assert fleet.asked == []


@pytest.mark.parametrize(("text", "byte"), [("^]", b"\x1d"), ("^a", b"\x01"), ("^X", b"\x18")])
def test_the_escape(text, byte):
    assert terminal.escape_byte(text) == byte


@pytest.mark.parametrize("text", ["", "x", "^", "^1", "^é", "^]]", None, 5])
def test_what_is_no_escape(text):
    with pytest.raises(errors.InvalidInput):
        terminal.escape_byte(text)


FOUND = guest_connection.GuestConnection(
    "web1", "u", "hv1", "serial", "pty", "127.0.0.1", 1, "", "", ""
)


@pytest.mark.parametrize(("there", "words"), [
    (("hv2", "running"), "the guest is on hv2 now (running)"),
    (("hv1", "paused"), "the guest is paused"), (("hv1", "shutdown"), "the guest is shutdown"),
])  # fmt: skip
def test_why_a_console_ended_that_nobody_left(monkeypatch, there, words):
    monkeypatch.setattr(console.find, "locate", lambda _fleet, _name: there)
    assert console._explain_end(None, FOUND) == f"the console of web1 on hv1 has ended: {words}"


def test_a_hypervisor_that_is_not_reached_is_no_one_who_has_the_console(monkeypatch):
    def fails(_found):
        raise errors.ConnectionFailed("hv1 is not reached")

    monkeypatch.setattr(console.guest_connection, "connect", fails)
    with pytest.raises(errors.ConnectionFailed, match="hv1 is not reached"):
        console._connect(FOUND)


def test_a_terminal_that_takes_nothing_or_has_no_size_is_not_waited_for():
    reader, writer = os.pipe()
    try:
        assert terminal.Terminal(reader, writer).size().columns > 0
        os.set_blocking(writer, False)
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(writer, bytes(4096))
        with pytest.raises(TimeoutError, match="the terminal accepts no output"):
            terminal._show(writer, b"x", 0.05)
    finally:
        os.close(reader)
        os.close(writer)
