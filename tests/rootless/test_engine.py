"""The engines: libvirt's events about a guest of a hypervisor arrive on the master's bus, and in
virt.log."""

import contextlib
import subprocess
import sys

import pytest

from tests.clock import until
from tests.rootless.cloud import ENGINE

# the engine of a master, which was synced after the master had started
MASTER_ENGINE = """
import sys
import salt.config, salt.loader
opts = {**salt.config.master_config(sys.argv[1]), "__role": "master"}
sys.path.append(opts["extension_modules"] + "/utils")
salt.loader.engines(opts, {}, {}, salt.loader.utils(opts))["virt_log.start"]()
"""


@contextlib.contextmanager
def master_engine(cloud):
    command = [sys.executable, "-c", MASTER_ENGINE, cloud.master.config["conf_file"]]
    process = subprocess.Popen(command)
    try:
        yield
    finally:
        process.terminate()
        process.wait()


@pytest.fixture
def guest(cloud):
    """The guest ``test`` of hv1, at libvirt itself."""
    return cloud.libvirtds["hv1"].connection.lookupByName("test")


def test_the_life_of_a_guest(cloud, guest):
    def events(event, detail):
        tag = f"{ENGINE}/test+unix/default/domain/lifecycle"
        wanted = {"event": event, "detail": detail}
        entries = [entry for entry in cloud.events.store if entry.tag == tag]
        return [entry for entry in entries if wanted.items() <= entry.data["data"].items()]

    def suspended():
        guest.suspend()
        guest.resume()
        return events("resumed", "unpaused")

    reason = f"an event of the engine, of {[entry.tag for entry in cloud.events.store][-9:]}"
    last = until(suspended, reason)[-1].stamp

    # other tests start the same guest: only later events count
    def new_events(event, detail):
        return [entry.data["data"] for entry in events(event, detail) if entry.stamp > last]

    guest.destroy()
    guest.create()
    [data] = until(lambda: new_events("started", "booted"), "the start")
    assert (data["domain"]["name"], data["domain"]["uuid"]) == ("test", guest.UUIDString())
    assert data["uri"] == cloud.libvirtds["hv1"].uri
    assert new_events("stopped", "destroyed")


@pytest.fixture
def logged_guest(cloud):
    """A guest whose events no other test provokes: of each guest the log has a limited number."""
    dom = cloud.libvirtds["hv1"].connection.defineXML(
        "<domain type='test'><name>logged</name><memory>8192</memory><os><type>hvm</type></os>"
        "</domain>"
    )
    dom.create()
    yield dom
    dom.destroy()
    dom.undefine()


def test_a_guest_that_stops_by_itself_is_in_the_log(cloud, logged_guest):
    with master_engine(cloud):
        check_that_a_stop_is_logged(cloud, logged_guest)


def check_that_a_stop_is_logged(cloud, guest):
    def events():
        entries = cloud.run("virt.log", "logged", verb="event")["log"]["entries"]
        return [entry for entry in entries if entry["user"] == "libvirt"]

    def hosts():
        entries = cloud.run("virt.log", "hv1", verb="event")["log"]["entries"]
        return [entry["state"] for entry in entries]

    until(lambda: "listening" in hosts(), "the first report of hv1")
    former = len(events())
    guest.shutdown()
    try:
        until(lambda: len(events()) > former, "the event in the log")
    finally:
        guest.create()
    [stopped] = [entry for entry in events()[former:] if entry["state"] == "stopped"]
    assert (stopped["host"], stopped["verb"], stopped["result"]) == ("hv1", "event", True)
    assert stopped["comment"] == "the guest has shut down"
    code, lines = cloud.typed("virt.log", "logged", limit=5)
    assert code == 0
    assert any("libvirt  event" in line and "stopped" in line for line in lines), lines
    until(lambda: events()[-1]["state"] == "started", "the start with virsh")
    # any minion can send an event with this tag
    forged = {"said": {"session": "x", "sent_s": 4e9, "interval_s": 1,
                       "events": [{"number": 1, "time_s": 1, "guest": "fake", "state": "crashed"}]},
              "proof": "AAAA"}  # fmt: skip
    cloud.call("hv2", "event.send", "salt/virt/log/hv1", data=forged)
    cloud.call("hv2", "event.send", "salt/virt/log/hv2", data=forged)
    assert cloud.run("virt.log", "fake")["log"]["entries"] == []
