"""What open pages and consoles cost the master: ``make bench-page``, in a lab of two hypervisors.

Of each page all that it does while nobody clicks: it logs in, asks for a ticket, and is told of the
cloud by the engine ``virt_reach``, through nginx and TLS. Of each console what noVNC does: a piece
of a guest's screen each second. Something happens in the cloud each ten seconds, of which all pages
are told. All processes of the master's machine are counted: Salt's, salt-api, the engine, nginx.

Beside it in the same run: what one question of a page costs where there is no engine.
"""

import argparse
import asyncio
import hashlib
import json
import secrets
import ssl
import statistics
import struct
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tornado import httpclient, websocket

from tests.lab import page
from tests.lab.fixtures import Lab

USER, PASSWORD = "ops", "a word of ops"
GUESTS = 5
IMAGE = "/var/lib/libvirt/images/small.qcow2"
CHANGE_S, LATE_S = 10, 60
CPU = """
import os
total = 0
for name in os.listdir("/proc"):
    if name.isdigit():
        try:
            words = open(f"/proc/{name}/stat").read().rpartition(")")[2].split()
        except OSError:
            continue
        total += sum(map(int, words[11:15]))
print(total / os.sysconf("SC_CLK_TCK"))
"""
QUESTIONS = 10


def cpu_s(cloud):
    """CPU time of all processes of the master's machine, and of those that they have waited for."""
    return float(cloud.exec("master", ["/opt/salt/bin/python", "-c", CPU]).stdout)


class Client:
    """Somebody with a browser. url: of the page."""

    def __init__(self, url):
        self.url, self.token, self.codes = url, "", {}
        self.context = ssl.create_default_context()
        self.context.check_hostname, self.context.verify_mode = False, ssl.CERT_NONE
        self.http = httpclient.AsyncHTTPClient(force_instance=True, max_clients=200)

    async def post(self, path, body):
        """(What is answered, the seconds that it took)."""
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if self.token:
            headers["X-Auth-Token"] = self.token
        began = time.monotonic()
        answer = await self.http.fetch(
            f"{self.url}{path}", method="POST", headers=headers, body=json.dumps(body),
            ssl_options=self.context, request_timeout=300, raise_error=False,
        )  # fmt: skip
        self.codes[answer.code] = self.codes.get(answer.code, 0) + 1
        if answer.code != 200:
            print(f"  {answer.code}: {answer.body[-300:]!r}", flush=True)
            return None, time.monotonic() - began
        return json.loads(answer.body)["return"][0], time.monotonic() - began

    async def login(self):
        who = {"username": USER, "password": PASSWORD, "eauth": "file"}
        found, _ = await self.post("/login", who)
        self.token = found["token"]

    async def run(self, fun, **kwarg):
        low = [{"client": "runner", "fun": f"virt.{fun}", "kwarg": kwarg, "arg": []}]
        found, took_s = await self.post("/", low)
        return found and found["data"], took_s

    async def line(self, fun, **kwarg):
        """A WebSocket by a ticket of a function."""
        secret = secrets.token_hex(32)
        digest = hashlib.sha256(secret.encode()).hexdigest()
        told, _ = await self.run(fun, digest=digest, **kwarg)
        assert told and not told.get("retcode"), told
        request = httpclient.HTTPRequest(
            self.url.replace("https", "wss") + "/reach", headers={"Origin": self.url},
            ssl_options=self.context,
        )  # fmt: skip
        line = await websocket.websocket_connect(request, max_message_size=1 << 26)
        await line.write_message(secret)
        said = json.loads(await line.read_message())
        assert "error" not in said, said
        return line


class Page(Client):
    """``heard``: when it was told of a guest's state, by what it is. ``looks``: how often."""

    async def open(self):
        await self.login()
        self.socket = await self.line("watch")
        self.heard, self.looks = {}, 0

    async def watch(self):
        while (text := await self.socket.read_message()) is not None:
            said = json.loads(text)
            self.looks += "at" in said
            for one in said.get("hosts", {}).values():
                guest = one["query"].get("vm_info", {}).get("seen1")
                if guest:
                    self.heard.setdefault(guest["state"], time.monotonic())


async def begun(one):
    """The task of an open page; it reads from the first moment on, as a browser does."""
    await one.open()
    return asyncio.ensure_future(one.watch())


async def console(client, guest):
    """A guest's screen, a piece of it each second."""
    line = await client.line("ticket", name=guest, kind="display")
    for _ in range(4):  # version, kinds of security and the result, the screen
        said = await line.read_message()
        if said.startswith(b"RFB"):
            await line.write_message(b"RFB 003.008\n", binary=True)
        elif (said.startswith(b"\x01\x01") and len(said) == 2) or said == b"\0\0\0\0":
            await line.write_message(b"\x01", binary=True)
        else:
            break

    async def drain():
        while await line.read_message() is not None:
            pass

    draining = asyncio.ensure_future(drain())
    while not draining.done():
        await line.write_message(struct.pack(">BBHHHH", 3, 0, 0, 0, 64, 64), binary=True)
        await asyncio.sleep(1)


