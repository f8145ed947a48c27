"""A runner's lines for the person who waits."""


def show(functions, text, outputter):
    """Prints a line on the terminal of ``salt-run``.

    functions: the runner's ``__salt__``. Salt gives its channel (``__jid_event__``) to one
    module of each name only, and several files of ours are named ``virt``: so it is looked
    for in all of them. Without one, nobody waits.
    """
    for name in functions:
        if name.startswith("virt."):
            channel = functions[name].__globals__.get("__jid_event__")
            if channel is not None:
                channel.fire_event({"message": text, "outputter": outputter}, "progress")
                return
