"""Which verbs follow which, and on which guests: pure.

A walk is a new guest and a list of verbs for it. Consecutive verbs are the pairs that a walk
tests. All walks together test every ordered pair on at least ROUNDS combinations of storage,
firmware and machine type, and every verb on all combinations.
"""

import itertools
import random

from tests.life.model import COMBINATIONS

LENGTH = 9
ROUNDS = 2


def tour(verbs):
    """Order verbs so that each ordered pair of them, equal ones too, is consecutive once.

    It is an Eulerian circuit of the complete directed graph with loops.
    """
    verbs = list(verbs)
    size = len(verbs)
    unused = {start: [(start + step) % size for step in range(size)] for start in range(size)}
    path, stack = [], [0]
    while stack:
        if unused[stack[-1]]:
            stack.append(unused[stack[-1]].pop())
        else:
            path.append(stack.pop())
    return [verbs[index] for index in reversed(path)]


def walks(verbs, rounds=ROUNDS, length=LENGTH):
    """Cut the tour into walks, once for each round, each round beginning elsewhere in the tour
    and going through the combinations from another one: (combination, verbs) of each walk."""
    verbs, planned = list(verbs), []
    for turn in range(rounds):
        path = tour(verbs)
        shift = turn * (len(path) // (rounds + 1))
        circuit = path[:-1]
        path = [*circuit[shift:], *circuit[:shift]]
        path.append(path[0])
        cuts = range(0, len(path) - 1, length - 1)
        for number, start in enumerate(cuts):
            combination = COMBINATIONS[(number * 7 + turn * 4) % len(COMBINATIONS)]
            planned.append((combination, tuple(path[start : start + length])))
    return [*planned, *_rest(verbs, planned, length)]


def _rest(verbs, planned, length):
    """Walks for the verbs that a combination has not had, and pairs with too few combinations."""
    done = {combination: set() for combination in COMBINATIONS}
    for combination, steps in planned:
        done[combination].update(steps)
    rest = []
    for combination in COMBINATIONS:
        missing = [verb for verb in verbs if verb not in done[combination]]
        for start in range(0, len(missing), length):
            rest.append((combination, tuple(missing[start : start + length])))
    for combination, pair in _once(verbs, [*planned, *rest]):
        rest.append((combination, pair))
    return rest


def pairs(planned):
    """The combinations that each ordered pair of verbs is tested on."""
    tested = {}
    for combination, steps in planned:
        for pair in itertools.pairwise(steps):
            tested.setdefault(pair, set()).add(combination)
    return tested


def _once(verbs, planned):
    """Pairs that are tested on one combination only, each with another combination."""
    tested = pairs(planned)
    for number, first in enumerate(verbs):
        for second in verbs:
            combinations = tested.get((first, second), set())
            if len(combinations) < ROUNDS:
                free = [each for each in COMBINATIONS if each not in combinations]
                yield free[number % len(free)], (first, second)


def triples(verbs, seed, count):
    """Random walks of three verbs from a seed."""
    draw = random.Random(seed)
    return [
        (draw.choice(COMBINATIONS), tuple(draw.choice(verbs) for _ in range(3)))
        for _ in range(count)
    ]
