{%- from "libvirt/map.jinja" import libvirt with context %}

include:
  - .package

libvirt_images:
  file.directory:
    - name: {{ libvirt.images.path | string | yaml_dquote }}
    - mode: {{ libvirt.images.mode | yaml }}
    - makedirs: true
    - require:
      - pkg: libvirt_packages
