"""Verbs for several guests, as typed: lists, patterns, selectors, previews and failures."""

import json

import pytest

from tests.rootless.test_runner import guest

PLACES = {"web1": "hv1", "web2": "hv2", "db1": "hv2"}


@pytest.fixture
def guests(cloud):
    """Three guests that are off."""
    for name, host in PLACES.items():
        cloud.libvirtds[host].connection.defineXML(guest(name))
    yield list(PLACES)
    for host in cloud.hosts:
        for dom in cloud.libvirtds[host].connection.listAllDomains():
            if dom.name() in PLACES:
                if dom.isActive():
                    dom.destroy()
                dom.undefine()


def states(cloud):
    return {
        name: cloud.libvirtds[host].connection.lookupByName(name).isActive()
        for name, host in PLACES.items()
    }


def answer(cloud, *words, **named):
    code, lines = cloud.typed(*words, "--out=json", **named)
    return code, json.loads("\n".join(lines))


def test_a_pattern_is_previewed_and_applied_and_its_results_are_a_table(cloud, guests):
    code, planned = answer(cloud, "virt.start", "web*", test=True)
    assert (code, planned["web*"]["comment"]) == (0, "2 guests: 2 would succeed")
    assert planned["web1"]["result"] is None
    assert not any(states(cloud).values())
    code, lines = cloud.typed("virt.start", "web*")
    assert code == 0, lines
    assert lines == [
        "virt.start: 2 guests: web1, web2",
        "2 guests: 2 succeeded",
        "guest  host  result  comment",
        "web1   hv1   ok      web1 on hv1 was started",
        "web2   hv2   ok      web2 on hv2 was started",
    ]
    assert states(cloud) == {"web1": True, "web2": True, "db1": False}


def test_one_failure_stops_no_other_and_is_the_exit_code(cloud, guests):
    code, done = answer(cloud, "virt.start", "web1,missing,db1")
    assert code == 1
    assert {name: done[name]["result"] for name in ("web1", "missing", "db1")} == {
        "web1": True, "missing": False, "db1": True,
    }  # fmt: skip
    assert done["missing"]["comment"] == "no guest 'missing' on any hypervisor"
    assert done["web1,missing,db1"]["comment"] == "3 guests: 2 succeeded, 1 failed"


def test_hosts_and_states_select(cloud, guests):
    assert answer(cloud, "virt.start", "db*", host="hv2")[0] == 0
    code, done = answer(cloud, "virt.pause", "[web1, db1, web2]", host="hv2", state="running")
    assert code == 0, done
    assert {name for name in done if name in PLACES} == {"db1"}


def test_a_destructive_verb_needs_the_number_of_guests(cloud, guests):
    cloud.run("virt.start", ["web1", "web2"])
    code, lines = cloud.typed("virt.force_off", "web*")
    assert (code, lines) == (
        1,
        ["virt.force_off would affect 2 guests: web1, web2; to confirm, add confirm=2"],
    )
    assert states(cloud)["web1"]
    assert cloud.typed("virt.force_off", "web*", confirm=2)[0] == 0
    assert not any(states(cloud).values())


def test_guests_of_a_silent_host_are_failures_with_their_host(cloud, guests):
    cloud.run("virt.list")
    cloud.libvirtds["hv2"].hang()
    try:
        code, done = answer(cloud, "virt.start", "web*")
    finally:
        cloud.libvirtds["hv2"].go_on()
    assert code == 1
    assert done["web1"]["result"] is True
    assert done["web2"]["comment"].startswith("web2 was last seen on hv2, which does not respond")
    assert done["web*"]["comment"].endswith("hv2 did not answer: guests there may be missing")


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("virt.start", "web9", "foo=1"), "virt.start: unknown 'foo'; known: at_once, confirm, "
                                          "host, label, name, overcommit, state, test"),
        (("virt.start",), "virt.start: missing a required argument: 'name'; "
                          "help: salt-run -d virt.start"),
    ],
)  # fmt: skip
def test_a_mistyped_argument_is_one_line_and_exit_code_1(cloud, words, line):
    assert cloud.typed(*words) == (1, [line])
