"""The host of a guest as a state of the hypervisors."""

import pytest

from tests.lab.fixtures import words

pytestmark = pytest.mark.lab


def apply(cloud, hosts, state, name, **parameters):
    """{host: the answer of a single state}"""
    answers = cloud.salt(hosts, "state.single", *words([f"virt.{state}", name], parameters))
    return {host: next(iter(answer.values())) for host, answer in answers.items()}


def outcome(answer):
    return answer["result"], answer["changes"]


@pytest.mark.slow
def test_a_guest_is_where_it_shall_be(cloud, guests):
    guest = guests("state1").define("hv1")
    moved = {"state1": {"host": {"old": "hv1", "new": "hv2"}}}
    told = apply(cloud, "hv1", "migrated", "state1", target="hv2", test=True)["hv1"]
    assert outcome(told) == (None, moved)
    assert guest.states() == {"hv1": "shut off"}
    done = apply(cloud, "hv1", "migrated", "state1", target="hv2")["hv1"]
    assert outcome(done) == (True, moved), done
    assert guest.states() == {"hv2": "shut off"}
    for host in cloud.hosts:  # where it was, and where it is
        again = apply(cloud, host, "migrated", "state1", target="hv2", policy="safe")[host]
        assert outcome(again) == (True, {}), again
    # one state for all hosts: the one that has it moves it
    answers = apply(cloud, "hv*", "on_host", "state1", target="qemu+tls://hv1/system", test=True)
    assert outcome(answers["hv2"])[0] is None
    assert "state1 is not on hv1" in answers["hv1"]["comment"]
    answers = apply(cloud, "hv2", "on_host", "state1", target="hv1")
    assert outcome(answers["hv2"]) == (True, {"state1": {"host": {"old": "hv2", "new": "hv1"}}})
    assert guest.states() == {"hv1": "shut off"}
    for answer in apply(cloud, "hv*", "on_host", "state1", target="hv1").values():
        assert outcome(answer) == (True, {})


def test_why_a_guest_cannot_be_there(cloud, guests):
    guest = guests("state2").define("hv1")
    cloud.exec("hv1", ["virsh", "attach-disk", "state2", "/root/gone.raw", "vdz", "--config"])
    for test in (True, False):
        answer = apply(cloud, "hv1", "migrated", "state2", target="hv2", test=test)["hv1"]
        assert outcome(answer) == (False, {})
        assert "/root/gone.raw" in answer["comment"]
    assert guest.states() == {"hv1": "shut off"}
    answer = apply(cloud, "hv1", "migrated", "state3", target="hv2")["hv1"]
    assert answer["comment"] == "state3 is neither on hv1 nor on hv2"
    assert outcome(answer) == (False, {})
