"""The kinds of hosts in a swarm."""

LIVING, SLOW, HUNG, DEAD = "living", "slow", "hung", "dead"
ILL = (DEAD, HUNG, SLOW)
# how long a slow host takes for everything; the master's time-out is 5 s
SLOW_S = 3
# running guests of each host when it begins
GUESTS = 5


def of(names, ill):
    """Host to its kind; ill: so many, spread over all, of each kind in turn."""
    found = dict.fromkeys(names, LIVING)
    for one in range(ill):
        at = one * len(names) // ill + len(names) // ill // 2
        found[names[at]] = ILL[one % len(ILL)]
    return found
