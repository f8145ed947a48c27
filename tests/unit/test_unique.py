"""Is a name free, when not every host answers? And what is settled when an answer is missing."""

import pytest

pytest.importorskip("salt")

from saltvirt import errors
from saltvirt.fleet import answer
from saltvirt.fleet.answer import FAILED, Answer
from saltvirt.operations import begun, find, identity, lifecycle, slots
from saltvirt.operations.init import Init, Wanted
from saltvirt.operations.report import Report
from saltvirt.placement import policy
from saltvirt.revert import Revert

HOST = {"cpus": 8, "memory_kib": 16 << 20, "types": ["kvm"], "guests": {}}
HOST["images_folder"] = {"path": "/x", "total_bytes": 1 << 40, "free_bytes": 1 << 40}


class Cloud:
    """hosts: name to a dict of function to its answer: data, an exception, or an Answer."""

    def __init__(self, tmp_path, **hosts):
        self.opts = {
            "pki_dir": str(tmp_path),
            "cachedir": str(tmp_path),
            "virt": {},
            "minimum_auth_version": 3,
        }
        self.answers = hosts
        self.called = []

    def hosts(self, only=None):
        return [only] if only else sorted(self.answers)

    def ask(self, hosts, fun, kwarg=None, **_options):
        for host in hosts:
            self.called.append((host, fun))
            said = self.answers[host].get(fun, self.answers[host].get("*"))
            if isinstance(said, Answer):
                yield said
            elif isinstance(said, str) and said.startswith("!"):
                yield Answer(host, error=said[1:], kind=FAILED)
            else:
                yield Answer(host, said)

    def gather(self, hosts, fun, kwarg=None, **options):
        return {one.host: one for one in self.ask(hosts, fun, kwarg)}

    def one(self, host, fun, kwarg=None, **options):
        return self.gather([host], fun, kwarg)[host].get()

    def tell(self, tag, data):
        pass


def silent(host):
    return {"*": answer.silent(host, 15, busy=True)}


def init(cloud, name="web1", **more):
    wanted = Wanted(
        name, 1, 64, None, arguments={"seed": more.pop("seed", False)}, start=False, **more
    )
    return Init(cloud, policy.from_config(None, None), wanted, Report(cloud, name, "init"))


MAKES = {"virt.inventory": HOST, "virt.init": {"name": "web1", "pub_key": None},
         "virt.vm_state": {"web1": "shutdown"},
         "virt.leftovers": {"guests": {}, "unfinished": [], "migrations": {}}}  # fmt: skip


def test_a_name_that_may_be_on_a_silent_host_is_refused_unless_the_operator_knows(tmp_path):
    cloud = Cloud(tmp_path, hv1=MAKES, hv2=silent("hv2"))
    with pytest.raises(errors.OperationFailed, match=r"hv2: no answer in 15 s.*name_is_free=True"):
        init(cloud).run()
    assert ("hv1", "virt.init") not in cloud.called
    assert init(cloud, name_is_free=True).run().host == "hv1"


def test_a_guest_with_a_key_is_made_while_the_master_has_seen_no_key_of_it(tmp_path):
    cloud = Cloud(tmp_path, hv1=MAKES, hv2=silent("hv2"))
    assert init(cloud, seed=True).run().host == "hv1"
    (tmp_path / "minions_rejected").mkdir(exist_ok=True)
    (tmp_path / "minions_rejected" / "web1").touch()
    with pytest.raises(errors.OperationFailed, match="it may be on a host"):
        init(cloud, seed=True).run()


def test_where_libvirt_alone_is_silent_its_files_tell(tmp_path):
    hung = {"*": "!libvirt does not answer", "virt.names_on_disk": ["db1"]}
    cloud = Cloud(tmp_path, hv1=MAKES, hv2=hung)
    assert init(cloud).run().host == "hv1"
    with pytest.raises(errors.AlreadyExists, match="on hv2, whose libvirt does not answer"):
        init(cloud, "db1").run()


def test_what_a_silent_host_was_told_to_make_is_not_made_elsewhere(tmp_path):
    cloud = Cloud(tmp_path, hv1=MAKES, hv2=silent("hv2"))
    begun.Begun(cloud.opts, "web1", "virt.init", Revert()).on("hv2")
    with pytest.raises(errors.OperationFailed, match=r"hv2 was told to make web1 by virt\.init"):
        init(cloud, seed=True).run()


def test_a_copy_or_a_new_name_is_the_same(tmp_path):
    has = {"virt.vm_state": {"a": "shutdown"}, "virt.clone": {"disks": {}}, "*": {}}
    cloud = Cloud(tmp_path, hv1=has, hv2=silent("hv2"))
    with pytest.raises(errors.OperationFailed, match="b: it may be on a host that does not answer"):
        identity.check(cloud, "a", "b", "virt.clone")
    assert identity.check(cloud, "a", "b", "virt.clone", sure=True)[0] == "hv1"
    assert find.census(cloud).unheard


