"""Request, install and show the certificates of a hypervisor."""
