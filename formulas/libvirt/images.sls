{%- from "libvirt/map.jinja" import libvirt with context %}

include:
  - .package

libvirt_images:
  file.directory:
    - name: {{ libvirt.images.path }}
    - mode: {{ libvirt.images.mode | tojson }}
    - makedirs: true
    - require:
      - pkg: libvirt_packages
