{%- from "libvirt/map.jinja" import libvirt with context %}

include:
  - .package

libvirt_keys:
  virt.keys:
{%- for key, value in libvirt.get("keys", {}).items() %}
    - {{ key | string | yaml_dquote }}: {{ value | yaml }}
{%- endfor %}
    - require:
      - pkg: libvirt_packages
