"""Keys of the lab's own minions, created before the machines boot, so that only the hypervisors are
accepted from the start."""

from tests.lab.sh import run


def pair(bits=2048):
    """A new private key and its public key, both PEM."""
    private = run(["openssl", "genrsa", "-traditional", str(bits)]).stdout
    public = run(["openssl", "rsa", "-pubout"], input=private).stdout
    return private, public


def accept(master, minion):
    """Give a minion its key, and the master that key as an accepted one."""
    private, public = pair()
    minion.write("/etc/salt/pki/minion/minion.pem", private, 0o400)
    minion.write("/etc/salt/pki/minion/minion.pub", public)
    master.write(f"/etc/salt/pki/master/minions/{minion.name}", public)
