"""Starting, stopping, pausing: each asks libvirt afterwards what became of it."""

from saltvirt import errors
from saltvirt.host import connection, domain
from saltvirt.host.connection import libvirt

CTRL_ALT_DEL = (29, 56, 111)  # Linux key codes


def _confirm(dom, what, *wanted):
    found = domain.state(dom)
    if found not in wanted:
        raise errors.OperationFailed(
            f"cannot {what} {dom.name()}: libvirt took the command, but its state is {found}"
        )
    return True


def start(dom, paused=False):
    """Starts a defined domain. True when libvirt shows it running (or paused)."""
    with connection.translated(f"start {dom.name()}"):
        dom.createWithFlags(libvirt.VIR_DOMAIN_START_PAUSED if paused else 0)
        return _confirm(dom, "start", "paused" if paused else "running", "paused")


def shutdown(dom):
    """Asks the guest's system to power down. True when the request was delivered."""
    with connection.translated(f"shut down {dom.name()}"):
        dom.shutdown()
    return True


def stop(dom):
    """Pulls the power. True when libvirt shows it off (or it was transient and is gone)."""
    with connection.translated(f"stop {dom.name()}"):
        persistent = dom.isPersistent()
        dom.destroy()
        return _confirm(dom, "stop", "shutdown", "crashed") if persistent else True


def pause(dom):
    """Freezes the guest's CPUs. True when libvirt shows it paused."""
    with connection.translated(f"pause {dom.name()}"):
        dom.suspend()
        return _confirm(dom, "pause", "paused")


def resume(dom):
    """Lets a paused guest run on. True when libvirt shows it running."""
    with connection.translated(f"resume {dom.name()}"):
        dom.resume()
        return _confirm(dom, "resume", "running")


def reboot(dom):
    """Asks the guest's system to reboot. True when the request was delivered."""
    with connection.translated(f"reboot {dom.name()}"):
        dom.reboot(libvirt.VIR_DOMAIN_REBOOT_DEFAULT)
    return True


def reset(dom):
    """Presses the reset button. True when the guest is active after it."""
    with connection.translated(f"reset {dom.name()}"):
        dom.reset(0)
        return _confirm(dom, "reset", "running", "paused")


def ctrl_alt_del(dom):
    """Sends the three keys to the guest's keyboard. True when they were delivered."""
    with connection.translated(f"send keys to {dom.name()}"):
        dom.sendKey(libvirt.VIR_KEYCODE_SET_LINUX, 0, list(CTRL_ALT_DEL), len(CTRL_ALT_DEL), 0)
    return True


def set_autostart(dom, on):
    """Whether the guest starts with the host. True when libvirt says so afterwards."""
    with connection.translated(f"set autostart of {dom.name()}"):
        dom.setAutostart(1 if on else 0)
        if bool(dom.autostart()) != bool(on):
            raise errors.OperationFailed(f"{dom.name()}: libvirt did not keep the autostart flag")
    return True


def on_off(value):
    """``on``/``off`` (or what YAML makes of them) as a bool. Raises InvalidInput."""
    text = str(value).lower()
    if text in ("on", "true"):
        return True
    if text in ("off", "false"):
        return False
    raise errors.InvalidInput(f"state {value!r} must be on or off")
