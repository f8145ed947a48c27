"""Start a guest of this host, if nothing prevents it."""

from __future__ import annotations

from saltvirt.host import hooks
from saltvirt.host.connection import libvirt
from saltvirt.host.domain import lifecycle
from saltvirt.host.migration import move_journal
from saltvirt.host.provision import admission
from saltvirt.host.storage import overlays


def start(dom: libvirt.virDomain, config: admission.AdmissionConfig, test: bool = False) -> bool:
    """Start a guest whose creation is complete, while the host's admission is locked.

    test: only check. Raises OperationFailed, NoRoom.
    """
    move_journal.require_startable(dom)
    for feature in hooks.installed():
        feature.check_start(dom.name())
    overlays.refuse_start(dom.connect(), dom)
    admission.check_start(dom.connect(), config, dom)
    return True if test else lifecycle.start(dom)
