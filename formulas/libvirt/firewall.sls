{#- libvirt's TLS port and the migration ports for the other hypervisors alone, displays for nobody #}
{%- from "libvirt/map.jinja" import libvirt with context %}
{%- set firewall = libvirt.firewall %}
{%- if firewall.manage %}
{%-   set mine = firewall.mine %}
{%-   set hosts = firewall.hosts %}
{%-   if hosts is none and mine %}
{%-     set hosts = salt["mine.get"](mine.target, mine.function, mine.tgt_type).values() | flatten | unique | list %}
{%-   endif %}

libvirt_firewall:
  virt.firewall:
    - hosts: {{ hosts | yaml }}
    - opened: {{ (firewall.tls + firewall.migration) | yaml }}
    - shut: {{ firewall.displays | yaml }}
    - kind: {{ firewall.kind | yaml }}
    - masters: {{ firewall.masters | yaml }}
{%- endif %}
