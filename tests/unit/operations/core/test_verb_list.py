"""The list of verbs."""

import ast
from collections import Counter

import pytest

from saltvirt import errors
from saltvirt.operations.access import activity
from saltvirt.operations.core import verb_list
from saltvirt.rights import verbs
from tests.lab import paths

# they run what the user types in the guest, open it for the user, or let its host's guests start
WITHOUT_TEST = {"console", "exec", "ticket", "started"}


def test_each_verb_is_in_one_group():
    listed = Counter(verb for group in verb_list.GROUPS.values() for verb in group)
    assert set(listed) == set(verbs.RULES)
    assert set(listed.values()) == {1}


def test_each_verb_that_changes_something_accepts_test():
    functions = [
        node
        for path in (paths.REPOSITORY / "_runners").glob("virt*.py")
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef)
    ]
    arguments = {
        node.name: {item.arg for item in (*node.args.args, *node.args.kwonlyargs)}
        for node in functions
    }
    arguments["init"] |= {"test"} if "test" in verbs.RULES["init"].takes else set()
    without = {verb for verb in verbs.RULES if "test" not in arguments[verb]}
    assert without - activity.QUERIES == WITHOUT_TEST


def test_the_manual_of_a_verb_and_the_closest_one():
    def start(name):
        """
        Start a guest.

        :param name: its ``name``
        """

    functions = {"virt.start": start}
    text = "Start a guest.\n\n:param name: its name"
    assert verb_list.manual(functions, "start") == {"virt.start": text}
    assert verb_list.manual(functions, "virt.start") == {"virt.start": text}
    with pytest.raises(errors.InvalidInput, match=r"^no verb 'sart'; did you mean 'start'\?$"):
        verb_list.manual(functions, "sart")
    with pytest.raises(errors.InvalidInput, match=r"salt-run virt\.help lists"):
        verb_list.manual(functions, 7)


def test_a_line_is_the_first_sentence_and_names_what_is_required():
    def rename(name, new, test=False):
        """
        Rename a guest that is ``off``. Its
        disks follow.

        :param name: its name
        """

    functions = {"virt.rename": rename, "virt.purge": rename, "virt.start": rename}
    answer = verb_list.listing(functions, {"rename": frozenset({"new", "name"})})
    (group,) = answer.values()
    assert group["table"][1:] == [["rename NAME NEW", "Rename a guest that is off"]]
    assert group["verbs"] == ["rename"]
    assert group["arguments"] == {"rename": ["name", "new"]}
