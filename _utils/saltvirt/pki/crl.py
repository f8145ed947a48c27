"""Which certificates are revoked, and the signed lists that say so."""

from saltvirt.pki.store import AUTHORITIES  # noqa: F401


def revoked_serials(store):
    """The serial numbers (lower hex) of all revoked certificates."""
    return set(store.record("revoked.json", {}).get("serials", {}))
