"""The grammar of the commands of a scenario."""

import math

MASTER = "master"
# no scenario waits longer than a day, and no clock is set further than by some years
TIMES = "feed_lease_s|watchdog_s|lead_lease_s|suspect_s|clock_drift|margin_s"
DAY_S, YEARS_S, MOST = 86_400, 1e9, 1_000_000
# command → its forms. A word in capitals stands for what is named so; a|b for one of these words
FORMS = {
    "power": ["HOST on|off"],
    "disk": ["HOST on|full", "HOST slow SECONDS"],
    "run": ["HOST on|full"],
    "settings": [f"MACHINE {TIMES} SECONDS", "MACHINE program WORD", "MACHINE usual"],
    "liar": ["HOST on|off", "HOST numbers|wishes"],
    "network": ["MACHINE on|off"],
    "storage": ["HOST on|off", "HOST slow SECONDS"],
    "heartbeat": ["HOST on|off"],
    "bmc": ["HOST on|off|lies"],
    "watchdog": ["HOST on|off"],
    "cut": ["MACHINE MACHINE", "MACHINE MACHINE oneway"],
    "heal": ["", "MACHINE MACHINE"],
    "hang": ["HOST on|off"],
    "delay": ["SECONDS"],
    "shutdown": ["HOST"],
    "reboot": ["HOST"],
    "agent": ["HOST stop|start|restart|kill"],
    "master": ["stop|start|restart|forget", "MASTER stop|start|restart|forget"],
    "maintenance": ["HOST on|off"],
    "confirm": ["HOST"],
    "say": ["MASTER"],
    "ha": ["arm|disarm"],
    "clock": ["MACHINE +SECONDS"],
    "guest": [
        "GUEST add HOST",
        "GUEST add HOST running",
        "GUEST delete|started|stopped|ignored|crash|resets|healed|fail_start|fail_migrate",
        "GUEST disable|enable|changed",
        "GUEST migrate|relocate|start|move HOST",
        "GUEST crash panic|io|watchdog|silent|full",
        "GUEST fail_start|fail_migrate COUNT",
    ],
}


class BadScenario(Exception):
    """What is wrong with it, in one line."""


def check(command, names):
    """Raises BadScenario if it is no command. names: of each of HOST, MASTER and GUEST those that
    there are."""
    words = command.split()
    forms = FORMS.get(words[0]) if words else None
    if forms is None:
        raise BadScenario(f"unknown command {command or 'without a word'}; known: "
                          f"{', '.join(sorted(FORMS))}")  # fmt: skip
    fit = [form.split() for form in forms if _fits(form.split(), words[1:], names)]
    if not fit:
        shapes = " or ".join(f"{words[0]} {form}".strip() for form in forms)
        raise BadScenario(f"{command}: the command is {shapes}")
    names = {**names, "MACHINE": [*names["HOST"], *names["MASTER"]]}
    for kind, word in zip(fit[0], words[1:], strict=True):
        if kind in names and word not in names[kind]:
            raise BadScenario(f"{command}: there is no {kind.lower()} {word}")
    if words[0] == MASTER and len(words) == 2 and MASTER not in names["MASTER"] and (
        len(names["MASTER"]) > 1
    ):  # fmt: skip
        raise BadScenario(f"{command}: there are {', '.join(names['MASTER'])}: say which")


def _fits(form, words, names):
    return len(form) == len(words) and all(
        _is(kind, word, names) for kind, word in zip(form, words, strict=True)
    )


def _is(kind, word, names):
    """Whether a word is of a kind. Whether what it names is there is asked later."""
    if kind in (*names, "MACHINE"):
        return True
    if kind == "SECONDS":
        return 0 <= _number(word) <= DAY_S
    if kind == "+SECONDS":
        return abs(_number(word)) <= YEARS_S
    if kind == "WORD":
        return True
    if kind == "COUNT":
        return word.isdecimal() and int(word) <= MOST
    return word in kind.split("|")


def _number(word):
    """NaN, which is in no range, where it is none."""
    try:
        return float(word)
    except ValueError:
        return math.nan
