"""start, force_off, pause, resume, reset: by the guest's name, wherever it runs."""

from dataclasses import dataclass

from saltvirt import errors, names
from saltvirt.operations import find

RUNNING, PAUSED, OFF = "running", "paused", "shutdown"


@dataclass(frozen=True)
class Verb:
    """function: on the host. before: states it makes sense in. after: what libvirt must say."""

    function: str
    before: tuple
    after: str
    done: str


VERBS = {
    "start": Verb("virt.start", (OFF, "crashed"), RUNNING, "started"),
    "force_off": Verb("virt.stop", (RUNNING, PAUSED, "pmsuspended", "crashed"), OFF, "powered off"),
    "pause": Verb("virt.pause", (RUNNING,), PAUSED, "paused"),
    "resume": Verb("virt.resume", (PAUSED, "pmsuspended"), RUNNING, "resumed"),
    "reset": Verb("virt.reset", (RUNNING, PAUSED), RUNNING, "reset"),
}


def run(fleet, name, verb_name):
    """Does the verb and confirms it with libvirt.

    Returns (host, state before, state after). A guest that already is as wanted is left
    alone. Raises NotFound, InvalidInput (the verb makes no sense now), OperationFailed.
    """
    verb = VERBS[verb_name]
    name = names.guest(name)
    host, before = find.locate(fleet, name)
    if before == verb.after and verb_name != "reset":
        return host, before, before
    if before not in verb.before:
        raise errors.InvalidInput(f"{name} on {host} is {before}: cannot {verb_name} it")
    fleet.one(host, verb.function, {_PARAMETER.get(verb_name, "vm_"): name}, long=True)
    after = fleet.one(host, "virt.vm_state", {"vm_": name}).get(name)
    wanted = PAUSED if verb_name == "reset" and before == PAUSED else verb.after
    if after != wanted:
        raise errors.OperationFailed(f"{name} on {host} is {after}, not {wanted}")
    return host, before, after


# Salt's own signatures differ: start and stop take ``name``
_PARAMETER = {"start": "name", "force_off": "name"}