def lost(**leftovers):
    said = {"guests": {}, "unfinished": [], "migrations": {}, **leftovers}
    return {**MAKES, "virt.init": answer.lost("hv1"), "virt.leftovers": said, "virt.purge": {}}


def test_an_init_whose_answer_is_lost_is_settled_by_what_the_host_has(tmp_path):
    cloud = Cloud(tmp_path, hv1=lost(guests={"web1": "shutdown"}))
    assert init(cloud).run().state == "shutdown"
    assert ("hv1", "virt.purge") not in cloud.called, "what succeeded is not undone"
    assert begun.of(cloud.opts, "web1") is None


def test_what_is_half_made_is_removed_and_what_is_not_there_is_not_looked_for(tmp_path):
    cloud = Cloud(tmp_path, hv1=lost(guests={"web1": "shutdown"}, unfinished=["web1"]))
    with pytest.raises(errors.Refused, match="what it had made of web1 was removed"):
        init(cloud).run()
    assert ("hv1", "virt.purge") in cloud.called
    cloud = Cloud(tmp_path, hv1=lost())
    with pytest.raises(errors.Refused, match="it has made nothing"):
        init(cloud).run()
    assert ("hv1", "virt.purge") not in cloud.called


def test_an_init_that_is_given_up_is_written_down_until_it_is_known_what_became_of_it(tmp_path):
    given_up = {**MAKES, "virt.init": answer.stalled("hv1", 900)}
    cloud = Cloud(tmp_path, hv1=given_up)
    with pytest.raises(errors.ConnectionFailed, match=r"virt:stall_timeout.*may still be making"):
        init(cloud).run()
    assert begun.of(cloud.opts, "web1")["host"] == "hv1"
    cloud = Cloud(tmp_path, hv1={**MAKES, "virt.init": "!no such image"})
    with pytest.raises(errors.OperationFailed, match="no such image"):
        init(cloud).run()
    assert begun.of(cloud.opts, "web1") is None


def test_a_start_whose_answer_is_missing_is_asked_about_and_nothing_is_undone(tmp_path):
    started = {**MAKES, "virt.start": answer.lost("hv1"), "virt.vm_state": {"web1": "running"}}
    cloud = Cloud(tmp_path, hv1=started)
    one = init(cloud)
    one.wanted.start = True
    assert one.run().state == "running"
    assert ("hv1", "virt.purge") not in cloud.called


def test_what_could_not_be_undone_is_named_and_written_down(tmp_path):
    broken = {**MAKES, "virt.vm_state": "!gone wrong", "virt.purge": "!disk busy"}
    cloud = Cloud(tmp_path, hv1=broken)
    with pytest.raises(errors.OperationFailed, match=r"gone wrong; could not undo: purge web1"):
        init(cloud).run()
    assert begun.of(cloud.opts, "web1")["host"] == "hv1"


def test_a_stop_presses_the_button_again_every_ten_seconds(tmp_path, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(lifecycle.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(lifecycle.time, "sleep", lambda s: now.__setitem__(0, now[0] + s))
    cloud = Cloud(tmp_path, hv1={"virt.vm_state": {"web1": "running"}, "virt.shutdown": True})
    with pytest.raises(errors.OperationFailed, match="is running after 35 s"):
        lifecycle.run(cloud, "web1", "stop", wait_s=35)
    assert cloud.called.count(("hv1", "virt.shutdown")) == 4


def test_a_host_that_is_gone_was_told_nothing_and_the_next_is_tried(tmp_path):
    gone = {**MAKES, "virt.init": answer.down("hv1")}
    cloud = Cloud(tmp_path, hv1=gone, hv2=MAKES)
    placed = init(cloud, host=None).run()
    assert placed.host == "hv2"
    cloud = Cloud(tmp_path, hv1=gone)
    with pytest.raises(errors.Refused, match="hv1: down"):
        init(cloud).run()
    assert begun.of(cloud.opts, "web1") is None


def test_who_makes_no_progress_gives_his_place_to_others(tmp_path):
    cloud = Cloud(tmp_path, hv1=MAKES)
    cloud.opts["virt"] = {"inits_at_once": 1, "queue_timeout": 1}
    gather, got = cloud.gather, []

    def hanging(hosts, fun, kwarg=None, **options):
        if fun == "virt.init":
            with pytest.raises(errors.OperationFailed), slots.deploying(cloud.opts, got.append):
                pass
            after_s, _most_s, quiet = options["quiet"]
            assert after_s == slots.QUIET_S
            quiet()
            with slots.deploying(cloud.opts, got.append):
                got.append("a place")
        return gather(hosts, fun, kwarg)

    cloud.gather = hanging
    init(cloud).run()
    assert got[-1] == "a place"


def test_who_is_left_out_is_said(tmp_path):
    cloud = Cloud(tmp_path, hv1=MAKES, hv2=silent("hv2"))
    told = []
    cloud.tell = lambda tag, data: told.append((tag, data["message"]))
    init(cloud, name_is_free=True).run()
    tag, text = told[0]
    assert tag == "salt/virt/web1/init/unheard"
    assert text.startswith("web1: without hv2: no answer in 15 s")
