"""A guest's display with a ticket: a real master's engine, Salt's rights, TLS between machines."""

import json

import pytest

pytestmark = [pytest.mark.lab, pytest.mark.slow]

IMAGE = "/var/lib/libvirt/images/small.qcow2"
ENGINE = "engines: [virt_reach]"
# as a browser does it: a secret, its digest to the runner, and the secret to the WebSocket, twice
BROWSER = """
import asyncio, hashlib, json, secrets, subprocess
try:
    from tornado import httpclient, websocket
except ImportError:
    from salt.ext.tornado import httpclient, websocket

secret = secrets.token_hex(32)
digest = hashlib.sha256(secret.encode()).hexdigest()
argv = ["salt-run", "virt.ticket", "seen1", "KIND", f"digest={digest}", "--out=json"]
told = json.loads(subprocess.run(argv, capture_output=True, text=True, timeout=600).stdout)

async def heard(count):
    origin = {"Origin": "http://127.0.0.1:8003"}
    asked = httpclient.HTTPRequest("ws://127.0.0.1:8003/reach", headers=origin)
    line = await websocket.websocket_connect(asked)
    await line.write_message(secret)
    found = [await line.read_message() for _ in range(count)]
    line.close()
    return [one.decode() if isinstance(one, bytes) else one for one in found]

async def both():
    return [await heard(COUNT), await heard(1)]

print(json.dumps([told, *asyncio.run(both())]))
"""


@pytest.fixture(scope="module")
def cloud(lab):
    lab.exec("hv1", f"qemu-img create -q -f qcow2 {IMAGE} 16M")
    lab.exec("master", f"echo '{ENGINE}' > /etc/salt/master.d/reach.conf")
    lab.restart_master()
    done = lab.run("virt.init", "seen1", 1, 64, IMAGE, seed=False, enable_vnc=True, host="hv1")
    assert done.rc == 0, done.stdout
    yield lab
    lab.run("virt.purge", "seen1", "force=True")
    lab.exec("master", "rm -f /etc/salt/master.d/reach.conf")
    lab.restart_master()


def opened(cloud, kind, count):
    """What is told of a ticket, what is heard by it, and what when it is used again."""
    script = BROWSER.replace("KIND", kind).replace("COUNT", str(count))
    cloud.exec("master", ["tee", "/root/browser.py"], input=script)
    cloud.wait(
        lambda: "8003" in cloud.exec("master", "ss -ltn").stdout,
        "the engine listens",
        timeout_s=120,
    )
    done = cloud.exec("master", ["/opt/salt/bin/python", "/root/browser.py"])
    return json.loads(done.stdout.splitlines()[-1])


def test_a_display_and_a_serial_console_by_tickets(cloud):
    told, heard, again = opened(cloud, "display", 2)
    assert told["seen1"]["result"] is True and told["seen1"]["type"] == "vnc", told
    assert json.loads(heard[0]) == {"guest": "seen1", "kind": "display", "type": "vnc"}
    assert heard[1] == "RFB 003.008\n"
    assert json.loads(again[0])["error"].startswith("the ticket is invalid")
    told, heard, _ = opened(cloud, "serial", 1)
    assert json.loads(heard[0]) == {"guest": "seen1", "kind": "serial", "type": "pty"}, told


def test_its_port_stays_on_the_hypervisors_own_address(cloud):
    shown = cloud.run_json("virt.display", "seen1")["seen1"]
    vnc = next(one for one in shown["displays"] if one["type"] == "vnc")
    assert vnc["listen"] == "127.0.0.1"
    listens = cloud.exec("hv1", f"ss -Hltn 'sport = :{vnc['port']}'").stdout.split()
    assert f"127.0.0.1:{vnc['port']}" in listens and f"0.0.0.0:{vnc['port']}" not in listens
    assert cloud.run_json("virt.screenshot", "seen1")["seen1"]["png"].startswith("iVBOR")
