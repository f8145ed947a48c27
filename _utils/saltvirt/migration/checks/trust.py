"""The certificates that the two hosts show each other hold now."""

_OUT, _IN = ("client", "qemu-client"), ("server", "qemu-server")


def shown(certificates, transport):
    """Those of them that a migration over this transport needs, as a list.

    certificates: ``source`` and ``target`` to what saltvirt.pki.host.validity says of them.
    """
    wanted = [transport.scheme == "tls", transport.native_tls]
    return [
        certificates[end][use]
        for end, uses in (("source", _OUT), ("target", _IN))
        for use, yes in zip(uses, wanted, strict=True)
        if yes and use in certificates.get(end, {})
    ]


def wrong(certificates, transport):
    """A sentence for each that does not hold."""
    for found in shown(certificates, transport):
        if found["wrong"]:
            yield f"{found['file']} on {found['host']} {found['wrong']}: apply libvirt.keys there"


def reasons(guest, host, request):
    yield from wrong(request.certificates, request.transport)
