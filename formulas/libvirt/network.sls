{#- makes the bridge where there is none; puts everything back when it cuts the host off #}
{%- from "libvirt/map.jinja" import libvirt with context %}
{%- set network = libvirt.network %}
{%- if network.manage %}

libvirt_bridge:
  virt.bridge:
    - name: {{ network.bridge }}
    - interface: {{ network.interface | tojson }}
{%- endif %}
