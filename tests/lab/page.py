"""The page in a lab: a minion of the master's own, salt-api, users, consoles, and access from
outside."""

import contextlib
import json
import socket
import ssl
import subprocess
import sys
import urllib.request

from tests.lab import cache, config
from tests.lab.sh import LabError, run

PORT = 8000
USERS = "/etc/salt/users"
API = """\
[Unit]
Description=Salt's API
After=salt-master.service
[Service]
Type=notify
NotifyAccess=all
ExecStart=/opt/salt/bin/salt-api
[Install]
WantedBy=multi-user.target
"""
# run in a machine's network, with a socket that listens outside of it; it ends with the machine
THROUGH = """
import os, socket, sys, threading, time
listening, port = socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2])
machine = f"/proc/{sys.argv[3]}"

def end_with_it():
    while os.path.exists(machine):
        time.sleep(1)
    os._exit(0)

threading.Thread(target=end_with_it, daemon=True).start()

def pour(source, sink):
    try:
        while data := source.recv(65536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        for one in (source, sink):
            one.close()

while True:
    near, _ = listening.accept()
    try:
        far = socket.create_connection(("127.0.0.1", port))
    except OSError:
        near.close()
        continue
    for pair in ((near, far), (far, near)):
        threading.Thread(target=pour, args=pair, daemon=True).start()
"""


# what virt.page.console installs. Of noVNC its files alone are used, and of what it needs nothing
PACKAGES = ("nginx", "nginx-common", "novnc")
CERTIFICATE, KEY = "/etc/salt/api.crt", "/etc/salt/api.key"
CONSOLE = {"virt_page": {"certificate": CERTIFICATE, "key": KEY, "port": PORT}}


def _packages(folder):
    """Debian's packages, as files: the lab's machines reach no mirror."""
    if run(["apt-get", "-q", "download", *PACKAGES], cwd=folder, check=False).returncode:
        run(["apt-get", "-q", "update"])
        run(["apt-get", "-q", "download", *PACKAGES], cwd=folder)


def set_up(cloud, users, virt=None, console=False):
    """The page by its formula, on the lab's master. users: name to password; each may call the
    runner virt alone. virt: more of the master's ``virt``, such as ``rights``. console: with the
    way to consoles, and nginx before both."""
    settings = {
        "rest_cherrypy": {
            "port": PORT, "host": "127.0.0.1", "ssl_crt": CERTIFICATE, "ssl_key": KEY,
        },
        "netapi_enable_clients": ["runner", "runner_async"],
        "external_auth": {"file": {
            "^filename": USERS, "^filetype": "text", "^hashtype": "plaintext",
            **{name: [{"@runner": ["virt.*"]}] for name in users},
        }},
        **({"virt": virt} if virt else {}),
    }  # fmt: skip
    written = {
        "/etc/salt/minion": config.MINION.format(name="master"),
        "/etc/systemd/system/salt-api.service": API,
        "/etc/salt/master.d/api.conf": json.dumps(settings),
        USERS: "".join(f"{name}:{password}\n" for name, password in users.items()),
    }  # fmt: skip
    for path, text in written.items():
        cloud.exec("master", ["sh", "-c", 'umask 077; cat > "$1"', "-", path], input=text)
    cloud.exec("master", """
        chmod 644 /etc/systemd/system/salt-api.service
        openssl req -x509 -newkey rsa:2048 -nodes -days 30 -subj /CN=master \\
            -keyout /etc/salt/api.key -out /etc/salt/api.crt
        systemctl daemon-reload
        systemctl restart salt-master
        systemctl --no-block restart salt-minion
        for try in $(seq 60); do
            salt-key -ya master >/dev/null 2>&1
            salt -t 5 --out=txt master test.ping | grep -q True && exit 0
            sleep 1
        done
        exit 1
    """)  # fmt: skip
    apply(cloud, "virt.page.console" if console else "virt.page")
    if console:
        cloud.exec("master", ["systemctl", "restart", "salt-master"])


def apply(cloud, formula):
    """What each state answers, by its id. Raises LabError where one fails."""
    if formula == "virt.page.console":
        debs = cache.built(f"front-{cache.key(*PACKAGES)}", _packages)
        cloud.push("master", debs, "/var/tmp")
        cloud.exec("master", f"dpkg --force-depends -i /var/tmp/{debs.name}/*.deb")
    argv = ["salt", "-t", "120", "--out=json", "--static", "master", "state.apply", formula]
    done = cloud.exec("master", [*argv, f"pillar={json.dumps(CONSOLE)}"], check=False)
    if done.returncode:
        raise LabError(f"{formula}: {done.stdout}{done.stderr}")
    return {one["__id__"]: one for one in json.loads(done.stdout)["master"].values()}


@contextlib.contextmanager
def reached(cloud):
    """The page's address on this machine's loopback, which leads into the lab."""
    url, way = opened(cloud)
    try:
        yield url
    finally:
        way.kill()
        way.wait()


def opened(cloud, port=0):
    """(The page's address on this machine's loopback, the process by which it leads into the lab).
    It ends with the lab's master. port: any, where that one is taken."""
    leader = str(cloud.machine("master").leader())
    try:
        listening = socket.create_server(("127.0.0.1", port))
    except OSError:
        listening = socket.create_server(("127.0.0.1", 0))
    with listening:
        number = str(listening.fileno())
        argv = ["nsenter", "-t", leader, "-n", sys.executable, "-c", THROUGH, number, str(PORT)]
        way = subprocess.Popen(
            [*argv, leader], pass_fds=[listening.fileno()], stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        return f"https://127.0.0.1:{listening.getsockname()[1]}", way


def answers(url):
    """Whether the page is served at that address."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with urllib.request.urlopen(f"{url}/page", timeout=60, context=context) as answer:
            return answer.status == 200
    except OSError:
        return False
