"""A BMC for a machine of the lab, which speaks enough of Redfish for its power.

    /usr/bin/python3 -m tests.lab.bmc LAB MACHINE ADDRESS CERTIFICATE PASSWORD

It has an address of its own on the lab's switch, so it is reached while the machine is off, hung or
cut from its network. ForceOff takes the power away, On boots the machine with the disk it had.
"""

import base64
import ctypes
import hmac
import http.server
import json
import os
import ssl
import sys

from tests.lab.cloud import Cloud
from tests.lab.sh import LabError

USER, PORT = "admin", 443
ROOT = "/redfish/v1"
SYSTEM = f"{ROOT}/Systems/1"
RESET = f"{SYSTEM}/Actions/ComputerSystem.Reset"
CLONE_NEWNET = 0x40000000


class Handler(http.server.BaseHTTPRequestHandler):
    """machine, password: of the class that ``handler`` makes."""

    machine, password = None, ""

    def log_message(self, *said):
        """Nothing is written down."""

    def _allowed(self):
        wanted = base64.b64encode(f"{USER}:{self.password}".encode()).decode()
        if hmac.compare_digest(self.headers.get("Authorization", ""), f"Basic {wanted}"):
            return True
        self._say(401, {"error": {"message": "wrong user or password"}})
        return False

    def _say(self, code, body):
        text = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def do_GET(self):
        if not self._allowed():
            return
        system = {
            "@odata.id": SYSTEM, "PowerState": "On" if self.machine.leader() else "Off",
            "Actions": {"#ComputerSystem.Reset": {"target": RESET}},
        }  # fmt: skip
        there = {
            ROOT: {"Systems": {"@odata.id": f"{ROOT}/Systems"}},
            f"{ROOT}/Systems": {"Members": [{"@odata.id": SYSTEM}]},
            SYSTEM: system,
        }
        path = self.path.rstrip("/")
        self._say(200 if path in there else 404, there.get(path, {}))

    def do_POST(self):
        if not self._allowed():
            return
        asked = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
        kind = asked.get("ResetType")
        if self.path != RESET or kind not in ("On", "ForceOff", "ForceRestart"):
            self._say(400, {"error": {"message": "no such action"}})
            return
        if kind != "On":
            self.machine.kill()
        if kind != "ForceOff" and not self.machine.leader():
            try:
                self.machine.boot()
                self.machine.wait()
            except LabError as exc:
                self._say(500, {"error": {"message": str(exc)}})
                return
        self._say(200, {})


def server(address, space, certificate, machine, password):
    """The server, which listens in that network namespace; all else of it is outside."""
    libc = ctypes.CDLL(None, use_errno=True)
    here, there = os.open("/proc/self/ns/net", os.O_RDONLY), os.open(space, os.O_RDONLY)
    made = type("Bmc", (Handler,), {"machine": machine, "password": password})
    _enter(libc, there)
    try:
        listens = http.server.ThreadingHTTPServer((address, PORT), made)
    finally:
        _enter(libc, here)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    listens.socket = context.wrap_socket(listens.socket, server_side=True)
    return listens


def _enter(libc, handle):
    if libc.setns(handle, CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")


def main(lab, name, address, certificate, password):
    """Serve for ever."""
    cloud = Cloud(lab)
    space = f"/run/netns/{cloud.network.switch}"
    server(address, space, certificate, cloud.machine(name), password).serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