async def one_by_one(jobs, at_once=4):
    """As people come, and not all in the same moment."""
    places = asyncio.Semaphore(at_once)

    async def take(job):
        async with places:
            return await job

    return await asyncio.gather(*map(take, jobs))


async def question(cloud, url):
    """What one page's question costs that it asks by the API."""
    client = Client(url)
    await client.login()
    await client.run("query")
    before, took = cpu_s(cloud), []
    for _ in range(QUESTIONS):
        took.append((await client.run("query"))[1])
    each_s = (cpu_s(cloud) - before) / QUESTIONS
    print(f"one virt.query by the API: {each_s:.2f} s of the master's CPU, "
          f"{statistics.median(took):.1f} s until its answer", flush=True)  # fmt: skip


async def quiet(cloud, seconds):
    before, began = cpu_s(cloud), time.monotonic()
    await asyncio.sleep(seconds)
    used = (cpu_s(cloud) - before) / (time.monotonic() - began)
    print(f"with nobody: {used:.2f} of a core", flush=True)


async def change(cloud, pages, paused):
    """Seconds until each page was told that a guest is paused, or goes on."""
    state = "paused" if paused else "running"
    for one in pages:
        one.heard.clear()
    began = time.monotonic()
    word = "pause" if paused else "resume"
    process = await asyncio.create_subprocess_exec(
        *map(str, cloud.machine("master").argv(["salt-run", f"virt.{word}", "seen1"])),
        stdout=asyncio.subprocess.DEVNULL,
    )
    await process.wait()
    done = time.monotonic()
    while any(state not in one.heard for one in pages) and time.monotonic() < done + LATE_S:
        await asyncio.sleep(0.2)
    await asyncio.sleep(max(0, CHANGE_S - (time.monotonic() - began)))
    return [one.heard.get(state, float("inf")) - done for one in pages]


async def load(cloud, url, given):
    await question(cloud, url)
    await quiet(cloud, 20)
    pages = [Page(url) for _ in range(given.pages)]
    began, before = time.monotonic(), cpu_s(cloud)
    tasks = await one_by_one([begun(one) for one in pages])
    took = time.monotonic() - began
    each_s = (cpu_s(cloud) - before) / len(pages)
    print(f"{len(pages)} pages opened in {took:.0f} s, {each_s:.2f} s of the master's CPU each",
          flush=True)  # fmt: skip
    viewer = Client(url)
    await viewer.login()
    for number in range(given.consoles):
        tasks.append(asyncio.ensure_future(console(viewer if number % 20 else pages[0],
                                                   f"seen{number % GUESTS + 1}")))  # fmt: skip
        await asyncio.sleep(2.5)
    await asyncio.sleep(15)
    before, began, late = cpu_s(cloud), time.monotonic(), []
    paused = False
    while time.monotonic() - began < given.seconds:
        paused = not paused
        late += await change(cloud, pages, paused)
    used = (cpu_s(cloud) - before) / (time.monotonic() - began)
    over = [one for one in tasks if one.done()]
    late.sort()
    print(f"{len(pages)} pages, {given.consoles} consoles: {used:.2f} of a core over "
          f"{time.monotonic() - began:.0f} s")  # fmt: skip
    print(f"told of a change after {statistics.median(late):.1f} s in the median, "
          f"{late[-1]:.1f} s at most, after the verb's end; {len(over)} lines ended")  # fmt: skip
    codes = {}
    for one in (*pages, viewer):
        for code, count in one.codes.items():
            codes[code] = codes.get(code, 0) + count
    print(f"answers of salt-api: {codes}", flush=True)
    for one in over:
        print("  ended:", one.exception())
    for one in tasks:
        one.cancel()
    return 0 if not over and set(codes) == {200} and used < 1 else 1


def guests(cloud):
    """New ones; those of the same names that are left are removed."""
    for host in cloud.hosts:
        cloud.exec(host, f"test -e {IMAGE} || qemu-img create -q -f qcow2 {IMAGE} 16M")
    for number in range(1, GUESTS + 1):
        host = cloud.hosts[number % len(cloud.hosts)]
        for verb in ("force_off", "purge"):
            cloud.run(f"virt.{verb}", f"seen{number}")
        more = {"seed": False, "enable_vnc": True, "host": host}
        done = cloud.run("virt.init", f"seen{number}", 1, 32, IMAGE, **more)
        assert done.rc == 0, done.stdout


def main():
    parser = argparse.ArgumentParser(prog="lab bench page")
    parser.add_argument("lab")
    parser.add_argument("--pages", type=int, default=50)
    parser.add_argument("--consoles", type=int, default=20)
    parser.add_argument("--seconds", type=int, default=120)
    given = parser.parse_args()
    cloud = Lab(given.lab)
    page.set_up(cloud, {USER: PASSWORD}, console=True)
    guests(cloud)
    with page.reached(cloud) as url:
        return asyncio.run(load(cloud, url, given))


if __name__ == "__main__":
    sys.exit(main())
