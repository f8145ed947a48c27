"""Scenarios of the simulator as users write them: docs/explanation/ha-design.md."""

import json
import sys

import pytest

from saltvirt.ha.model.view import SavedMasterState
from tests.ha import commands, grammar, scenario, simulate
from tests.lab.paths import REPOSITORY

HOSTS = "hosts: {hyper1: {}, hyper2: {}, hyper3: {}}\nguests: {web1: {host: hyper1}}\n"
OFF = "power: off, network: off, storage: on, bmc: on, watchdog: on"
# as YAML takes them: off is false, and names may be numbers
WHOLE = f"""
hosts:
  1: {{cpus: 8, memory_mib: 65536, {OFF}}}
  2: {{cpus: 8, memory_mib: 65536, {OFF}}}
  hyper3: {{cpus: 8, memory_mib: 65536, {OFF}}}
guests:
  web1: {{host: 1, state: started, vcpus: 1, memory_mib: 1024, priority: 0, restarts: 1,
         relocates: 1, failback: true}}
  7: {{host: 2, state: started}}
rules:
  - {{guests: [web1, 7], anti_affinity: strict}}
  - {{guests: [web1], hosts: {{1: 2, 2: 1}}, host_affinity: preferred}}
shutdown_policy: conditional
commands:
  - [power 1 on, power 2 on, power hyper3 on]
  - [network 1 off]
  - [delay 200]
"""


def commanded(*steps):
    return HOSTS + f"commands: {json.dumps([list(steps)])}\n"


def test_a_scenario_as_the_issue_writes_it():
    found = simulate.outcome(WHOLE)
    assert found["violations"] == []
    assert [found["end"]["hosts"][name]["power"] for name in ("1", "2", "hyper3")] == [
        "off", "on", "on"
    ]  # fmt: skip
    guests = found["end"]["guests"]
    assert (guests["web1"]["host"], guests["7"]["host"]) == ("hyper3", "2")
    assert guests["web1"]["running"] and guests["7"]["running"]
    assert {*found["timeline"][0]} == {"time", "actor", "action", "why"}


WRONG = {
    "- a\n": "a scenario must be a mapping",
    "": "hosts is missing",
    "hosts: {a: {\n": "it is no YAML: ",
    "hosts:\n\ta: {}\n": "it is no YAML: ",
    "hosts: {a: {}}\nfoo: 1\n": "unknown key foo",
    "hosts: [a]\n": "hosts must be a mapping",
    "hosts: {a: 3}\n": "hosts: a must be a mapping",
    "hosts: {on: {}}\n": "a name is one word, not True",
    "hosts: {a b: {}}\n": "a name is one word, not a b",
    "hosts: {a: {cpus: many}}\n": "host a: cpus must be a whole number",
    "hosts: {a: {cpus: 0}}\n": "from 1, not 0",
    "hosts: {a: {cpus: }}\n": "not None",
    "hosts: {a: {power: 1}}\n": "host a: power must be on or off, not 1",
    "hosts: {a: {}}\nguests: {w: {host: z}}\n": "guest w: there is no host z",
    "hosts: {a: {}}\nguests: {w: {restarts: -1}}\n": "guest w: restarts",
    "hosts: {a: {}}\nguests: {w: {state: up}}\n": "guest w: state must be",
    "hosts: {a: {}}\nrules: [x]\n": "a rule must be a mapping",
    "hosts: {a: {}}\nrules: [{anti_affinity: strict}]\n": "a rule has guests",
    HOSTS + "rules: [{guests: [web1]}]\n": "one of hosts, affinity and anti_affinity",
    HOSTS + "rules: [{guests: web1, anti_affinity: strict}]\n": "guests must be a list",
    HOSTS + "rules: [{guests: [web1], anti_affinity: true}]\n": "anti_affinity must be strict",
    HOSTS + "rules: [{guests: [web9], anti_affinity: strict}]\n": "there is no guest web9",
    HOSTS + "rules: [{guests: [web1], hosts: [z]}]\n": "there is no host z",
    HOSTS + "rules: [{guests: [web1], hosts: {hyper1: best}}]\n": "rank of hyper1",
    HOSTS + "shutdown_policy: maybe\n": "shutdown_policy must be one of",
    HOSTS + "beat_s: 0\n": "beat_s must be shorter",
    HOSTS + "max_fences: many\n": "max_fences must be a number",
    HOSTS + "masters: [hyper1]\n": "hyper1 is a host and a master",
    HOSTS + "masters: 2\n": "masters must be a list",
    HOSTS + "expect: {hostz: {}}\n": "expect: unknown key hostz",
    HOSTS + "commands: power hyper1 off\n": "commands must be a list",
    HOSTS + "commands: [[delay: 3]]\n": "which are words",
    HOSTS + "masters: [m1, m2]\ncommands: [[master stop]]\n": "say which",
}  # fmt: skip


