"""
Deploy and list sets of guests that pillar defines, and handle the start of a hypervisor.

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
    from saltvirt.operations.access import access_check, activity
    from saltvirt.operations.cluster import hooks
    from saltvirt.operations.core import operation, report
    from saltvirt.operations.create import deploy
    from saltvirt.operations.inspect import deployments as deployment_listing
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
            provider=hooks.ha_provider(opts), settings=settings, user=activity.calling_user(opts),
        )  # fmt: skip
        return operation.perform(deployment_job, test)


@runner.reporting
def deployments(name=None):
    """
    List the deployments: how many of their guests exist, are missing, or are no longer listed.

    The hosts say which guests exist, and which deployment created them. The list of a deployment is
    that of its last ``virt.deployed`` on this master, also if it failed; a pillar that has changed
    since is compared by ``state.orchestrate virt.orch.deploy test=True``. A deployment whose guests
    are all gone is no longer shown 30 days after its last call.

    :param name: name of a deployment, to show its guests

    :return: under ``deployments``: ``title``, ``table``; ``unreachable``: hosts that did not answer
        to the reason; and ``deployments``: name to ``result`` of the last call (True, False; None
        if it is running, was killed, or is not known here), ``comment``, ``time`` (UTC) and
        ``user`` of the last call, ``remove`` (its argument), ``counts`` (status to number) and
        ``guests``: name to ``status``, ``listed`` (None if no list is known),
        ``created_by_deployment``, ``host``, ``state``, ``cpu``, ``memory_mib``, ``size_bytes`` (of
        its disks), ``image`` and ``reason``; None if unknown. The status is ``present``;
        ``missing``; ``unknown`` (it may be on a host that does not respond); ``to_remove`` (no
        longer listed, and the last call was to remove it) or ``kept`` (no longer listed). A user
        with limited rights sees guests that exist, and nothing of the last call. Exit code 1 if a
        host did not answer.

    CLI Example:

    .. code-block:: bash

        salt-run virt.deployments
        salt-run virt.deployments shop
    """
    user = access_check.requesting_user(__opts__)
    can_see = None
    if not access_check.may_all(__opts__, user, "deployments"):
        can_see = access_check.guest_filter(__opts__, user)
    with Fleet(__opts__) as fleet:
        return deployment_listing.listing(fleet, None if name is None else str(name), can_see)


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
