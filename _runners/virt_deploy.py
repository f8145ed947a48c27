"""
Deploy a set of guests that pillar defines, and handle the start of a hypervisor.

See docs/how-to/states.md.
"""

from typing import TYPE_CHECKING

import saltvirt

saltvirt = saltvirt.fresh()

from saltvirt.fleet.client import Fleet
from saltvirt.operations.access import runner
from saltvirt.operations.core import result

with saltvirt.later():
    from saltvirt import units
    from saltvirt.fleet import target
    from saltvirt.operations.cluster import hooks
    from saltvirt.operations.core import operation, report
    from saltvirt.operations.create import deploy
    from saltvirt.operations.journal import host_start
    from saltvirt.placement import policy
    from saltvirt.spec import base

if TYPE_CHECKING:
    from salt_dunders import __opts__, __salt__

__virtualname__ = "virt"

ORCHESTRATION = "virt.orch.hypervisor"


def __virtual__():
    return __virtualname__


@runner.reporting
def deployed(guests, deployment="default", defaults=None, remove=False, at_once=4, test=False):
    """
    Deploy the guests of a list that do not exist. Existing guests are not changed, and their
    differences are reported.

    All guests are placed before the first one is created, the largest first, each as if the
    previous ones existed. The hosts are queried once for guests with identical arguments. A guest
    that may exist on a host that does not answer is not created again.

    :param guests: dictionary of guest names to dictionaries: ``cpu`` (1), ``mem``, ``image``,
        ``size`` (of the disk ``system`` of the default profile), ``disk`` and ``nic`` (profile
        names), ``groups``, ``group_policy``, ``host``, ``wait``, and all other arguments of
        ``virt.init``. ``ha`` (True, False or a dictionary, as for ``virt.init``) also applies to
        existing guests: high availability is enabled or disabled for them. So does ``backup``, the
        schedule of ``virt.backup_due``: ``{hours: 24, to: vault}``, True, or False for none
    :param deployment: name of the deployment
    :param defaults: dictionary of default values for all guests
    :param remove: also remove guests that were created for this deployment and are no longer
        listed, with their own disks and keys. An empty list removes nothing.
    :param at_once: maximum number of guests that are created at the same time; guests that are
        being started or waited for do not count
    :param test: show what would be done; change nothing

    :return: under the deployment's name ``result`` (False if a guest failed), ``comment``,
        ``changes``: guest to ``old`` and ``new`` host, and changes of ``ha`` and ``backup``;
        ``existing``, ``differs``, ``unlisted``, ``failed``

    CLI Example:

    .. code-block:: bash

        salt-run virt.deployed '{web1: {mem: 2048, image: salt://debian.qcow2}}' test=True
    """
    name, default_args = str(deployment), base.mapping(defaults or {}, "defaults")
    opts, count = dict(__opts__), units.parse_count(at_once, "at_once")
    settings, requests = hooks.guest_settings(opts), []
    for guest, options in base.mapping(guests or {}, "guests").items():
        arguments = {**default_args, **base.mapping(options or {}, f"guest {guest}")}
        for feature in settings:
            arguments = feature.take_options(str(guest), arguments)
        requests.append(deploy.parse_guest(guest, arguments, name))
    placement_policy, screen = policy.of_master(opts), report.screen(__salt__, opts)
    with Fleet(opts) as fleet:  # Salt's dunders do not exist in its threads
        deployment_job = deploy.Deploy(
            fleet, placement_policy, requests, name, remove=remove, at_once=count, screen=screen,
            provider=hooks.ha_provider(opts), settings=settings,
        )  # fmt: skip
        return operation.perform(deployment_job, test)


@runner.reporting
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
