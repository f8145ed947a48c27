"""A minion's questions to its master, through an ext_pillar that is asked for by name."""

import salt.utils.args


def ask(function, external):
    """The pillar with the answer in it. function: ``pillar.ext`` of the minion.

    Since 3008.2 Salt masks pillar values unless it is asked for them as they are.
    """
    if "unmask" in salt.utils.args.get_function_argspec(function).args:
        return function(external, unmask=True)
    return function(external)


def virtkey(functions):
    """A callable that asks the ext_pillar ``virtkey``. functions: ``__salt__`` of the minion."""
    return lambda asked: (ask(functions["pillar.ext"], {"virtkey": asked}) or {}).get("virtkey")
