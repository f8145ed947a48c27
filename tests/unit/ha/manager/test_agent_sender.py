"""The engine's messages to the hosts."""

import pytest

from saltvirt.ha.manager.agent_sender import AgentSender
from saltvirt.ha.manager.config import HaConfig, Member
from saltvirt.ha.model.policy import HaPolicy
from saltvirt.ha.transport import frames


class Talk:
    def __init__(self):
        self.told, self.hurries_s = [], []

    def send(self, name, frame):
        self.told.append((name, frame.slot))

    def hurry(self, for_s):
        self.hurries_s.append(for_s)


QUIET = {"master": "salt", "registry": None, "ballots": {}}


@pytest.mark.parametrize(
    "kind, body, hurries",
    [
        (frames.CALL, QUIET, []),
        (frames.CALL, {**QUIET, "registry": {"term": 1}}, [5]),
        (frames.CALL, {**QUIET, "ballots": {"hv2": {"boot": 1, "term": 1, "ballot": 2}}}, [5]),
        (frames.FENCE, {"host": "hv2"}, []),
    ],
)
def test_it_hears_sooner_while_something_is_decided(kind, body, hurries):
    config = HaConfig("salt", ("salt",), {"hv1": Member("10.0.0.1")}, policy=HaPolicy(beat_s=1))
    talker = AgentSender(config, None)
    talk = talker._network = Talk()
    talker.send("hv1", kind, body)
    assert [name for name, _ in talk.told] == ["hv1"]
    assert talk.hurries_s == hurries


def test_what_is_too_long_for_a_host_is_told_to_nobody_and_named(caplog):
    config = HaConfig("salt", ("salt",), {"hv1": Member("10.0.0.1")}, policy=HaPolicy(beat_s=1))
    talker = AgentSender(config, None)
    talker.send("hv1", frames.CALL, QUIET)  # nobody is called yet
    talker.end()
    talk = talker._network = Talk()
    talker.send("hv1", frames.DEFINITION, {"xml": "x" * (frames.MAX_BYTES + 1)})
    assert talk.told == [] and "definition" in caplog.text
    talker.send("hv1", frames.CALL, QUIET)
    assert [name for name, _ in talk.told] == ["hv1"]
