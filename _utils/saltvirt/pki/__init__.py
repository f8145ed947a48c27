"""The certificate authorities of the cloud, and the certificates of its hypervisors.

There are two authorities, because a client certificate of libvirt's CA makes its holder root on
every hypervisor, and QEMU processes must be able to read their own key. QEMU's certificates
therefore come from a CA that libvirtd does not trust.

``authority``: on the master. ``host``: on a hypervisor. ``common``: on both.
"""
