"""
What interrupted operations have left: found and mended.
"""

import saltvirt

saltvirt = saltvirt.fresh()

from saltvirt.fleet.client import Fleet
from saltvirt.operations import repair as repairing
from saltvirt.operations import report as reports
from saltvirt.operations import result

__virtualname__ = "virt"


def __virtual__():
    return __virtualname__


@result.reporting
def repair(apply=False, test=False, name=None, what=None):
    """
    Leftovers of operations that were interrupted: shown, and with ``apply`` mended.

    Guests that an init which died has half made, migrations that were broken off, guests on two
    hosts, accepted keys of guests that are on no host, permissions that have expired, guests whose
    init was given up or killed and that are whole. What a
    person must decide is named and left alone; nothing that is advised deletes a disk.

    :param apply: mend; default: show
    :param test: show, whatever ``apply`` says
    :param name: only what is left of this guest
    :param what: only findings of this code (``half-made``, ``migration-broken-off``,
        ``two-hosts``, ``key-without-guest``, ``pillar-without-key``, ``permission-expired``,
        ``given-up``),
        or the one of this ``id``

    :return: under ``repair`` ``table`` of what was found, and ``findings``, a list of dicts with
        ``code``, ``id``, ``name``, ``host``, ``what``, ``how``, ``evidence`` and the ``command``
        that mends it; when applied ``result``, ``comment``, ``changes`` (``mended``), ``left``

    CLI Example:

    .. code-block:: bash

        salt-run virt.repair
        salt-run virt.repair name=web1
        salt-run virt.repair apply=True what=half-made:web1:hyper2
        salt-run virt.repair apply=True
    """
    with Fleet(__opts__) as fleet:
        repairing.chosen([], what=what)  # a code that is unknown is refused before anyone is asked
        findings, unheard = repairing.look(fleet)
        findings = repairing.chosen(findings, name, what)
        if apply and not test:
            report = reports.of_runner(fleet, "repair", "repair", __salt__)
            mended, left = repairing.mend(findings, report)
            left.update({} if findings and (name or what) else unheard)
            comment = f"{len(mended)} mended, {len(left)} left" if left else f"{len(mended)} mended"
            comment += "".join(f"; {about}: {why}" for about, why in sorted(left.items()))
            changes = {"mended": mended} if mended else {}
            answer = {"result": not left, "comment": comment, "changes": changes, "left": left}
            return {"repair": answer, **({"retcode": 1} if left else {})}
    rows = [["what", "is wrong", "mending", "command"]]
    rows += [[f.about, f.what, f.how, f.command] for f in findings]
    rows += [[host, why, "", ""] for host, why in sorted(unheard.items())]
    comment = f"{len(findings)} leftovers" if findings else "nothing is left over"
    changes = {"mended": {f.about: f.how for f in findings if f.mend}}
    answer = result.planned(
        "repair", comment, changes, table=rows, findings=[f.data() for f in findings]
    )
    return {**answer, **({"retcode": 1} if unheard else {})}
