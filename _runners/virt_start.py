"""
Handle the start of a hypervisor: apply its states, then deploy missing guests.
"""

from typing import TYPE_CHECKING

import saltvirt

saltvirt = saltvirt.fresh()

from saltvirt.operations.core import result

with saltvirt.later():
    from saltvirt.fleet import target
    from saltvirt.operations.journal import host_start

if TYPE_CHECKING:
    from salt_dunders import __opts__, __salt__

__virtualname__ = "virt"

ORCHESTRATION = "virt.orch.hypervisor"


def __virtual__():
    return __virtualname__


@result.reporting
def started(host):
    """
    For a reactor on ``salt/minion/*/start``: run ``state.orchestrate virt.orch.hypervisor`` for a
    hypervisor. A minion that ``virt:hosts`` does not match is skipped without a query. If a host
    starts several times, one run is active and one waits.

    :param host: minion id, as in the event

    :return: under the minion id ``result``, ``comment`` and, if it was run, ``orchestration``

    CLI Example:

    .. code-block:: bash

        salt-run virt.started hyper3
    """
    host = str(host)
    if host not in target.hosts(__opts__):
        return result.done(host, f"{host} is not a hypervisor of this master: nothing to do")
    orchestrate = __salt__["state.orchestrate"]
    pillar = {"hypervisor": host}
    orchestration = host_start.once(
        __opts__, host, lambda: orchestrate(mods=ORCHESTRATION, pillar=pillar)
    )
    if orchestration is None:
        return result.done(
            host,
            f"{host}: {ORCHESTRATION} is already running for it, and another run is waiting",
        )
    if isinstance(orchestration, dict) and orchestration.get("retcode"):
        failed = result.failed(host, f"{host}: {ORCHESTRATION} failed")
        failed[host]["orchestration"] = orchestration
        return failed
    return result.done(host, f"{host}: {ORCHESTRATION} was applied", orchestration=orchestration)
