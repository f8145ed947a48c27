"""Policy: how what was asked for becomes libvirt's XML on a given host."""
