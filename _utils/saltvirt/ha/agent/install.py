"""Install the agent as a service of its host: its program, its unit, its settings."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from saltvirt import errors
from saltvirt.ha.agent import settings, trial
from saltvirt.ha.model.calls import InstallResult
from saltvirt.system import atomic_file, paths, zipapp

PYTHON = "/usr/bin/python3"
SERVICE = "salt-virt-ha.service"
MODULE = "ha.agent.__main__"
_TIMEOUT_S = 60
# maximum time in which an agent checks the new files and switches to them
_RELOAD_WAIT_S, _POLL_S = 90, 0.2

UNIT = f"""\
# written by Salt Virt (virt.ha_install)
[Unit]
Description=Salt Virt: the agent of high availability
# at shutdown it stops before the services that it, and a guest that migrates away, need
After=network-online.target nss-lookup.target remote-fs.target
After=libvirtd.service virtqemud.service virtnetworkd.service virtstoraged.service
After=virtsecretd.service virtnodedevd.service virtlogd.service virtlockd.service
After=virt-guest-shutdown.target libvirt-guests.service
# the scopes of guests end after this target, if it is active
Wants=network-online.target virt-guest-shutdown.target
ConditionPathExists={settings.PATH}
StartLimitIntervalSec=0

[Service]
ExecStart={PYTHON} {{program}}
ExecReload=/bin/kill -HUP $MAINPID
Restart=always
RestartSec=0.5
# its settings are invalid
RestartPreventExitStatus=78
# a worker that hangs on storage must not delay the next start; it ends with its agent
KillMode=process
# guests migrate away and shut down, each for shutdown_wait_s; poweroff.target waits for 30 minutes
TimeoutStopSec=1500
OOMScoreAdjust=-1000
Nice=-10
LimitNOFILE=65536
LimitMEMLOCK=infinity
NoNewPrivileges=yes

