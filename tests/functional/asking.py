"""The answer of a host with loaded modules to the master, through ``virt.answer``."""

import dataclasses

from saltvirt.answers import calls


def answer(modules, function, *args, **kwargs):
    """The answer of a handler of a typed call, or else of a public function."""
    request = None if isinstance(modules, dict) else calls.request_type(function)
    if request is None:
        return modules[function](*args, **kwargs)
    names = [field.name for field in dataclasses.fields(request) if not field.kw_only]
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    return calls.answer(calls.MinionContext(modules.opts, modules), function, given)
