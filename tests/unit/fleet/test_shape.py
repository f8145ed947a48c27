"""The structure of answers is validated before anything reads them."""

import time

import pytest

from saltvirt import errors, sanitize
from saltvirt.answers import guest_calls, host_calls, inspect_calls
from saltvirt.fleet import answer, shape
from saltvirt.migration import calls as migration_calls
from saltvirt.placement import calls as placement_calls

ESCAPES = {
    "\x1b[2J\x1b[31mall is well\x1b[0m": "all is well",
    "\x1b]0;title\x07text": "text",
    "\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\": "link",
    "a\rb\x00c\x08\x7fd": "abcd",
    "\x9b2Jx": "2Jx",
    "abc\u202edef\u2066": "abcdef",
    "\x1bPq\x1b\\": "q",
    "two\nlines\tand ä": "two\nlines\tand ä",
}


@pytest.mark.parametrize("text", ESCAPES)
def test_no_escape_sequence_of_a_minion_reaches_a_terminal(text):
    clean = ESCAPES[text]
    assert shape.clean(text) == clean
    assert shape.clean({text: [{"x": (text, 1, None)}]}) == {clean: [{"x": [clean, 1, None]}]}
    found = answer.from_return("hv1", {"return": f"ERROR: {text}", "retcode": 1})
    assert not set(found.error) & set("\x1b\x07\r\x00\x9b\n")
    assert answer.from_return("hv1", {"return": {text: text}}).data == {clean: clean}


STATES = {"web1": "running"}
WRONG = [
    (guest_calls.LIST_STATES,
     [None, "x", ["web1"], {"web1": 1}, {1: "running"}, {"web1": {"a": 1}}]),
    (placement_calls.INVENTORY, [None, [], {}, {"cpus": "4", "memory_kib": 1}, {"cpus": 4}]),
    (
        guest_calls.LIST_LEFTOVERS,
        [
            {}, {"guests": [], "unfinished": [], "migrations": {}},
            {"guests": STATES, "unfinished": [1], "migrations": {}},
            {"guests": STATES, "unfinished": [], "migrations": {"a": "hv2"}},
            {"guests": STATES, "unfinished": [], "migrations": {}, "purgeable": 5},
            {"guests": STATES, "unfinished": [], "migrations": {}, "purgeable": [1]},
            {"guests": STATES, "unfinished": [], "migrations": {},
             "orphaned_disks": {"web1": ["/a"]}},
            {"guests": STATES, "unfinished": [], "migrations": {},
             "orphaned_disks": {"web1": {"operation": "x", "disks": "/a", "unsure": {}}}},
        ],
    ),
    (migration_calls.LOCATIONS, [{}, {"guests": STATES, "unfinished": {"web1": 1}}]),
    (host_calls.MAINTENANCE, [True, {}, {"guests": "web1"}]),
    (guest_calls.LIST_ADDRESSES, [[], {"web1": []}]),
    (placement_calls.CREATE,
     [None, True, {}, {"name": 1, "disks": []}, {"name": "a", "disks": None}]),
    (placement_calls.RENAME,
     [None, {"name": "a", "disks": [{"path": "/a"}]}, {"name": 1, "disks": []}]),
    (guest_calls.PURGE, ["gone", None, {"left": ["/a"]}, {"left": {"/a": 1}}]),
    (guest_calls.PLAN_PURGE, [None, {"keep": ["/a"]}, {"delete": "/"}, {"shared": []}]),
    (guest_calls.STORAGE_USERS, [[], {"/a": 1}]),
    (migration_calls.MIGRATE,
     [None, {}, {"outcome": "moved", "retained": []}, {"outcome": "", "time_ms": "1"}]),
    (migration_calls.RECOVER_MIGRATION, [None, [], {"leftovers": ["hv2"]}]),
    (inspect_calls.GUEST_DETAILS,
     [None, [], {"web1": {"state": 1}}, {"web1": {"disks": []}}, {"web1": {"pending": "x"}},
      {"web1": {"addresses": [1]}}, {"web1": {"autostart": "on"}}, {"web1": {"usage": {}}}]),
    (guest_calls.SHOW_HOST, [None, [], {"vm_info": []}, {"vm_info": {"web1": {"nics": 7}}}]),
    (guest_calls.NAMES_ON_DISK, [{}, "web1"]),
    (host_calls.CERTIFICATES, [{}, None]),
]  # fmt: skip
CASES = [(call, data) for call, several in WRONG for data in several]


