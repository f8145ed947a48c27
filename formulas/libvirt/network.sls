{#- makes the bridge where there is none; puts everything back when it cuts the host off #}
{%- from "libvirt/map.jinja" import libvirt with context %}
{%- set network = libvirt.network %}

libvirt_bridge:
{%- if network.bridge in salt["network.interfaces"]() %}
  test.nop:
    - name: the bridge {{ network.bridge }} is there
{%- elif not network.manage %}
  test.fail_without_changes:
    - name: there is no bridge {{ network.bridge }}, and libvirt:network:manage is false
{%- else %}
  module.run:
    - virt.bridge_over:
      - bridge: {{ network.bridge }}
      - interface: {{ network.interface | tojson }}
{%- endif %}
