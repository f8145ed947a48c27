{#- opens libvirt's TLS port and the migration ports to the other hypervisors only, and closes those of displays #}
{%- from "libvirt/map.jinja" import libvirt with context %}
{%- set firewall = libvirt.firewall %}
{%- if firewall.manage %}
{%-   set mine = firewall.mine and dict({"tgt_type": "glob", "function": "network.ip_addrs"}, **firewall.mine) %}
{%-   if mine and not mine.target %}
{{-     raise("pillar libvirt:firewall:mine: target is missing, which must match hypervisors only") }}
{%-   endif %}
{%-   set hosts = firewall.hosts %}
{%-   if hosts is none and mine %}
{%-     set hosts = salt["mine.get"](mine.target, mine.function, mine.tgt_type).values() | flatten | unique | list %}
{%-   endif %}
{%-   if hosts == [] and mine %}

libvirt_firewall:
  test.fail_without_changes:
    - name: {{ ("the mine has no " ~ mine.function ~ " of " ~ mine.target ~ ": the other hypervisors would be shut out. Run "
        ~ "mine.update on them, or correct libvirt:firewall:mine, then apply this again") | yaml_dquote }}
{%-   else %}

libvirt_firewall:
  virt.firewall:
    - hosts: {{ hosts | yaml }}
    - opened: {{ (firewall.tls + firewall.migration) | yaml }}
    - shut: {{ firewall.displays | yaml }}
    - kind: {{ firewall.kind | yaml }}
    - masters: {{ firewall.masters | yaml }}
{%-   endif %}
{%- endif %}
