"""The identity of the caller on a real master: over the network with Salt's eauth, on the command
line, and by its reactor. The master has no minion, so permitted calls find no hypervisor."""

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("salt")

import salt.config
import salt.runner
import salt.utils.event

from tests.functional.conftest import REPOSITORY
from tests.lab import process

SECRET = "a secret of this test"
NOBODY, ALLOWED = "cannot identify the user of this call", "no hypervisor"
GRANTS = [
    {"who": "anna", "verbs": ["use"], "guests": ["anna-*"]}, {"who": "%staff", "verbs": ["read"]},
]  # fmt: skip
LOW = """start:
  runner.virt.locate:
    - args:
      - name: by-reactor
"""


def free_ports():
    with socket.socket() as one, socket.socket() as other:
        one.bind(("127.0.0.1", 0))
        other.bind(("127.0.0.1", 0))
        return one.getsockname()[1], other.getsockname()[1]


@pytest.fixture(scope="module")
def master():
    with process.folder("rt") as root:  # the paths of sockets must be short
        publish_port, ret_port = free_ports()
        reaction = Path(root, "reaction.sls")
        reaction.write_text(LOW)
        conf = {
            "root_dir": root, "interface": "127.0.0.1", "publish_port": publish_port,
            "ret_port": ret_port, "user": "root", "worker_threads": 2, "keysize": 2048,
            "log_level_logfile": "error", "runner_dirs": [str(REPOSITORY / "_runners")],
            "external_auth": {"sharedsecret": {"*": ["@runner"]}}, "sharedsecret": SECRET,
            "reactor": [{"rights/react": [str(reaction)]}],
            "virt": {"hosts": "hv*", "rights": {"grants": GRANTS}},
        }  # fmt: skip
        path = Path(root, "master")
        path.write_text(json.dumps(conf))
        env = {**os.environ, "PYTHONPATH": f"{REPOSITORY / '_utils'}"}
        tools = Path(sys.executable).parent
        daemon = subprocess.Popen(
            [sys.executable, str(tools / "salt-master"), "-c", root], env=env,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        found = Master(str(path), [sys.executable, str(tools / "salt-run"), "-c", root], env)
        try:
            found.wait()
            yield found
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(daemon.pid, 9)
            daemon.wait(60)


class Master:
    def __init__(self, conf, typed, env):
        self.conf, self.typed, self.env = conf, typed, env

    def wait(self):
        end = time.monotonic() + 180
        while True:
            try:
                self.opts = salt.config.client_config(self.conf)
                assert ALLOWED in self.asks("anna", "virt.list")
                return
            except Exception:
                if time.monotonic() > end:
                    raise
                time.sleep(1)

    def asks(self, user, fun, *args, **kwargs):
        """The comment that a user is given."""
        low = {"fun": fun, "arg": list(args), "kwarg": kwargs, "username": user,
               "password": SECRET, "eauth": "sharedsecret"}  # fmt: skip
        client = salt.runner.RunnerClient(self.opts)
        try:
            told = client.cmd_sync(low, timeout=300)
        finally:
            getattr(client, "destroy", lambda: None)()
        [about] = [one for one in told["data"].values() if isinstance(one, dict)]
        return about["comment"]

    def types(self, *words, **env):
        done = subprocess.run(
            [*self.typed, "--out=json", *words], env={**self.env, **env}, capture_output=True,
            text=True, timeout=300, check=False,
        )  # fmt: skip
        return done.stdout + done.stderr


def test_a_user_has_what_is_granted(master):
    assert ALLOWED in master.asks("anna", "virt.start", "anna-1")
    assert master.asks("anna", "virt.evacuate", "hv1") == "anna may not call virt.evacuate"
    assert master.asks("bob", "virt.list") == "bob may not call virt.list"


@pytest.mark.parametrize("user", ["root", "sudo_anna", "Reactor", "UNKNOWN", "%staff"])
def test_a_user_with_the_name_of_somebody_else_is_nobody(master, user):
    said = master.asks(user, "virt.locate", "x", __user__="anna", __pub_user="anna")
    assert NOBODY in said


def test_what_a_user_has_begun_asks_as_that_user(master):
    """Another runner that calls ours: Salt itself calls that nobody's then."""
    low = {"fun": "salt.cmd", "arg": ["saltutil.runner", "virt.evacuate"],
           "kwarg": {"arg": ["hv1"]}, "username": "anna", "password": SECRET,
           "eauth": "sharedsecret"}  # fmt: skip
    told = salt.runner.RunnerClient(master.opts).cmd_sync(low, timeout=300)
    assert "anna may not call virt.evacuate" in json.dumps(told)


def test_the_command_line_is_not_limited(master):
    for env in ({}, {"SUDO_USER": "bob"}):
        assert "is not a hypervisor of this master" in master.types("virt.evacuate", "hv1", **env)


def test_a_reactor_is_not_limited(master):
    with salt.utils.event.get_event("master", opts=master.opts, listen=True) as bus:
        told, end = "", time.monotonic() + 180
        while not ("by-reactor" in told and ALLOWED in told) and time.monotonic() < end:
            bus.fire_event({}, "rights/react")  # the reactor may not listen yet
            event = bus.get_event(wait=2, tag="salt/", full=True, match_type="startswith")
            told = json.dumps(event, default=str)
    assert "by-reactor" in told and ALLOWED in told
