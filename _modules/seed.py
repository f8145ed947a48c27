"""
Prepare disk images and folders for guests: name, minion, keys.

It takes the place of the module of this name that Salt had. A file system out of an image is
shown by libguestfs, so that this host's kernel never mounts it; see docs/images.md for the
other ways and for the settings below ``virt:seed``.

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

    Nothing is mounted or running afterwards, whatever fails. The image must not be in use: the
    guest that has it is off, without saved memory, and no other disk is based on it.

    :param path: absolute path of the image, device or root file system
    :param id_: minion id and host name of the guest; default: the ``id`` in ``config``
    :param config: dictionary of minion options; ``master`` is by default this minion's own
    :param approve_key: hand the key to the master, which accepts it when
        ``salt-run virt.authorize`` allowed it
    :param install: install a minion where there is none, inside of the image
    :param prep_install: install it at the guest's first boot instead
    :param pub_key: PEM or absolute path; default: a new pair
    :param priv_key: PEM or absolute path of the private key that belongs to it
    :param mount_point: of no use any more; the image's own system is found
    :param format: the image's format (``raw``, ``qcow2``); default: found out, which is safe
        only for an image that no guest ever wrote to
    :param grains: dictionary of static grains
    :param autosign_grains: dictionary of grains by which the master signs
    :param startup_states: ``highstate``, ``top``, or a list of states

    :return: True

    :raises SeedFailed: with the path and the reason
    :raises InvalidInput: an argument is wrong
    :raises Refused: a guest uses the image, or it is one from which guests are made
    :raises ConnectionFailed: libvirt cannot be reached; where Python has no binding for it, it is
        not asked
    :raises Unsupported: this host has nothing to seed an image with

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
    """For the block no other operation is at work on the guest, nor on those that have the disk."""
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
    Make a minion's configuration and keys in a folder, to be put into place by other means.

    :param config: dictionary of minion options; ``master`` is by default this minion's own
    :param tmp: the folder; default: a new private one
    :param id_: the minion id
    :param approve_key: hand the key to the master, which accepts it when
        ``salt-run virt.authorize`` allowed it
    :param pub_key: PEM or absolute path; default: a new pair
    :param priv_key: PEM or absolute path of the private key that belongs to it

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
    """A new file that nobody else could read for a moment."""
    part = f"{path}.{secrets.token_hex(4)}"
    fd = os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode)
    with os.fdopen(fd, "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(part, path)


def prep_bootstrap(mpt):
    """
    Put the bootstrap script into a private folder below the root of a guest.

    :param mpt: the folder with the guest's root file system

    :return: (path of the script on this host, path of its folder inside of the guest)

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
