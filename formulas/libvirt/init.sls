# Makes a minion a hypervisor. Each part can be applied by itself: state.apply libvirt.keys
{%- from "libvirt/map.jinja" import libvirt with context %}
{%- set rest = ["config", "keys", "service", "firewall", "bridge", "images", "networks"] %}
{#- Salt before 3008 has a `virt` of its own, which the job that installs Salt Virt with pip still uses: its virt.keys
    creates private keys that every user can read. The other parts are then applied by a second job #}
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
