{%- from "libvirt/map.jinja" import libvirt with context %}

include:
  - .package

libvirt_keys:
  virt.keys:
{%- for key, value in libvirt.get("keys", {}).items() %}
    - {{ key }}: {{ value | tojson }}
{%- endfor %}
    - require:
      - pkg: libvirt_packages
