"""What every state does with its arguments, and what it returns."""

from saltvirt import plain
from saltvirt.errors import SaltException
from saltvirt.settings import CONNECTION
from saltvirt.spec.base import unknown


def answer(name, changes=None, comment="", test=False, failures=()):
    """A state's dictionary: False with failures, None for changes that a test found.

    failures: sentences of what went wrong; the changes that were made all the same stay.
    """
    result = None if changes and test else True
    if failures:
        result, comment = False, ". ".join([*filter(None, [comment]), *map(str, failures)])
    comment = plain.line(comment, None)
    return {"name": name, "changes": changes or {}, "result": result, "comment": comment}


def more(kwargs, allowed, known, what):
    """The arguments without Salt's own (``__id__`` and the like).

    Raises InvalidInput for one that is not allowed, naming the nearest of ``known``. what: whose
    argument it is.
    """
    found = {word: value for word, value in kwargs.items() if not str(word).startswith("__")}
    for word in found:
        if word not in allowed:
            raise unknown(word, known, what)
    return found


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
    name, kwargs = str(given.pop("name")), dict(given.pop("kwargs", {}))
    connect = {word: given.pop(word, kwargs.pop(word, None)) for word in CONNECTION}
    connect = {word: value for word, value in connect.items() if value is not None}
    try:
        kwargs = more(kwargs, known, {*given, *known, *CONNECTION}, "argument")
        return state(Host(salt, connect, bool(test)), name, **given, **kwargs)
    except SaltException as exc:
        return answer(name, failures=[exc])
