"""A fleet whose hosts are data, instead of ``saltvirt.fleet.client.Fleet``."""

from saltvirt import errors
from saltvirt.answers.calls import Call
from saltvirt.fleet.answer import FAILED, Answer, down
from saltvirt.operations.core.report import Report


def name_of(call):
    """The function that a host is asked for: of a Call, or a name with or without ``virt.``."""
    if isinstance(call, Call):
        return call.function
    return call if "." in call or call == "*" else f"virt.{call}"


def failed(text):
    """What a host answers whose function failed."""
    return errors.OperationFailed(text)


class Fleet:
    """hosts: a host to what it says, which is a dict of a call (a Call, or the name of a function;
    "*" is each other) to its answer; None is a host that is down.

    An answer is plain data, a Message, an exception, an Answer, or a function of the host and the
    keyword arguments that returns one of these; what is not there is None. ``said`` may be
    overridden instead.

    asked: (host, function, arguments) of all calls; events: (tag, data) of all that were fired.
    """

    def __init__(self, folder=None, /, virt=None, **hosts):
        where = "/nonexistent" if folder is None else str(folder)
        self.opts = {
            "cachedir": where, "pki_dir": where, "virt": virt or {}, "minimum_auth_version": 3,
        }  # fmt: skip
        self.answers = hosts
        self.down = set()
        self.asked, self.events = [], []

    def hosts(self, only=None):
        known = sorted(self.answers)
        if only and only not in known:
            raise errors.NotFound(f"{only!r} is not a hypervisor of this master")
        return [only] if only else known

    def connected(self, hosts):
        return {*hosts} - self.down

    def said(self, host, fun, kwarg):
        """What a host answers; None where it is down."""
        known = self.answers[host]
        if not isinstance(known, dict):
            return known
        known = {name_of(call): answer for call, answer in known.items()}
        return known.get(fun, known.get("*"))

    def answer(self, host, fun, kwarg=None):
        """Write down what was asked, and give the Answer."""
        self.asked.append((host, fun, kwarg))
        if host in self.down or (host in self.answers and self.answers[host] is None):
            return down(host)
        said = self.said(host, fun, kwarg or {})
        said = said(host, kwarg or {}) if callable(said) else said
        if isinstance(said, Answer):
            return said
        if isinstance(said, Exception):
            return Answer(host, error=str(said), kind=FAILED)
        return Answer(host, data=said.to_answer() if hasattr(said, "to_answer") else said)

    def ask(self, hosts, fun, kwarg=None, **_options):
        for host in hosts:
            yield self.answer(host, fun, kwarg)

    def gather(self, hosts, fun, kwarg=None, **options):
        return {one.host: one for one in self.ask(hosts, fun, kwarg, **options)}

    def call(self, host, fun, kwarg=None, **options):
        return self.gather([host], fun, kwarg, **options)[host].get()

    def each(self, host, fun, calls, **_options):
        return [self.answer(host, fun, call) for call in calls]

    def fire_event(self, tag, data):
        self.events.append((tag, data))

    def report(self, name="web1", operation="x"):
        return Report(self, name, operation)

    @property
    def called(self):
        """(host, function) of all calls."""
        return [(host, fun) for host, fun, _ in self.asked]


class Silent:
    """A report of which nothing is kept."""

    def step(self, step, text, **data):
        pass


class Told:
    """A report whose steps and their texts are kept."""

    def __init__(self):
        self.steps = []

    def step(self, step, text, **data):
        self.steps.append((step, text))

    @property
    def lines(self):
        return [text for _, text in self.steps]
