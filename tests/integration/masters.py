"""A second master on the machine of the lab's master for the same hypervisors: another
configuration, other ports, a cache of its own, and a copy of the keys."""

from tests.lab.fixtures import parsed, words

SECOND = """
set -e
mkdir -p /etc/second/master.d /run/second /var/cache/second /var/lib/second
cp /etc/salt/master.d/*.conf /etc/second/master.d/
cp -a /etc/salt/pki/master /var/lib/second/pki
grep -v '^interface' /etc/salt/master > /etc/second/master
cat > /etc/second/master.d/zz.conf <<X
{interface: 0.0.0.0, publish_port: 5505, ret_port: 5506, pki_dir: /var/lib/second/pki,
 cachedir: /var/cache/second, sock_dir: /run/second, log_file: /var/log/second}
X
"""
START = "systemd-run -q --collect --unit second-master salt-master -c /etc/second"
BOTH = "{master: [master, 'master:5506'], master_type: str}"
FIRST, OTHER = "/etc/salt", "/etc/second"


def run(lab, config, fun, *args, **kwargs):
    """What a function of that master's runner returned, and its exit code."""
    argv = ["salt-run", "-c", config, "--out=json", fun, *words(args, kwargs)]
    done = lab.exec("master", argv, check=False, timeout=600)
    return parsed(done), done.returncode


def join(lab):
    """The second one begins, and the hypervisors have both."""
    lab.exec("master", START)
    for host in lab.hosts:
        lab.exec(host, f'echo "{BOTH}" > /etc/salt/minion.d/both.conf')
    lab.restart_minion(*lab.hosts)

    def seen():
        found = lab.exec(
            "master", ["salt", "-c", OTHER, "--out=json", "*", "test.ping"], check=False
        )
        return all(f'"{host}": true' in found.stdout for host in lab.hosts)

    lab.wait(seen, "the hypervisors at the second master", timeout_s=180)
    run(lab, OTHER, "saltutil.sync_all")
