"""``make demo``: a cloud on this machine with the tutorial, command by command, a console, more
guests, and the page."""

import argparse
import json
import re
import secrets
import shlex
import subprocess
import sys
import time

from tests.lab import packages, page, paths
from tests.lab.cloud import Cloud
from tests.lab.recipe import Recipe
from tests.lab.sh import LabError
from tests.tutorial.heartbeat import Heartbeat, duration
from tests.tutorial.steps import SHOWCASE, STEPS
from tests.typist import Typist

NAME = "demo"
# the preferred port of the page on this machine, and the page's user
PORT, USER = 8000, "demo"
# what a terminal is told, and nobody reads
CONTROL = re.compile(r"\x1b(\[[?>]?[0-9;]*[A-Za-z]|\(B|[78<>=])|\x0f")
# how long a freshly started guest may need until its minion has answered (emulated CPUs)
BOOT_S = 1800
# and until it answers a command of `salt`, while it has more to do
PATIENCE = "echo 'timeout: 90' > /etc/salt/master.d/demo.conf"
# the master's settings and files for SHOWCASE
SETTINGS = {
    "virt": {
        "hosts": "hv*",
        "backup": {
            "targets": {"vault": {"host": "hv2", "folder": "/srv/backups"}},
            "retention": {"last": 3, "daily": 7},
        },
    }
}
DEPLOYMENT = {
    "web1": {"cpu": 1, "mem": 256, "groups": ["web"]},
    "web2": {"cpu": 1, "mem": 256, "groups": ["web"]},
    "db1": {"cpu": 1, "mem": 384},
}


def show(cloud, command):
    """Types a command on the master, its output straight to the terminal. Its exit code.

    ``salt`` prints nothing until all minions have answered: a heartbeat is shown until then.
    ``salt-run virt.…`` prints its own progress.
    """
    print(f"\n\033[1mmaster# {command}\033[0m" if sys.stdout.isatty() else f"\nmaster# {command}")
    sys.stdout.flush()
    argv = [str(part) for part in cloud.machine("master").argv(["sh", "-c", command])]
    began = time.monotonic()
    if command.startswith("salt "):
        with Heartbeat("waiting for the answer") as heartbeat:
            done = subprocess.run(argv, check=False, stdout=subprocess.PIPE, text=True)
            heartbeat.stop()
            print(done.stdout, end="")
    else:
        done = subprocess.run(argv, check=False)
    print(f"({time.monotonic() - began:.1f} s)", flush=True)
    return done.returncode


def wait_for(cloud, guest):
    """Waits until the guest's minion is there: it boots on an emulated CPU.

    It is asked only once it is connected: questions to a slow guest would pile up in it.
    """
    print(flush=True)
    end = time.monotonic() + BOOT_S
    ping = f"salt -t 60 {shlex.quote(guest)} test.ping --out=json --static"
    with Heartbeat(f"{guest} boots and connects to the master"):
        while time.monotonic() < end:
            present = cloud.exec("master", "salt-run manage.present --out=json", check=False)
            if (
                f'"{guest}"' in present.stdout
                and "true" in cloud.exec("master", ping, check=False).stdout
            ):
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


def exhibit(cloud):
    """Further guests, labels, a snapshot and a backup. Raises LabError at the first command that
    fails."""
    for path, data in (
        ("/etc/salt/master.d/showcase.conf", SETTINGS),
        ("/srv/showcase.json", DEPLOYMENT),
    ):
        cloud.exec("master", ["sh", "-c", 'cat > "$1"', "-", path], input=json.dumps(data))
    cloud.exec("hv2", ["install", "-d", "-m", "700", "/srv/backups"])
    print("\n== The showcase: a deployment, owners and labels, a snapshot, a backup", flush=True)
    for command in SHOWCASE:
        if show(cloud, command):
            raise LabError(f"the showcase failed at: {command}")


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


def confirmed(question):
    """Whether the user at the terminal agrees; without a terminal, nobody does."""
    if not sys.stdin.isatty():
        return False
    try:
        return input(f"{question} [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:
        return False


def refuse_to_replace(cloud, agreed):
    """Raises LabError if the cloud exists and the user does not agree to its removal."""
    if not cloud.describe():
        return
    state = "is running" if cloud.running() else "exists, but not all of its machines run"
    if agreed or confirmed(f"The demo {cloud.name!r} {state}. Remove it with all its guests?"):
        return
    raise LabError(
        f"the demo {cloud.name!r} {state}: make demo REPLACE=1 removes it with all its guests; "
        f"make demo NAME={cloud.name}2 starts another one beside it"
    )


def announce():
    """Says what will be installed on this machine, and where files are kept."""
    missing = packages.missing(packages.ALL)
    if missing:
        print(f"This machine gets {len(missing)} Debian packages: {' '.join(missing)}.")
    print(
        f"Caches are kept in {paths.cache()}, the cloud in {paths.INSTANCES}; it runs in its own "
        "containers and network namespaces.",
        flush=True,
    )


def raise_cloud(cloud, given):
    """Brings the cloud up, with a heartbeat that names the current step."""
    with Heartbeat("preparing") as heartbeat:

        def say(text):
            heartbeat.line(f"lab: {text}")
            heartbeat.what = text

        cloud.up(2, Recipe(given.debian, given.salt), say=say)
    cloud.exec("master", PATIENCE)


def arguments():
    """The command line."""
    parser = argparse.ArgumentParser(prog="make demo")
    parser.add_argument("--debian", default="12")
    parser.add_argument("--salt", default="3008")
    parser.add_argument("--name", default=NAME)
    parser.add_argument("--replace", action="store_true")
    return parser.parse_args()


def main():
    """The exit code."""
    given = arguments()
    began, is_up = time.monotonic(), False
    try:
        cloud = Cloud(given.name)
        reason = packages.why_not()
        if reason:
            raise LabError(reason)
        refuse_to_replace(cloud, given.replace)
        announce()
        raise_cloud(cloud, given)
        is_up = True
        play(cloud)
        exhibit(cloud)
        url, password = serve(cloud)
    except LabError as exc:
        print(f"\ndemo: {exc}", file=sys.stderr)
        if is_up:
            print(f"The cloud is still up. Remove it: {down(cloud.name)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"\ndemo: interrupted. Remove what exists: {down(given.name)}", file=sys.stderr)
        return 130
    print(
        f"\nThe demo is complete after {duration(time.monotonic() - began)}. The cloud runs:\n"
        f"  {url}/page\n"
        f"      the web page. Log in with 'file': user {USER}, password {password}\n"
        f"  tests/lab/lab --name {cloud.name} shell master\n"
        "      a shell on the master. Try there:\n"
        "        salt-run virt.query\n"
        "        salt-run virt.console centos1      (^] leaves the console)\n"
        f"  {down(cloud.name)}\n"
        "      removes the cloud"
    )
    return 0


def down(name):
    """The command that removes a demo."""
    return "make demo-down" if name == NAME else f"make demo-down NAME={name}"


if __name__ == "__main__":
    sys.exit(main())
