"""Keys and certificates as values, their files, and encrypted keys; used by master and
hypervisor."""
