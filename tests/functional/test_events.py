"""libvirt's events, from libvirt's test driver; the engine itself: tests/integration."""

import threading
import time
from unittest import mock

import pytest

libvirt = pytest.importorskip("libvirt")

from saltvirt.errors import InvalidInput
from saltvirt.host.node import event_connection, events


@pytest.fixture(scope="module")
def heard():
    """Everything that was sent, while a Listener runs in a thread of its own.

    libvirt's event loop belongs to the process and must be there before a connection is.
    """
    sent = []
    libvirt.virEventRegisterDefaultImpl()
    listener = event_connection.Listener(
        "test:///default", events.chosen(["all"]), lambda *event: sent.append(event)
    )
    thread = threading.Thread(target=listener.run, daemon=True)
    listens = threading.Event()

    def register(*arguments):
        found = events.register(*arguments)
        listens.set()
        return found

    with mock.patch.object(event_connection, "events", mock.Mock(register=register)):
        thread.start()
        assert listens.wait(30)
    yield sent
    listener.stop()
    thread.join(timeout=10)
    assert not thread.is_alive()


@pytest.fixture
def wait_for(heard):
    def wait(kind, event, count):
        end = time.monotonic() + 5
        while time.monotonic() < end:
            found = [data for _uri, k, e, data in heard if (k, e) == (kind, event)]
            if len(found) >= count:
                return found
            time.sleep(0.05)
        raise AssertionError(f"only {heard}")

    heard.clear()
    return wait


def test_the_life_of_a_guest(wait_for, conn):
    dom = conn.lookupByName("test")
    dom.suspend()
    dom.resume()
    dom.destroy()
    dom.create()
    found = wait_for("domain", "lifecycle", 4)
    assert [(data["event"], data["detail"]) for data in found][:5] == [
        ("suspended", "paused"),
        ("resumed", "unpaused"),
        ("stopped", "destroyed"),
        ("started", "booted"),
    ]
    assert found[0]["domain"]["name"] == "test"
    assert found[0]["domain"]["uuid"] == dom.UUIDString()


def test_networks_and_pools(wait_for, conn):
    network = conn.networkDefineXML("<network><name>ev</name></network>")
    network.create()
    network.destroy()
    network.undefine()
    found = wait_for("network", "lifecycle", 4)
    assert [data["event"] for data in found] == ["defined", "started", "stopped", "undefined"]
    pool = conn.storagePoolDefineXML(
        "<pool type='dir'><name>ev</name><target><path>/ev</path></target></pool>"
    )
    pool.create()
    pool.refresh()
    pool.destroy()
    pool.undefine()
    found = wait_for("pool", "lifecycle", 4)
    assert [data["event"] for data in found] == ["defined", "started", "stopped", "undefined"]
    assert wait_for("pool", "refresh", 1)[0] == {
        "pool": {"name": "ev", "uuid": found[0]["pool"]["uuid"]}, "event": "refresh",
    }  # fmt: skip


def test_filters():
    assert events.chosen(["pool", "domain/reboot"]) == [
        ("domain", "reboot"), ("pool", "lifecycle"), ("pool", "refresh"),
    ]  # fmt: skip
    assert len(events.chosen(["all"])) == sum(len(kinds) for kinds in events.EVENTS.values())
    with pytest.raises(InvalidInput, match="domain/livecycle; there are all"):
        events.chosen(["domain/livecycle"])


def test_every_event_of_the_binding_is_known_by_its_number():
    """Pool and node device events were skipped: their numbers were looked for elsewhere."""
    for kind, named in events.EVENTS.items():
        prefix = f"VIR_{events._WORDS[kind][1]}_EVENT_ID_"
        for event, (names, _convert) in named.items():
            assert any(hasattr(libvirt, prefix + name) for name in names.split()), event


def test_numbers_are_named_by_their_own_enumeration():
    """ "started" shares its number with others that begin with VIR_DOMAIN_EVENT_."""
    for name in events._LIFE.names:
        number = getattr(libvirt, f"VIR_DOMAIN_EVENT_{name}")
        assert events._LIFE(number) == name.lower()
        details = events._LIFE_DETAILS[name.lower()].split()
        known = [d for d in details if hasattr(libvirt, f"VIR_DOMAIN_EVENT_{name}_{d}")]
        for detail in known:
            value = getattr(libvirt, f"VIR_DOMAIN_EVENT_{name}_{detail}")
            told = events._lifecycle(number, value)["detail"]
            assert told == detail.lower().replace("_", " ")
        everything = {
            a.removeprefix(f"VIR_DOMAIN_EVENT_{name}_")
            for a in dir(libvirt)
            if a.startswith(f"VIR_DOMAIN_EVENT_{name}_") and not a.endswith("_LAST")
        }
        assert everything <= set(details)
    assert events._LIFE(999) == "unknown"
