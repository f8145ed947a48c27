"""A real master and real minions of an unprivileged user, on libvirt's test driver."""