@pytest.mark.parametrize(("call", "data"), CASES, ids=repr)
def test_what_does_not_fit_is_an_error_of_that_host(call, data):
    found = answer.from_return("hv1", {"return": data}).parse(call.function, call.read)
    assert (found.kind, found.data) == (answer.BAD, None)
    begin, _, where = found.error.partition(": ")
    assert begin == f"its answer to {call.function} is not what this version expects"
    assert where, "the place is named"
    with pytest.raises(errors.ConnectionFailed, match="hv1: its answer to"):
        found.get()


def test_what_fits_is_taken():
    assert guest_calls.LIST_STATES.read(STATES, "hv1") == STATES
    assert placement_calls.CHECK_CREATE.read({}, "hv1") == {}


def test_all_keys_of_a_shown_guest_are_passed_on():
    shown = {"vm_info": {"web1": {"cpu": 2, "state": "running", "disks": None}}, "freecpu": 1}
    assert guest_calls.SHOW_HOST.read(shown, "hv1").to_answer() == {
        "vm_info": {"web1": {"cpu": 2, "state": "running"}}, "freecpu": 1,
    }  # fmt: skip


@pytest.mark.parametrize("percent", ["12", [], {}, True, None])
def test_a_step_has_a_number_or_none(percent):
    assert shape.step({"percent": percent, "message": "\x1b[1mx"}).get("percent") is None
    assert shape.step({"percent": 12.5, "message": "x"})["percent"] == 12.5


@pytest.mark.parametrize("few", [" ", "\n", "\r\n ", "\x1b[", "\x1b]", "\u2028"])
def test_what_a_host_says_is_one_line_and_soon(few):
    begun = time.process_time()
    assert "\n" not in sanitize.one_line(shape.clean(f"a{few * 200_000}b"))
    assert sanitize.one_line(" a \n\t b\r\nc ") == "a b c"
    assert time.process_time() - begun < 5


@pytest.mark.parametrize("number", [-1, True, "7", None, 2**63, [], float("nan")])
def test_what_is_counted_is_a_number_with_which_one_can_reckon(number):
    inventory = {"cpus": 4, "memory_kib": 1, "stores": {"/": {"free_bytes": number}}}
    with pytest.raises(errors.BadAnswer):
        placement_calls.INVENTORY.read(inventory, "hv1")


def test_bytes_are_text():
    assert shape.clean({b"a\xff": b"\x1b[2Jx"}) == {"a\ufffd": "x"}


def test_infinity_is_no_number():
    data = {"a": [float("inf"), float("nan"), 1.5, True]}
    assert shape.clean(data) == {"a": [None, None, 1.5, True]}


@pytest.mark.parametrize("wrap", [lambda one: [one], lambda one: {"a": one}], ids=["list", "dict"])
def test_so_deep_an_answer_may_be_and_no_deeper(wrap):
    data = 1
    for _ in range(shape._DEEP):
        data = wrap(data)
    assert shape.clean(data) == data
    with pytest.raises(RecursionError):
        shape.clean(wrap(data))
    assert answer.from_return("hv1", {"return": wrap(data)}).error == (
        "the answer is nested too deeply"
    )


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        (0, 0), (0.5, 0.5), (7, 7), (-1, None), (-0.5, None), (True, None), (False, None),
        (None, None), ("7", None), ([], None), (float("inf"), None), (float("nan"), None),
    ],
)  # fmt: skip
def test_a_time_is_a_number_from_0_with_an_end(said, seconds):
    assert shape.seconds(said) == seconds
