{#- High availability's agent, docs/how-to/ha.md. It does nothing until it has settings: from pillar
    libvirt:ha:settings, or from the master #}
{%- from "libvirt/map.jinja" import libvirt with context %}
{%- set ha = libvirt.ha %}

include:
  - .package
  - .keys
{%- if ha.watchdog_module %}

libvirt_ha_watchdog:
  kmod.present:
    - name: {{ ha.watchdog_module | string | yaml_dquote }}
    - persist: true
    - require_in:
      - virt: libvirt_ha_agent
{%- endif %}

libvirt_ha_packages:
  pkg.installed:
    - pkgs: {{ ha.packages | yaml }}

libvirt_ha_agent:
  virt.ha_agent:
    - settings: {{ ha.settings | yaml }}
    - require:
      - pkg: libvirt_ha_packages
      - pkg: libvirt_packages
      - virt: libvirt_keys
