{#- makes the bridges where there are none; puts everything back when it cuts the host off #}
{%- from "libvirt/map.jinja" import libvirt with context %}
{%- set network = libvirt.network %}
{%- if network.manage %}

libvirt_bridge:
  virt.bridge:
    - name: {{ network.bridge }}
    - interface: {{ network.interface | tojson }}
{%- set ovs = network.bridges.values() | selectattr("type", "defined") | selectattr("type", "equalto", "ovs") | list %}
{%- if ovs %}

libvirt_ovs_packages:
  pkg.installed:
    - pkgs: {{ libvirt.ovs.packages | tojson }}

libvirt_ovs_service:
  service.running:
    - name: {{ libvirt.ovs.service }}
    - enable: true
    - require:
      - pkg: libvirt_ovs_packages
{%- endif %}
{%- for name, parameters in network.bridges | dictsort %}
{%- set is_ovs = parameters.get("type") == "ovs" %}

libvirt_bridge_{{ name }}:
  virt.bridge:
    - name: {{ name | tojson }}
    {%- for key, value in dict({"interface": none if is_ovs else network.interface}, **parameters) | dictsort %}
    - {{ key }}: {{ value | tojson }}
    {%- endfor %}
    - require:
      - virt: libvirt_bridge
    {%- if is_ovs %}
      - service: libvirt_ovs_service
    {%- endif %}
{%- endfor %}
{%- endif %}
