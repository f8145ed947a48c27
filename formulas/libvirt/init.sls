# Makes a hypervisor of a minion. Each part can be applied alone: state.apply libvirt.keys
{%- from "libvirt/map.jinja" import libvirt with context %}
{%- set rest = ["config", "keys", "service", "firewall", "bridge", "images", "networks"] %}
{#- A Salt before 3008 has a `virt` of its own, and goes on with that in the job that installs Salt Virt by pip:
    its virt.keys leaves private keys that everybody can read. The rest is a job of its own then #}
{%- set salt_before_3008 = grains.get("saltversioninfo", [3008])[0] | int < 3008 %}
{%- set apart = libvirt.python.salt_virt and salt_before_3008 and "virt.versions" not in salt %}
include:
  - .package
  - .python
{%- if not apart %}
{%-   for part in rest %}
  - .{{ part }}
{%-   endfor %}
{%- else %}

libvirt_by_salt_virt:
  cmd.run:
    - name: >-
        {{ grains.pythonexecutable }} -c 'import salt.scripts; salt.scripts.salt_call()' --retcode-passthrough
        --state-output=changes state.apply libvirt.{{ rest | join(",libvirt.") }} concurrent=True
    - require:
      - id: libvirt_salt_virt
      - pkg: libvirt_packages
{%- endif %}
