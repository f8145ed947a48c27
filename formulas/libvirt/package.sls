{%- from "libvirt/map.jinja" import libvirt with context %}

libvirt_packages:
  pkg.installed:
    - pkgs: {{ libvirt.packages | tojson }}
