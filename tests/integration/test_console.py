"""A guest's console on the master's terminal, and its agent, with a real guest."""

import contextlib
import time

import pytest

from tests.clock import until
from tests.integration import manual
from tests.typist import Typist

pytestmark = [pytest.mark.lab, pytest.mark.slow]
GUEST = "con1"
TYPED = "a-secret-that-is-typed"


@pytest.fixture(scope="module")
def guest(lab):
    """The name of a running guest whose agent answers."""
    lab.run("virt.purge", GUEST, "force=True")
    made = lab.run("virt.init", GUEST, 1, 384, "salt://debian.qcow2", host="hv1")
    assert made.rc == 0, made
    until(lambda: lab.run("virt.exec", GUEST, "uptime").rc == 0, "the agent answers", 300)
    yield GUEST
    lab.run("virt.purge", GUEST, "force=True")


@pytest.fixture
def typist(lab):
    """Begins one more salt-run virt.console, on a terminal of its own."""
    with contextlib.ExitStack() as stack:

        def begin(*words):
            argv = lab.machine("master").argv(["salt-run", "virt.console", GUEST, *words])
            return stack.enter_context(Typist(argv))

        yield begin


def line_of(done):
    """The one line of a verb that failed."""
    assert done.rc == 1, done
    lines = [line for line in done.stdout.splitlines() if line.strip()]
    assert len(lines) == 1, done.stdout
    return lines[0]


def _relays(lab):
    return lab.exec("hv1", "pgrep -fc '[c]onsole.host.relay'", check=False).stdout.strip()


@pytest.mark.usefixtures("guest")
def test_a_login_on_the_console_leaves_no_trace_of_what_is_typed(lab, typist):
    one = typist().attached()
    one.until(b"login: ", 120, again=b"\r")
    one.type(b"root\r")
    one.until(b"Password: ")
    one.type(b"salt\r")
    one.until(b"# ")
    one.type(f": {TYPED}; echo =$((6*7))=\r".encode())
    one.until(b"=42=")
    waits = []
    for _ in range(20):
        one.seen, began = b"", time.monotonic()
        one.type(b"x")
        one.until(b"x")
        waits.append(time.monotonic() - began)
        time.sleep(0.05)
    waits.sort()
    print(f"from a key to its echo: {1000 * waits[10]:.0f} ms, at most {1000 * waits[-1]:.0f} ms")
    one.type(b"\x15exit\r")
    one.type(b"\x1d")
    assert one.finish() == 0
    assert b"left the console of con1 on hv1" in one.seen
    until(lambda: _relays(lab) == "0", "no process of it is left")
    where = "/var/cache/salt /var/log/salt /var/log/libvirt /var/lib/salt-virt /run/salt-virt"
    for machine in ("master", "hv1"):
        assert lab.exec(machine, f"grep -rla {TYPED} {where}", check=False).stdout == ""


@pytest.mark.usefixtures("guest")
def test_another_one_has_it_until_it_is_taken(typist):
    one = typist().attached()
    two = typist()
    assert two.finish() == 1
    assert b"the serial console of con1 is in use; to take it over, use force=True" in two.seen
    three = typist("force=True").attached()
    assert one.finish() == 1
    assert b"somebody else took it" in one.seen
    three.type(b"\x1d")
    assert three.finish() == 0


def test_the_manual(lab, guest):
    """Its commands and files; another test has the console, which needs a terminal."""
    lab.exec(
        "master", "mkdir -p /srv/files; echo hello > /srv/files/motd; rm -f /root/con1.log; "
        "echo root:salt > /root/new-password"
    )  # fmt: skip
    here = {"web1": guest, "hyper1": "hv1", "is-active nginx": "is-active systemd-journald",
            "apt-get -y upgrade": "true", "/var/log/dpkg.log": "/etc/os-release"}  # fmt: skip
    manual.Page(lab, "consoles.md", here, only=["From the master"]).follow()
    assert lab.run("virt.exec", guest, "cat /etc/motd").stdout.split()[0] == "hello"
    assert "Debian" in lab.exec("master", "cat /root/con1.log").stdout


