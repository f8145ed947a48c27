"""High availability: what a master decides, and what each host's agent does; docs/how-to/ha.md.

``decide.decide`` on the master and ``agent.step`` on each host are pure: what was seen and the time
in, what to do out. The conditions that keep a guest from running twice are in ``safety``, each by
itself. Nothing else of the library imports this package.
"""
