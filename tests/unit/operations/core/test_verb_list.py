"""The list of verbs."""

from collections import Counter

from saltvirt.operations.core import verb_list
from saltvirt.rights import verbs


def test_each_verb_is_in_one_group():
    listed = Counter(verb for group in verb_list.GROUPS.values() for verb in group)
    assert set(listed) == set(verbs.RULES)
    assert set(listed.values()) == {1}


def test_a_line_is_the_first_sentence_and_names_what_is_required():
    def rename(name, new, test=False):
        """
        Rename a guest that is ``off``. Its
        disks follow.

        :param name: its name
        """

    answer = verb_list.listing({"virt.rename": rename})
    assert answer["Create and remove guests"]["table"][1:] == [
        ["rename NAME NEW", "Rename a guest that is off"]
    ]
