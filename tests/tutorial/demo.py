"""``make demo``: a cloud on this machine with the tutorial, command by command, a console and the
page."""

import argparse
import re
import secrets
import shlex
import subprocess
import sys
import time

from tests.lab import packages, page
from tests.lab.cloud import Cloud
from tests.lab.recipe import Recipe
from tests.lab.sh import LabError
from tests.tutorial.steps import STEPS
from tests.typist import Typist

NAME = "demo"
# of the page on this machine, where nobody else has it
PORT, USER = 8000, "demo"
# what a terminal is told, and nobody reads
CONTROL = re.compile(r"\x1b(\[[?>]?[0-9;]*[A-Za-z]|\(B|[78<>=])|\x0f")
# how long a freshly started guest may need until its minion has answered (emulated CPUs)
BOOT_S = 1800
# and until it answers a command of `salt`, while it has more to do
PATIENCE = "echo 'timeout: 90' > /etc/salt/master.d/demo.conf"


def show(cloud, command):
    """Types a command on the master, its output straight to the terminal. Its exit code."""
    print(f"\n\033[1mmaster# {command}\033[0m" if sys.stdout.isatty() else f"\nmaster# {command}")
    sys.stdout.flush()
    argv = cloud.machine("master").argv(["sh", "-c", command])
    began = time.monotonic()
    code = subprocess.run([str(part) for part in argv], check=False).returncode
    print(f"({time.monotonic() - began:.1f} s)", flush=True)
    return code


def wait_for(cloud, guest):
    """Waits until the guest's minion is there: it boots on an emulated CPU.

    It is asked only once it is connected: questions to a slow guest would pile up in it.
    """
    print(f"\n… waiting for {guest} to boot and to reach the master", flush=True)
    end = time.monotonic() + BOOT_S
    ping = f"salt -t 60 {shlex.quote(guest)} test.ping --out=json --static"
    while time.monotonic() < end:
        present = cloud.exec("master", "salt-run manage.present --out=json", check=False).stdout
        if f'"{guest}"' in present and "true" in cloud.exec("master", ping, check=False).stdout:
            return
        time.sleep(1)
    raise LabError(f"{guest} did not answer within {BOOT_S} s")


def play(cloud):
    """All steps. Raises LabError at the first command that fails."""
    for number, step in enumerate(STEPS, 1):
        print(f"\n== {number}. {step.title}", flush=True)
        for command in step.commands:
            if command == "salt centos1 test.ping":
                wait_for(cloud, "centos1")
            if command == "salt-run virt.pause centos1":
                look_at(cloud, "centos1")
            if show(cloud, command):
                raise LabError(f"step {number} failed at: {command}")


def look_at(cloud, guest):
    """Somebody opens its console, presses Enter, sees the prompt, and leaves it."""
    command = ["salt-run", "virt.console", guest]
    print(f"\nmaster# {' '.join(command)}", flush=True)
    with Typist(cloud.machine("master").argv(command)) as terminal:
        try:
            terminal.attached().until(b"login: ", again=b"\r")
            terminal.type(b"\x1d")
            terminal.finish()
        except AssertionError as exc:
            raise LabError(f"the console of {guest}: {exc}") from exc
        shown = CONTROL.sub("", terminal.seen.decode(errors="replace"))
        print(shown.replace("\r", ""), flush=True)


def serve(cloud):
    """Sets the page up. (Its address on this machine, the password of its user)."""
    began, password = time.monotonic(), secrets.token_urlsafe(9)
    print("\n== The page: the formula virt.page.console on the master", flush=True)
    page.set_up(cloud, {USER: password}, console=True)
    url, _ = page.opened(cloud, PORT)
    while not page.answers(url):
        if time.monotonic() > began + BOOT_S:
            raise LabError(f"the page is not served within {BOOT_S} s")
        time.sleep(1)
    print(f"({time.monotonic() - began:.1f} s)", flush=True)
    return url, password


def main():
    """The exit code."""
    parser = argparse.ArgumentParser(prog="make demo")
    parser.add_argument("--debian", default="12")
    parser.add_argument("--salt", default="3008")
    given = parser.parse_args()
    cloud = Cloud(NAME)

    def say(text):
        print(f"lab: {text}", flush=True)

    try:
        reason = packages.why_not()
        if reason:
            raise LabError(reason)
        cloud.up(2, Recipe(given.debian, given.salt), say=say)
        cloud.exec("master", PATIENCE)
        play(cloud)
        url, password = serve(cloud)
    except LabError as exc:
        print(f"\ndemo: {exc}", file=sys.stderr)
        print("The cloud is still up: look at it, then make demo-down", file=sys.stderr)
        return 1
    print(
        "\nThat is all. The cloud runs on:\n"
        f"  {url}/page          the page: user {USER}, password {password}, login by file\n"
        f"  tests/lab/lab --name {NAME} shell master    to enter it; there:\n"
        "  salt-run virt.console centos1        a console; ^] leaves it\n"
        "  make demo-down                       to take it down"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