[Install]
WantedBy=multi-user.target
"""


@dataclass(frozen=True)
class InstallPaths:
    """Paths of the installed files. python: the interpreter. systemctl: the program. running: the
    file in which the agent records what it runs."""

    program: str = "/usr/lib/salt-virt/ha-agent.pyz"
    unit: str = f"/etc/systemd/system/{SERVICE}"
    settings: str = settings.PATH
    python: str = PYTHON
    systemctl: str = "systemctl"
    running: str = trial.file_of(f"{paths.RUN}/ha")


def install(library: str, test: bool = False, paths: InstallPaths | None = None) -> InstallResult:
    """Install the program and the unit of this library. A running agent switches to the new
    program.

    A new program is installed only if it can run here. Raises OperationFailed.
    """
    paths = paths or InstallPaths()
    result = InstallResult()
    agent = zipapp.build(library, MODULE)
    unit = UNIT.format(program=paths.program).encode()
    new_program = _differs(paths.program, agent, result)
    new_unit = _differs(paths.unit, unit, result)
    if not test:
        if new_program:
            _put_program(paths, agent)
        if new_unit:
            _put(paths.unit, unit, 0o644)
            _systemctl(paths, "daemon-reload")
        if not _query(paths, "is-enabled"):
            result.changes[SERVICE] = "enabled"
            _systemctl(paths, "enable", SERVICE)
    _refresh(paths, result, test, program=agent)
    result.comment = _comment(result, test, "The agent is installed")
    return result


def configure(data: object, test: bool = False, paths: InstallPaths | None = None) -> InstallResult:
    """Write the settings, and have a running service use them. Raises InvalidInput, with all
    problems, before anything is changed; OperationFailed."""
    paths = paths or InstallPaths()
    result = InstallResult()
    agent_settings = settings.parse(data, "settings")
    text = json.dumps(agent_settings.to_answer(), indent=1, sort_keys=True).encode() + b"\n"
    changed = _differs(paths.settings, text, result)
    if not test and changed:
        _put(paths.settings, text, 0o600)
    if os.path.exists(paths.unit):
        if not test and not _query(paths, "is-active"):
            result.changes[SERVICE] = "started"
            _systemctl(paths, "start", SERVICE)
        _refresh(paths, result, test, settings=text)
    result.comment = _comment(result, test, "The agent uses these settings")
    return result


def _comment(result: InstallResult, test: bool, comment: str) -> str:
    if not result.changes:
        return comment
    return "The agent would be changed" if test else comment


def _refresh(paths: InstallPaths, result: InstallResult, test: bool, **expected: bytes) -> None:
    """Have a running agent use the files on disk. Compare with what it really runs, because a
    previous run may have been interrupted. Raises OperationFailed if it continues with the old
    ones."""
    if SERVICE in result.changes or not _query(paths, "is-active") or _is_current(paths, expected):
        return
    result.changes[SERVICE] = "switches to the new version"
    if test:
        return
    _systemctl(paths, "reload", SERVICE)
    end_s = time.monotonic() + _RELOAD_WAIT_S
    while not _is_current(paths, expected):
        if time.monotonic() > end_s:
            raise errors.OperationFailed(
                f"the agent continues with its old {' and '.join(expected)}: see journalctl -u "
                f"{SERVICE}"
            )
        time.sleep(_POLL_S)


def _is_current(paths: InstallPaths, expected: dict[str, bytes]) -> bool:
    running = trial.read_running(paths.running)
    return running is not None and all(
        getattr(running, name) == hashlib.sha256(data).hexdigest()
        for name, data in expected.items()
    )


def _differs(path: str, data: bytes, result: InstallResult) -> bool:
    try:
        old = Path(path).read_bytes()
    except FileNotFoundError:
        old = None
    except OSError as exc:
        raise errors.OperationFailed(f"cannot read {path}: {exc.strerror}") from exc
    if old != data:
        result.changes[path] = "made" if old is None else "replaced"
    return old != data


def _put(path: str, data: bytes, mode: int) -> None:
    try:
        os.makedirs(os.path.dirname(path), 0o755, exist_ok=True)
        atomic_file.write(path, data, mode=mode)
    except OSError as exc:
        raise errors.OperationFailed(f"cannot write {path}: {exc.strerror}") from exc


def _put_program(paths: InstallPaths, agent: bytes) -> None:
    trial_path = f"{paths.program}.trial"
    _put(trial_path, agent, 0o644)
    try:
        _run((paths.python, trial_path, "--check"), "the agent cannot be run here")
        atomic_file.rename(trial_path, paths.program)
    finally:
        with contextlib.suppress(OSError):
            os.unlink(trial_path)


def _systemctl(paths: InstallPaths, *arguments: str) -> None:
    _run((paths.systemctl, *arguments), f"systemctl {' '.join(arguments)}")


def _query(paths: InstallPaths, question: str) -> bool:
    argv = (paths.systemctl, "--quiet", question, SERVICE)
    try:
        result = subprocess.run(argv, capture_output=True, timeout=_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as exc:
        raise errors.OperationFailed(f"{' '.join(argv)}: {exc}") from exc
    return not result.returncode


def _run(argv: tuple[str, ...], action: str) -> None:
    try:
        result = subprocess.run(
            argv, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as exc:
        raise errors.OperationFailed(f"{action}: {exc}") from exc
    if result.returncode:
        raise errors.OperationFailed(f"{action}: {result.stderr.strip() or result.stdout.strip()}")


def member_name(paths: InstallPaths | None = None) -> str | None:
    """Return the host's name in high availability; None if no agent is running. Raises
    InvalidInput, OperationFailed."""
    paths = paths or InstallPaths()
    if not os.path.exists(paths.settings) or not _query(paths, "is-active"):
        return None
    return settings.read(paths.settings).host


def port(path: str = settings.PATH) -> int | None:
    """Return the port of this host's agent; None if it has no settings. Raises InvalidInput."""
    if not os.path.exists(path):
        return None
    agent_settings = settings.read(path)
    return agent_settings.endpoint(agent_settings.host)[1]
