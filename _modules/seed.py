"""
Seed disk images and folders of guests: host name, minion configuration, keys.

It replaces Salt's module of the same name. By default, libguestfs accesses the file systems of an
image, so that this host's kernel never mounts them; see images.md for the alternatives and for
the settings below ``virt:seed``.

:depends: guestfs-tools, or one of the other ways; openssl
"""

import contextlib
import os
import secrets
import tempfile
from typing import TYPE_CHECKING

import saltvirt

saltvirt = saltvirt.fresh()
with saltvirt.later():
    from saltvirt import errors, names, settings
    from saltvirt.fleet.minion import client
    from saltvirt.host import connection
    from saltvirt.host.domain import guest_lock
    from saltvirt.host.provision import images_folder, seed_target
    from saltvirt.images import cache, inspect
    from saltvirt.seed import data, minion, tree
    from saltvirt.spec import base, values
    from saltvirt.system import atomic_file

if TYPE_CHECKING:
    from salt_dunders import __opts__, __salt__

__func_alias__ = {"apply_": "apply"}


def _hypervisor():
    return minion.Hypervisor(__salt__, __opts__)


def apply_(
    path,
    id_=None,
    config=None,
    approve_key=True,
    install=True,
    prep_install=False,
    pub_key=None,
    priv_key=None,
    mount_point=None,
    **kwargs,
):
    """
    Seed a disk image, a block device or a folder: minion configuration, keys, host name.

    Nothing is left mounted or running, even if seeding fails. The image must not be in use: its
    guest must be off and have no saved memory, and no other disk may be based on it.

    :param path: absolute path of the image, device or root file system
    :param id_: minion id and host name of the guest; default: the ``id`` in ``config``
    :param config: dictionary of minion options; ``master`` is by default this minion's own
    :param approve_key: submit the key to the master, which accepts it if
        ``salt-run virt.authorize`` was run for the name
    :param install: install a minion in the image if it contains none
    :param prep_install: install the minion at the guest's first boot instead
    :param pub_key: public key as PEM or absolute path; default: a new key pair
    :param priv_key: matching private key as PEM or absolute path
    :param mount_point: no effect; the system in the image is detected
    :param format: the image's format (``raw``, ``qcow2``); default: detected, which is only safe
        for an image that no guest has written to
    :param grains: dictionary of static grains
    :param autosign_grains: dictionary of grains for the master's autosigning
    :param startup_states: ``highstate``, ``top``, or a list of states

    :return: True

    :raises SeedFailed: with the path and the reason
    :raises InvalidInput: an argument is invalid
    :raises Refused: a guest uses the image, or it is an image of the cache
    :raises ConnectionFailed: libvirt cannot be reached; it is only queried if its Python binding is
        installed
    :raises Unsupported: this host has no tool for seeding

    CLI Example:

    .. code-block:: bash

        salt hv1 seed.apply /srv/salt-images/web1/system.qcow2 web1
        salt hv1 seed.apply /srv/roots/web1 web1 config='{"master": "10.0.0.1"}'
    """
    options, approve_key = settings.user_kwargs(kwargs), values.flag(approve_key, "approve_key")
    format = options.pop("format", None)
    try:
        request = minion.SeedRequest(
            config=base.mapping(config or {}, "config"),
            install=values.flag(install, "install"),
            prep_install=values.flag(prep_install, "prep_install"),
            pub_key=pub_key,
            priv_key=priv_key,
            **options,
        )
    except TypeError:
        raise errors.InvalidInput(f"unknown argument among: {', '.join(sorted(options))}") from None
    name = names.guest(id_ or request.config.get("id") or "")
    path = os.path.abspath(path)
    with _unused(name, path):
        if not os.path.isdir(path):
            format = inspect.inspect(path, format, unused=True).format
        public = _hypervisor().apply(name, path, format, request)
    if approve_key:
        client.submit_key(__salt__, name, public)
    return True


@contextlib.contextmanager
def _unused(name, path):
    """Lock the guest, and all guests that have the disk, during the block."""
    get = __salt__["config.get"]
    with contextlib.ExitStack() as stack:
        conn, guests = None, [name]
        if not os.path.isdir(path) and connection.IMPORT_ERROR is None:
            conn = stack.enter_context(connection.connect(settings.connection(get, {})))
            guests += [dom.name() for dom in seed_target.owners(conn, path)]
        stack.enter_context(guest_lock.acquire(guest_lock.folder(get), "seed.apply", *guests))
        if conn is not None:
            seed_target.refuse_used(conn, path, cache.folder(images_folder.configured(get).folder))
        yield


def mkconfig(config=None, tmp=None, id_=None, approve_key=True, pub_key=None, priv_key=None):
    """
    Write a minion's configuration and keys to a folder, for installation by other means.

    :param config: dictionary of minion options; ``master`` is by default this minion's own
    :param tmp: the folder; default: a new private folder
    :param id_: the minion id
    :param approve_key: submit the key to the master, which accepts it if
        ``salt-run virt.authorize`` was run for the name
    :param pub_key: public key as PEM or absolute path; default: a new key pair
    :param priv_key: matching private key as PEM or absolute path

    :return: the paths: ``{"config": …, "pubkey": …, "privkey": …}``

    CLI Example:

    .. code-block:: bash

        salt hv1 seed.mkconfig tmp=/root/web1 id_=web1
    """
    request = minion.SeedRequest(
        config=base.mapping(config or {}, "config"), pub_key=pub_key, priv_key=priv_key
    )
    name = names.guest(id_ or request.config.get("id") or "")
    seed_data = _hypervisor().data(name, request)
    folder = tmp or tempfile.mkdtemp()
    texts = {
        "config": ("minion", data.to_yaml(data.minion_config(seed_data)), 0o640),
        "pubkey": ("minion.pub", seed_data.public_key, 0o600),
        "privkey": ("minion.pem", seed_data.private_key, 0o400),
    }
    paths = {}
    for key, (file_name, text, mode) in texts.items():
        paths[key] = os.path.join(folder, file_name)
        _write(paths[key], text, mode)
    if values.flag(approve_key, "approve_key") and not (pub_key and priv_key):
        client.submit_key(__salt__, name, seed_data.public_key)
    return paths


def _write(path, text, mode):
    """Write a new file that is never readable for others."""
    part = atomic_file.unique_part(path)
    atomic_file.write(path, text.encode(), mode=mode, durable=False, part=part)


def prep_bootstrap(mpt):
    """
    Copy the bootstrap script to a private folder below the root of a guest.

    :param mpt: folder of the guest's root file system

    :return: (path of the script on this host, path of its folder in the guest)

    CLI Example:

    .. code-block:: bash

        salt hv1 seed.prep_bootstrap /srv/roots/web1
    """
    inside, name = f"/tmp/{secrets.token_hex(16)}", "bootstrap-salt.sh"
    script = _hypervisor().bootstrap()
    with tree.DirTree(mpt) as guest:
        folder = guest.make_dir(inside, 0o700)
        guest.write(f"{inside}/{name}", script.encode(), 0o700)
    return os.path.join(folder, name), inside
