"""systemd units for tasks that can be done only in the running guest."""

from __future__ import annotations

UNIT = "salt-virt-bootstrap.service"
SSH_UNIT = "salt-virt-ssh-keys.service"
SCRIPT = "/etc/salt/salt-virt-bootstrap.sh"

# Debian generates host keys only when the package is installed. Ubuntu's ssh.socket starts before
# sockets.target, and that before basic.target: after basic.target, the default for units, this unit
# would be in an ordering cycle, which systemd breaks by not starting one of them.
SSH_KEYS = """\
[Unit]
Description=Make SSH host keys of this guest's own
DefaultDependencies=no
Conflicts=shutdown.target
After=local-fs.target
Before=shutdown.target ssh.service sshd.service ssh.socket sshd.socket
ConditionPathExistsGlob=!/etc/ssh/ssh_host_*_key

[Service]
Type=oneshot
ExecStart=/usr/bin/ssh-keygen -A

[Install]
WantedBy=multi-user.target
"""

_BOOTSTRAP = """\
[Unit]
Description=Install the salt-minion of this guest
Wants=network-online.target
After=network-online.target
ConditionPathExists={script}

[Service]
Type=oneshot
ExecStart=/bin/sh {script} {args}
ExecStartPost=/bin/rm -f {script} /etc/systemd/system/{unit} \
/etc/systemd/system/multi-user.target.wants/{unit}
TimeoutStartSec=1800

[Install]
WantedBy=multi-user.target
"""


def files(bootstrap: str, args: str) -> list[tuple[str, str, int]]:
    """(path, text, mode) of files that run the bootstrap script at the first boot with a network;
    it is repeated at the next boot until it succeeds."""
    unit = _BOOTSTRAP.format(script=SCRIPT, unit=UNIT, args=args.replace("%", "%%"))
    return [
        (SCRIPT, bootstrap, 0o700),
        (f"/etc/systemd/system/{UNIT}", unit, 0o644),
    ]