def test_a_command_its_input_and_its_end(lab, guest):
    done = lab.run_json("virt.exec", guest, "sh -c 'uname -n; echo no >&2; exit 3'")[guest]
    assert (done["exit_code"], done["stdout"], done["stderr"]) == (3, f"{guest}\n", "no\n")
    shown = lab.run("virt.exec", guest, "printf 'a\\033[31mb\\nc\\n'")
    assert (shown.rc, shown.stdout.splitlines()) == (0, ["ab", "c"])
    script = f"printf %s '{TYPED}-2' | salt-run virt.exec {guest} 'cut -c 3-8' stdin=-"
    assert lab.exec("master", script).stdout.split()[0] == "secret"
    late = lab.run("virt.exec", guest, "sleep 60", "timeout=2")
    assert "did not end within 2 s and continues" in line_of(late)
    assert "exit code 127" in lab.run("virt.exec", guest, "no-such-program").stdout
    assert (
        lab.exec("master", f"grep -rla {TYPED}-2 /var/cache/salt /var/log/salt", check=False).stdout
        == ""
    )


def test_files_both_ways(lab, guest):
    lab.exec(
        "master", "head -c 20000000 /dev/urandom > /root/big; chmod 640 /root/big; rm -f /root/back"
    )
    began = time.monotonic()
    put = lab.run("virt.put", guest, "/root/big", "/var/tmp/big")
    assert put.rc == 0, put
    middle = time.monotonic()
    got = lab.run("virt.get", guest, "/var/tmp/big", "/root/back")
    assert got.rc == 0, got
    print(f"20 MB in {middle - began:.1f} s, out {time.monotonic() - middle:.1f} s")
    lab.exec("master", "cmp /root/big /root/back && [ $(stat -c %a /root/back) = 600 ]")
    assert lab.run("virt.exec", guest, "stat -c %a /var/tmp/big").stdout.split()[0] == "640"
    assert "overwrite=True" in line_of(lab.run("virt.put", guest, "/root/big", "/var/tmp/big"))
    assert "overwrite=True" in line_of(lab.run("virt.get", guest, "/var/tmp/big", "/root/back"))
    assert "No such file" in line_of(lab.run("virt.get", guest, "/none", "/root/none"))
    assert lab.exec("master", "ls /root/none", check=False).returncode
    left = lab.run("virt.exec", guest, "ls -A /var/tmp").stdout
    assert ".salt-virt" not in left


def test_an_agent_that_hangs_and_one_that_is_not_there(lab, guest):
    def within(script):  # its processor is emulated, and the machine may be busy
        lab.exec("master", ["salt", "-t", "120", guest, "cmd.run", script])

    within("pkill -STOP qemu-ga")
    try:
        for asked in (["virt.exec", guest, "uptime"], ["virt.get", guest, "/etc/fstab", "/root/a"]):
            assert "does not respond" in line_of(lab.run(*asked))
        within("pkill -CONT qemu-ga; systemctl stop qemu-guest-agent")
        gone = "no guest agent responds in con1"
        until(lambda: gone in lab.run("virt.exec", guest, "uptime").stdout, gone, 60)
        assert gone in line_of(lab.run("virt.exec", guest, "uptime"))
    finally:
        within("pkill -CONT qemu-ga; systemctl start qemu-guest-agent")


@pytest.mark.usefixtures("guest")
def test_the_host_goes_without_a_word(lab, typist):
    one = typist().attached()
    lab.cut("hv1")
    try:
        began = time.monotonic()
        assert one.finish(180) == 1
        print(f"noticed after {time.monotonic() - began:.0f} s")
    finally:
        lab.heal("hv1")
    # whatever is noticed first: the line that is silent, or the minion
    assert b"not reached any more" in one.seen or b"(hv1: " in one.seen
    until(lambda: lab.run("virt.exec", GUEST, "uptime").rc == 0, "the agent answers", 180)


@pytest.mark.usefixtures("guest")
def test_the_guest_is_stopped_meanwhile(lab, typist):
    one = typist().attached()
    assert lab.run("virt.force_off", GUEST).rc == 0
    assert one.finish() == 1
    assert b"the console of con1 on hv1 has ended: the guest is shutdown" in one.seen
    two = typist()
    assert two.finish() == 1
    assert b"con1 is off: salt-run virt.start con1" in two.seen
