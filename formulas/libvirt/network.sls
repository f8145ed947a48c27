# The old name of libvirt.bridge
include:
  - .bridge
