"""High availability: the decisions of a master and the steps of each host's agent; see
docs/how-to/ha.md.

``decide.decide`` on the master and ``agent.step`` on each host are pure: observations and the time
are their input, actions are their output. The conditions that keep a guest from running twice are
separate functions in ``safety``. Nothing else of the library imports this package.
"""
