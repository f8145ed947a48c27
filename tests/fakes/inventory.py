"""Hosts from the plain data of ``virt.inventory``."""

from saltvirt.placement import facts


def host(name, data):
    """The facts.Host of that name. Raises BadAnswer, and the errors of facts.host_of."""
    return facts.host_of(name, facts.Inventory.from_answer(data, name))
