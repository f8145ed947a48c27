{%- from "libvirt/map.jinja" import libvirt with context %}
{%- set bridge = libvirt.network.bridge %}

libvirt_bridge:
{%- if bridge in salt["network.interfaces"]() %}
  test.nop:
    - name: the bridge {{ bridge }} is there
{%- else %}
  test.fail_without_changes:
    - name: there is no bridge {{ bridge }}, and guests need it
    - comment: make it over the interface that has the host's address, or set libvirt:network:bridge
{%- endif %}
