"""Information about other guests is marked where a message is composed, and removed from every
answer."""

import threading

import pytest

from saltvirt import errors
from saltvirt.fleet import answer
from saltvirt.operations.cluster import failover_capacity
from saltvirt.placement import choose
from saltvirt.rights import confidential


def test_a_part_is_cut_however_its_sentence_was_wrapped():
    with confidential.collect() as parts:
        try:
            raise errors.Refused(f"/x is on loan to {confidential.sensitive('payroll-db, hr-1')}")
        except errors.Refused as exc:
            told = {"web1": {"comment": f"hv1: {exc.reason}; nothing was created", "n": 7}}
    assert confidential.redact(told, parts) == {
        "web1": {"comment": "hv1: /x is on loan to somebody; nothing was created", "n": 7}
    }
    assert confidential.redact(("payroll-db, hr-1",), parts) == ["somebody"]
    assert confidential.redact("payroll-db, hr-12", parts) == "payroll-db, hr-12", (
        "no part of a word"
    )
    assert confidential.redact(told, []) is told


@pytest.mark.parametrize("name", ["db\u202e1", "db\t1", "db\x1b[2J1"])
def test_a_name_that_a_line_spells_out_is_cut_too(name):
    with confidential.collect() as there:
        text = str(
            errors.Refused(f"the firmware variables, which {confidential.sensitive(name)} has")
        )
    sent = {"return": f"ERROR: {text}", "retcode": 1, "others": confidential.to_answer(there)}
    with confidential.collect() as parts:
        found = answer.from_return("hv1", sent)
    assert confidential.redact(found.error, parts).endswith("variables, which somebody has")


def test_what_is_composed_by_another_thread_is_cut_too():
    with confidential.collect() as parts:
        thread = threading.Thread(target=confidential.sensitive, args=("db1",))
        thread.start()
        thread.join()
    assert parts == [("db1", "somebody")]
    confidential.sensitive("db2")
    assert parts == [("db1", "somebody")]


def test_a_host_sends_its_parts_beside_what_it_returns():
    with confidential.collect() as there:
        text = f"disk /x is a disk of {confidential.sensitive('db1')}"
        confidential.sensitive("db1")
    sent = confidential.to_answer(there)
    assert sent == [["db1", "somebody"]]
    with confidential.collect() as parts:
        found = answer.from_return("hv1", {"return": text, "retcode": 1, "others": sent})
    assert confidential.redact(found.error, parts) == "disk /x is a disk of somebody"
    for wrong in (None, "db1", [["db1"], "db1", ["db1", 7]], {"a": "b"}):
        with confidential.collect() as parts:
            answer.from_return("hv1", {"return": "x", "others": wrong})
        assert parts == []


def test_a_host_puts_no_words_of_its_own_into_what_others_say():
    many = [[f"g{i}", "x"] for i in range(10**5)]
    sent = [["y" * 10**6, "x"], ["web1 runs on hv1", "\x1b[2Jweb1 is shut off"], *many]
    with confidential.collect() as parts:
        answer.from_return("hv2", {"return": "x", "others": sent})
    assert confidential.redact("web1 runs on hv1", parts) == "somebody"
    assert {instead for _, instead in parts} == {"somebody"}
    assert len(parts) == 9_999, "what a host sends costs no minutes"


def test_the_reasons_of_a_doubt_name_no_disk_and_no_guest_of_others():
    usage = pytest.importorskip("saltvirt.host.storage.usage")
    found = usage.Usage()
    found.add_unknown(
        "cannot determine the files of payroll-db: cannot read /vms/payroll-db_system.qcow2"
    )
    found.add_unknown("/vms/hr-1_data.qcow2, which hr-1 uses, does not exist")
    found.add_unknown("storage pool finance is inactive: its content is unknown")
    with confidential.collect() as there:
        why = found.keep_reason(["/vms/web1.qcow2"])
    assert "payroll-db" in why
    with confidential.collect() as parts:
        said = answer.from_return("hv1", {
            "return": {"left": {"/vms/web1.qcow2": why}}, "retcode": 0,
            "others": confidential.to_answer(there),
        })  # fmt: skip
    assert confidential.redact(said.data, parts) == {"left": {
        "/vms/web1.qcow2": "it cannot be proven to be unused: the reasons concern other "
        "guests"
    }}  # fmt: skip


class Room:
    warns, has_reserve = False, True

    def refusal(self, host, guest, wish=None):
        return "if hv1 died, no host would take payroll-db, hr-1"


def test_the_guests_for_which_room_is_kept_are_not_named(monkeypatch):
    """In a refusal, in the reasons of placement, and in the warning beside a success."""
    with confidential.collect() as parts:
        words = failover_capacity._broken("web1 on hv2", Room().refusal("hv2", None))
        broken = {"hv2": failover_capacity._broken("it", Room().refusal("hv2", None))}
        decision = choose.PlacementDecision((), failover_capacity._rejected(broken))
        refused = errors.Refused(f"no host can take web1: {decision.reasons()}")
    for text in (words, refused.text):
        assert "payroll-db" in text
        said = confidential.redact(text, parts)
        assert said.endswith("would violate virt:ha:reserve: capacity is reserved for other guests")


def test_the_parts_of_a_hostile_host_are_limited():
    with confidential.collect() as parts:
        confidential.from_answer([["x" * 10_000, "y"]] * 10_000)
        confidential.from_answer([["x" * 10**6, "y"], ["db1", "y"]])
    assert sum(len(part) for part, _ in parts) == 500_000 + len("db1")
    assert confidential.redact(["db1", "db12"], parts) == ["somebody", "db12"]