@pytest.mark.parametrize("text", WRONG, ids=range(len(WRONG)))
def test_what_is_no_scenario_is_one_line(text):
    with pytest.raises(scenario.BadScenario) as caught:
        scenario.load(text)
    assert WRONG[text] in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "command, said",
    [
        ("", "unknown command without a word"),
        ("explode hyper1", "unknown command explode hyper1; known: agent, bmc, clock"),
        ("power hyper1", "the command is power HOST on|off"),
        ("power hyper1 off now", "the command is power HOST on|off"),
        ("power hyper9 off", "there is no host hyper9"),
        ("power master off", "there is no host master"),
        ("cut hyper1 hyper9", "there is no machine hyper9"),
        ("cut hyper1 hyper2 sometimes", "cut MACHINE MACHINE oneway"),
        ("storage hyper1 slow", "storage HOST slow SECONDS"),
        ("delay", "the command is delay SECONDS"),
        ("delay x", "the command is delay SECONDS"),
        ("delay nan", "the command is delay SECONDS"),
        ("delay -5", "the command is delay SECONDS"),
        ("delay 1e9", "the command is delay SECONDS"),
        ("clock hyper1 soon", "the command is clock MACHINE +SECONDS"),
        ("shutdown hyper1 foo", "the command is shutdown HOST"),
        ("agent hyper1 pause", "agent HOST stop|start|restart|kill"),
        ("ha on", "ha arm|disarm"),
        ("master zzz stop", "there is no master zzz"),
        ("guest web1", "guest GUEST add HOST or"),
        ("guest web1 explode", "guest GUEST add HOST or"),
        ("guest web1 crash foo", "guest GUEST crash panic|io"),
        ("guest web1 fail_start x", "fail_start|fail_migrate COUNT"),
        ("guest web1 fail_start -1", "fail_start|fail_migrate COUNT"),
        ("guest web1 migrate", "migrate|relocate|start|move HOST"),
        ("guest web1 migrate hyper9", "there is no host hyper9"),
        ("guest web9 stopped", "there is no guest web9"),
        ("guest web9 add hyper9", "there is no host hyper9"),
    ],
)
def test_what_is_no_command_is_said_before_the_first_is_carried_out(command, said):
    with pytest.raises(scenario.BadScenario) as caught:
        scenario.load(commanded("delay 1", command))
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_master_that_forgets_has_lost_its_disk():
    world = commands.run(scenario.load(HOSTS))
    master = world.masters["master"]
    assert master.kept.registry.version > 0
    commands.do(world, "master forget")
    assert master.kept == SavedMasterState()


def test_a_guest_that_is_gone_or_runs_already():
    with pytest.raises(scenario.BadScenario, match="guest web1 stopped: it is not there"):
        simulate.outcome(commanded("guest web1 delete", "guest web1 stopped"))
    with pytest.raises(scenario.BadScenario, match="guest web1 add: it runs on hyper1"):
        simulate.outcome(commanded("delay 30", "guest web1 add hyper2 running"))


def test_each_command_has_its_form_and_its_place_in_the_docs():
    assert {*grammar.FORMS} == {*commands.COMMANDS, commands.DELAY}
    text = (REPOSITORY / "docs/explanation/ha-design.md").read_text(encoding="utf-8")
    text = text.split("## The simulator")[1]
    assert [name for name in grammar.FORMS if f"`{name}" not in text] == []
    words = {word for form in grammar.FORMS["guest"] for part in form.split()
             for word in part.split("|") if word.islower()}  # fmt: skip
    assert [word for word in sorted(words) if word not in text] == []


def test_the_command_itself_prints_json_or_one_line(tmp_path, monkeypatch, capsys):
    def simulated(text):
        path = tmp_path / "scenario.yaml"
        path.write_bytes(text)
        monkeypatch.setattr(sys, "argv", ["simulate", str(path)])
        code = simulate.main()
        out, err = capsys.readouterr()
        return code, out, err.replace(str(path), "FILE")

    code, out, err = simulated(commanded("guest web1 crash").encode())
    assert (code, err, json.loads(out)["violations"]) == (0, "", [])
    assert {*json.loads(out)} >= {"timeline", "end"}
    for text in (b"hosts: [a]\n", b"hosts: {\xff: {}}\n", commanded("power hyper1 up").encode()):
        code, out, err = simulated(text)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert err.startswith("FILE: ")
