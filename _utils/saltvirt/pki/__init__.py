"""The certificate authorities of the cloud, and the certificates of its hypervisors.

Two authorities, because one would be too powerful: whoever holds a client certificate
of libvirt's CA is root on every hypervisor, and QEMU's processes must be able to read
their own key. So QEMU's certificates come from a CA that libvirtd does not trust.

On the master: policy (what is configured), allow (who may have any), request (what a
minion may ask for), store and files (what is on disk), ca, issue, crl, rotation, answer
(what the pillar says), cloud (all hypervisors: shown, revoked, moved to another CA).
On a hypervisor: layout, ask, place, daemon, keep (all of them in order), info.
On both: certs, seal.
"""
