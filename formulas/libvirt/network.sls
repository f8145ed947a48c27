{#- makes the bridges where there are none; puts everything back when it cuts the host off #}
{%- from "libvirt/map.jinja" import libvirt with context %}
{%- set network = libvirt.network %}
{%- if network.manage %}

libvirt_bridge:
  virt.bridge:
    - name: {{ network.bridge }}
    - interface: {{ network.interface | tojson }}
{%- for name, parameters in network.bridges | dictsort %}

libvirt_bridge_{{ name }}:
  virt.bridge:
    - name: {{ name | tojson }}
    {%- for key, value in dict({"interface": network.interface}, **parameters) | dictsort %}
    - {{ key }}: {{ value | tojson }}
    {%- endfor %}
    - require:
      - virt: libvirt_bridge
{%- endfor %}
{%- endif %}
