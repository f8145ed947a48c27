# Makes a hypervisor of a minion. Each part can be applied alone: state.apply libvirt.keys
include:
  - .package
  - .python
  - .config
  - .keys
  - .service
  - .firewall
  - .bridge
  - .images
  - .networks
