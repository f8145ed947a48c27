"""What every state does with its arguments, and what it returns."""

from saltvirt.errors import SaltException
from saltvirt.spec.base import unknown

CONNECTION = ("connection", "username", "password")


def answer(name, changes=None, comment="", test=False, failures=()):
    """A state's dictionary: False with failures, None for changes that a test found.

    failures: sentences of what went wrong; the changes that were made all the same stay.
    """
    result = None if changes and test else True
    if failures:
        result, comment = False, ". ".join([*filter(None, [comment]), *map(str, failures)])
    return {"name": name, "changes": changes or {}, "result": result, "comment": comment}


class Host:
    """The host as a state sees it: the execution module, and whether this is a test."""

    def __init__(self, salt, connect, test):
        self.salt = salt
        self.connect = connect
        self.test = test

    def call(self, function, *args, **kwargs):
        """What ``virt.<function>`` returns on the state's connection."""
        return self.salt[f"virt.{function}"](*args, **{**self.connect, **kwargs})


def run(given, salt, test, state, known=()):
    """What ``state(host, name, **arguments)`` answers; an error of Salt's becomes its result.

    given: ``locals()`` of the state's function: its arguments, more of them in ``kwargs``.
    salt: ``__salt__``. known: the names that may be in ``kwargs``; any other is refused with
    the nearest that the state has.
    """
    given = dict(given)
    name, more = str(given.pop("name")), given.pop("kwargs", {})
    more = {word: value for word, value in more.items() if not word.startswith("__")}
    connect = {word: given.pop(word, more.pop(word, None)) for word in CONNECTION}
    connect = {word: value for word, value in connect.items() if value is not None}
    try:
        for word in more:
            if word not in known:
                raise unknown(word, {*given, *known, *CONNECTION}, "argument")
        return state(Host(salt, connect, bool(test)), name, **given, **more)
    except SaltException as exc:
        return answer(name, failures=[exc])
