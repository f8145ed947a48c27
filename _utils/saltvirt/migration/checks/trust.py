"""The certificates that the two hosts show each other hold now."""


def shown(certificates, transport):
    """Those of them that a migration over this transport needs, as a list.

    certificates: ``source`` and ``target`` to what saltvirt.pki.host.validity says of them.
    """
    libvirt, qemu = transport.scheme == "tls", transport.native_tls
    wanted = (
        ("source", "client", libvirt), ("source", "qemu-client", qemu),
        ("target", "server", libvirt), ("target", "qemu-server", qemu),
    )  # fmt: skip
    return [
        certificates[end][use]
        for end, use, yes in wanted
        if yes and use in certificates.get(end, {})
    ]


def wrong(certificates, transport):
    """A sentence for each that does not hold."""
    for found in shown(certificates, transport):
        if found["wrong"]:
            yield f"{found['file']} on {found['host']} {found['wrong']}: apply libvirt.keys there"


def reasons(guest, host, request):
    yield from wrong(request.certificates, request.transport)
