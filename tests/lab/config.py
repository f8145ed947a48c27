"""The files that are written into the machines of a lab before they boot."""

from tests.lab import network

MASTER = """\
interface: 0.0.0.0
user: root
worker_threads: 4
keysize: 2048
auto_accept: False
timeout: 30
gather_job_timeout: 30
log_level: warning
# Salt 3008 tells of objects of its own that each salt-run leaves to Python: troubleshooting.md
log_granular_levels:
  salt.runner: error
  salt.minion: error
fileserver_backend:
  - roots
  - gitfs
gitfs_provider: gitpython
gitfs_base: published
gitfs_update_interval: 600
gitfs_remotes:
  - file:///srv/git/salt-virt.git
  - file:///srv/git/salt-virt.git:
    - name: formulas
    - root: formulas
file_roots:
  base:
    - /srv/salt
pillar_roots:
  base:
    - /srv/pillar
"""
MASTER_VIRT = """\
virt:
  hosts: 'hv*'
"""
MINION = """\
master: master
id: {name}
log_level: warning
enable_fqdns_grains: False
enable_gpu_grains: False
acceptance_wait_time: 1
random_reauth_delay: 1
auth_timeout: 5
recon_default: 100
recon_max: 1000
recon_randomize: False
master_alive_interval: 0
"""
DNSMASQ = f"""\
interface=eth0
bind-dynamic
no-resolv
domain-needed
bogus-priv
dhcp-authoritative
dhcp-range={network.PREFIX}.100,{network.PREFIX}.200,12h
dhcp-option=option:dns-server,{network.MASTER}
dhcp-leasefile=/run/lab-dnsmasq.leases
"""
# systemd's 90 s end a Salt master that starts while others have the CPU
PATIENT = "[Manager]\nDefaultTimeoutStartSec=30min\n"
BRIDGE = "[NetDev]\nName=br0\nKind=bridge\n[Bridge]\nSTP=no\nForwardDelaySec=0\n"
IN_BRIDGE = "[Match]\nName=eth0\n[Network]\nBridge=br0\n"


def addressed(link, address):
    """systemd-networkd's file for a link with a fixed address."""
    return (
        f"[Match]\nName={link}\n[Network]\nAddress={address}/24\n"
        "LinkLocalAddressing=no\nLLDP=no\nConfigureWithoutCarrier=yes\n"
    )


def hosts(count):
    """/etc/hosts of every machine."""
    lines = ["127.0.0.1 localhost", f"{network.MASTER} master salt"]
    lines += [f"{network.address(i)} hv{i}" for i in range(1, count + 1)]
    return "\n".join(lines) + "\n"
