"""The last known guests of a host that does not respond."""

import os

import pytest

from saltvirt.operations.journal import location_cache


@pytest.fixture
def opts(tmp_path):
    return {"cachedir": str(tmp_path)}


def has(*names):
    return {"vm_info": {name: {"state": "running"} for name in names}}


def test_a_silent_host_is_told_of_with_the_guests_that_it_had(opts):
    first = {"hv1": has("web1"), "hv2": has("web2", "db1")}
    assert location_cache.with_last_seen(opts, first) == first
    found = location_cache.with_last_seen(opts, {"hv1": has("web1"), "hv2": {"error": "down"}})
    assert found["hv1"] == has("web1")
    assert found["hv2"]["error"] == "down"
    assert found["hv2"]["last_seen"]["guests"] == ["db1", "web2"]
    assert found["hv2"]["last_seen"]["at"].endswith(" UTC")


def test_a_guest_that_another_host_has_now_is_not_among_them(opts):
    location_cache.with_last_seen(opts, {"hv1": has(), "hv2": has("web2")})
    found = location_cache.with_last_seen(opts, {"hv1": has("web2"), "hv2": {"error": "down"}})
    assert found["hv2"] == {"error": "down"}


def heard(opts, at, host, *guests):
    location_cache.store_host(opts, host, dict.fromkeys(guests, "running"))
    os.utime(location_cache._host_path(opts, host), (at, at))


def test_a_guest_that_moved_between_two_silent_hosts_was_last_seen_on_one(opts):
    heard(opts, 100, "hv3", "web1", "db1")
    heard(opts, 101, "hv1", "web1")
    silent = {"hv1": {"error": "down"}, "hv3": {"error": "down"}}
    found = location_cache.with_last_seen(opts, silent)
    assert found["hv1"]["last_seen"]["guests"] == ["web1"]
    assert found["hv3"]["last_seen"]["guests"] == ["db1"]
    assert location_cache.last_seen(opts, "web1", ["hv1", "hv3"])[0] == "hv1"


def test_what_another_host_has_is_known_also_if_it_is_not_asked(opts):
    """As by virt.query host=hv1."""
    heard(opts, 100, "hv1", "web1")
    heard(opts, 200, "hv2", "web1")
    assert location_cache.with_last_seen(opts, {"hv1": {"error": "down"}}) == {
        "hv1": {"error": "down"}
    }


def test_a_host_that_was_never_heard_has_its_error_alone(opts):
    told = {"hv3": {"error": "down"}, "retcode": 1}
    assert location_cache.with_last_seen(opts, told) == told


def test_it_is_printed_below_the_error():
    from tests.tools import api

    data = {"hv2": {"error": "down", "last_seen": {"guests": ["a", "b"], "at": "2026"}}}
    namespace: dict = {}
    source = (api.REPOSITORY / "_output/virt_query.py").read_text(encoding="utf-8")
    exec(compile(source, "virt_query.py", "exec"), namespace)
    assert namespace["output"](data) == "hv2\n  down\n  last seen there (2026): a, b"
