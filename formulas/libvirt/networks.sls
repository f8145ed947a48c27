{#- libvirt's networks from pillar: name to parameters of virt.network_running #}
{%- from "libvirt/map.jinja" import libvirt with context %}
{%- if libvirt.networks %}

include:
  - .service
{%-   for name, parameters in libvirt.networks.items() %}

{{ ("libvirt_network_" ~ name) | yaml_dquote }}:
  virt.network_running:
    - name: {{ name | string | yaml_dquote }}
{%-     for key, value in (parameters or {}).items() %}
    - {{ key | string | yaml_dquote }}: {{ value | yaml }}
{%-     endfor %}
    - require:
      - service: libvirt_sockets
{%-   endfor %}
{%- endif %}
