"""A cloud of one host in this process: the runner's operations with the real modules. Only Salt's
transport is missing: each request is a call of the function."""

from saltvirt import errors
from saltvirt.fleet.answer import FAILED, Answer
from saltvirt.operations.core import report
from tests.functional import asking


class Fleet:
    """saltvirt.fleet.client.Fleet with one host, whose loaded modules are asked directly."""

    def __init__(self, modules, tmp_path, host="hv1"):
        self.modules, self.host = modules, host
        self.asked = []
        self.opts = {
            "cachedir": str(tmp_path / "cache"), "pki_dir": str(tmp_path / "pki"),
            "sock_dir": str(tmp_path), "user": "root",
        }  # fmt: skip

    def hosts(self, only=None):
        return [self.host]

    def connected(self, hosts):
        return set(hosts) & set(self.hosts())

    def ask(self, hosts, fun, kwarg=None, **options):
        if not hosts:
            return
        self.asked.append((fun, kwarg))
        try:
            yield Answer(self.host, data=asking.answer(self.modules, fun, **(kwarg or {})))
        except errors.VirtError as exc:
            yield Answer(self.host, error=exc.text, kind=FAILED)
        except Exception as exc:
            # the loader has its own copy of the library, whose classes are others
            if "saltvirt" not in type(exc).__module__:
                raise
            yield Answer(self.host, error=str(exc), kind=FAILED)

    def gather(self, hosts, fun, kwarg=None, **options):
        return {answer.host: answer for answer in self.ask(hosts, fun, kwarg)}

    def call(self, host, fun, kwarg=None, **options):
        return self.gather([host], fun, kwarg)[host].get()

    def fire_event(self, tag, data):
        self.told = (tag, data)

    def report(self, name, operation):
        return report.Report(self, name, operation)
