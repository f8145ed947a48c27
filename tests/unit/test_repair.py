"""What virt.repair finds, says of it, and mends: on hosts of plain data."""

import shlex

import pytest

pytest.importorskip("salt")

from saltvirt import errors
from saltvirt.fleet.answer import Answer, down
from saltvirt.operations import begun, find, lock, repair
from saltvirt.revert import Revert


class Silent:
    def step(self, step, text, **data):
        pass


class Cloud:
    """left: host to what its virt.leftovers says; None: the host does not answer."""

    def __init__(self, tmp_path, left):
        self.opts = {"pki_dir": str(tmp_path), "cachedir": str(tmp_path)}
        self.left = left
        self.called = []

    def hosts(self, only=None):
        return sorted(self.left)

    def ask(self, hosts, function, kwarg=None, **_options):
        for host in hosts:
            data = self.left[host]
            yield Answer(host, data) if data is not None else down(host)

    def one(self, host, function, kwarg=None, **_options):
        with (
            pytest.raises(errors.OperationFailed, match="is under way"),
            lock.guest(self.opts, kwarg["vm_"], "virt.init"),
        ):
            pass
        if kwarg.get("test"):
            return {"delete": [], "keep": {}}
        self.called.append((host, function, kwarg["vm_"]))
        return True


def left(guests=(), unfinished=(), **migrations):
    return {
        "guests": dict.fromkeys([*guests, *unfinished], "shutdown"),
        "unfinished": list(unfinished),
        "migrations": {k: {"target": v, "at_work": False} for k, v in migrations.items()},
    }


@pytest.fixture
def cloud(tmp_path):
    return Cloud(
        tmp_path,
        {"hv1": left(["two"], ["a", "b"]), "hv2": left(["two"], m="qemu+tls://hv1/system")},
    )


def test_each_finding_has_a_code_an_id_its_evidence_and_its_command(cloud):
    found, unheard = repair.look(cloud)
    assert not unheard
    assert [one.id for one in found] == [
        "half-made:a:hv1", "half-made:b:hv1", "migration-broken-off:m:hv2", "two-hosts:two",
    ]  # fmt: skip
    for one in found:
        data = one.data()
        assert data["code"] in repair.CODES
        assert data["evidence"]
        assert data["command"]
    assert found[0].command == "salt-run virt.repair apply=True what=half-made:a:hv1"


@pytest.mark.parametrize(
    ("options", "ids"),
    [
        ({"name": "a"}, ["half-made:a:hv1"]),
        ({"what": "half-made"}, ["half-made:a:hv1", "half-made:b:hv1"]),
        ({"what": "half-made:b:hv1"}, ["half-made:b:hv1"]),
        ({"name": "a", "what": "two-hosts"}, []),
        ({}, None),
    ],
)
def test_one_guest_and_one_finding_can_be_chosen(cloud, options, ids):
    everything, _ = repair.look(cloud)
    found = [one.id for one in repair.chosen(everything, **options)]
    assert found == (ids if ids is not None else [one.id for one in everything])


def test_a_code_that_is_none_is_refused(cloud):
    with pytest.raises(errors.InvalidInput, match="what=half-mad: no such finding; a code"):
        repair.chosen([], what="half-mad")


def test_only_what_was_chosen_is_mended(cloud):
    found, _ = repair.look(cloud)
    mended, remaining = repair.mend(repair.chosen(found, name="b"), Silent())
    assert cloud.called == [("hv1", "virt.purge", "b")]
    assert (mended, remaining) == ({"b": "removed from hv1"}, {})


def test_what_is_advised_for_a_guest_on_two_hosts_deletes_no_disk(cloud):
    """Both definitions can name the same disk."""
    found, _ = repair.look(cloud)
    twice = next(one for one in found if one.code == repair.TWICE)
    assert twice.mend is None
    words = " ".join([twice.how, twice.command, twice.what, twice.evidence])
    assert "purge" not in words
    assert "stop it and undefine it" in twice.how
    assert "salt hv1 virt.undefine two" in twice.command
    with pytest.raises(errors.OperationFailed) as caught:
        find.Census({"two": {"hv1": "running", "hv2": "shutdown"}}).host_of("two")
    assert "purge" not in caught.value.text
    assert "virt.repair name=two" in caught.value.text


def test_two_findings_of_one_guest_are_both_told(tmp_path):
    cloud = Cloud(tmp_path, {"hv1": left([], ["a"]), "hv2": left([], ["a"])})
    found, _ = repair.look(cloud)
    mended, _ = repair.mend(repair.chosen(found, what=repair.HALF_MADE), Silent())
    assert mended == {"a": "removed from hv1; removed from hv2"}


def test_a_guest_whose_init_was_given_up_or_killed_is_named_until_somebody_wants_it(tmp_path):
    cloud = Cloud(tmp_path, {"hv1": left(["whole"], ["half"]), "hv2": None})
    for name, host in (("whole", "hv1"), ("half", "hv1"), ("later", "hv2"), ("none", "hv1")):
        begun.Begun(cloud.opts, name, "virt.init", Revert()).on(host)
    found, _ = repair.look(cloud)
    assert [one.id for one in found] == ["half-made:half:hv1", "given-up:later:hv2",
                                         "given-up:whole:hv1"]  # fmt: skip
    whole = found[2].data()
    assert not whole["mends"]
    assert whole["what"] == "made on hv1 by virt.init, which was given up or killed; it is shutdown"
    assert "hv2" in found[1].what
    with lock.guest(cloud.opts, "whole", "virt.init"):
        assert "given-up:whole:hv1" not in [one.id for one in repair.look(cloud)[0]]
    begun.forget(cloud.opts, "whole")
    cloud.left["hv1"]["guests"]["whole"] = "running"
    assert "given-up:whole:hv1" not in [one.id for one in repair.look(cloud)[0]]


@pytest.mark.parametrize("name", ["a; reboot", "$(reboot)", "a' b", "a\nreboot"])
def test_a_name_that_a_host_made_up_is_no_command(tmp_path, name):
    cloud = Cloud(tmp_path, {"hv1": left([name], [f"{name};"]), "hv2": left([name])})
    found, _ = repair.look(cloud)
    assert {one.code for one in found} == {repair.HALF_MADE, repair.TWICE}
    for one in found:
        for command in one.command.removeprefix("one of: ").split("; salt "):
            words = shlex.split(command)
            assert any(word in (name, f"what={one.id}") for word in words), command


@pytest.mark.parametrize("name", ["x" * 300, "\ud800", "ä" * 200, "a\nb"])
def test_a_name_that_no_file_can_have_does_not_keep_the_others_from_being_mended(tmp_path, name):
    cloud = Cloud(tmp_path, {"hv1": left(["c"], [name, "c"])})
    found, _ = repair.look(cloud)
    mended, unmended = repair.mend(found, Silent())
    assert list(mended) == ["c"]
    assert "cannot be a guest's name" in unmended[name]
