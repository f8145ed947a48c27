{#- creates missing bridges; rolls back if the host loses its connection #}
{%- from "libvirt/map.jinja" import libvirt with context %}
{%- set network = libvirt.network %}
{%- if network.manage %}

libvirt_bridge:
  virt.bridge:
    - name: {{ network.bridge | string | yaml_dquote }}
    - interface: {{ network.interface | yaml }}
{%- set ovs = network.bridges.values() | select | selectattr("type", "defined") | selectattr("type", "equalto", "ovs") | list %}
{%- if ovs %}

libvirt_ovs_packages:
  pkg.installed:
    - pkgs: {{ libvirt.ovs.packages | yaml }}

libvirt_ovs_service:
  service.running:
    - name: {{ libvirt.ovs.service | string | yaml_dquote }}
    - enable: true
    - require:
      - pkg: libvirt_ovs_packages
{%- endif %}
{%- for name, given in network.bridges | dictsort %}
{%- set parameters = given or {} %}
{%- set is_ovs = parameters.get("type") == "ovs" %}

{{ ("libvirt_bridge_" ~ name) | yaml_dquote }}:
  virt.bridge:
    - name: {{ name | string | yaml_dquote }}
    {%- for key, value in dict({"interface": none if is_ovs else network.interface}, **parameters) | dictsort %}
    - {{ key | string | yaml_dquote }}: {{ value | yaml }}
    {%- endfor %}
    - require:
      - virt: libvirt_bridge
    {%- if is_ovs %}
      - service: libvirt_ovs_service
    {%- endif %}
{%- endfor %}
{%- endif %}
