"""Requests of a minion to its master: a guest's key is submitted, and files are read in parts."""

import pytest

salt_exceptions = pytest.importorskip("salt.exceptions")

from saltvirt import errors
from saltvirt.fleet.minion import client, files
from tests.clock import Clock


def test_a_pillar_is_asked_for_as_it_is_where_salt_would_mask_it():
    """Since 3008.2 it does, unless it is told not to; older ones know no such argument."""
    new = client.ask(lambda external, unmask=False: (external, unmask), {"a": 1})
    assert new == ({"a": 1}, True)
    assert client.ask(lambda external: external, {"a": 1}) == {"a": 1}


@pytest.mark.parametrize(
    ("answers", "accepted", "waits"),
    [
        ([{"virtkey": {"web1": True}}], True, 0),
        ([{"virtkey": {"web1": False}}], False, 0),
        ([None], False, 0),
        ([OSError("no master"), {"virtkey": {"web1": True}}], True, 1),
        ([OSError("no master")] * 3, False, 2),
    ],
)
def test_a_key_is_handed_in_until_the_master_answers(monkeypatch, caplog, answers, accepted, waits):
    """The guest is whole, whatever the master says."""
    clock, asked, left = Clock(), [], list(answers)
    monkeypatch.setattr(client, "time", clock)

    def ext(external):
        asked.append(external)
        found = left.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    assert client.submit_key({"pillar.ext": ext}, "web1", "KEY") is accepted
    assert asked == [{"virtkey": ["web1", "KEY"]}] * len(answers)
    assert len(clock.slept) == waits
    failed = sum(isinstance(one, Exception) for one in answers)
    assert caplog.text.count("the key of web1 could not be submitted to the master") == failed


class Channel:
    """The master's file server, over which the answers come."""

    def __init__(self, *answers):
        self.answers, self.asked, self.channel = list(answers), [], self

    def send(self, load, raw):
        self.asked.append(load)
        found = self.answers.pop(0)
        if isinstance(found, Exception):
            raise found
        return found


@pytest.fixture
def chunks(monkeypatch):
    """A function of the master's answers that makes the (reader, the connections it opened)."""

    def make(*answers):
        opened = []

        def get(_opts):
            opened.append(Channel(*answers))
            return opened[-1]

        monkeypatch.setattr(files.salt.fileclient, "get_file_client", get)
        return files.Chunks({}), opened

    return make


@pytest.mark.parametrize(
    ("answer", "piece"),
    [
        ({"data": b"abc", "dest": "i.qcow2"}, b"abc"),
        ({b"data": b"abc", b"dest": b"i.qcow2"}, b"abc"),
        ({"data": "abc", "dest": "i.qcow2"}, b"abc"),
        ({"data": b"", "dest": "i.qcow2"}, b""),
    ],
)
def test_a_piece_of_a_file_is_bytes_and_the_end_of_it_empty(chunks, answer, piece):
    reader, opened = chunks(answer)
    assert reader.read("salt://i.qcow2?saltenv=dev", "base", 7) == piece
    [channel] = opened
    assert channel.asked == [{"cmd": "_serve_file", "path": "i.qcow2", "saltenv": "dev", "loc": 7}]


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (salt_exceptions.SaltReqTimeoutError("timed out"), "the master does not serve salt://i: "),
        (OSError("broken pipe"), "the master does not serve salt://i: broken pipe"),
        ({}, "the master does not serve salt://i now: see its log"),
        ("no such file", "the master does not serve salt://i now: see its log"),
    ],
)
def test_a_master_that_gives_nothing_is_no_end_of_the_file(chunks, answer, why):
    reader, opened = chunks(answer, {"data": b"x", "dest": "i"})
    with pytest.raises(errors.ImageError, match=f"^{why}"):
        reader.read("salt://i", "base", 0)
    if isinstance(answer, Exception):  # another connection, then
        with pytest.raises(errors.ImageError):
            reader.read("salt://i", "base", 0)
        assert len(opened) == 2
    else:
        assert reader.read("salt://i", "base", 0) == b"x"
        assert len(opened) == 1
