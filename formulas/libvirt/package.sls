{%- from "libvirt/map.jinja" import libvirt with context %}

libvirt_packages:
  pkg.installed:
    - pkgs: {{ (libvirt.packages + libvirt.arch_packages.get(grains.cpuarch, []) + libvirt.shared_packages) | yaml }}
{%- for option, value in libvirt.package_options.items() %}
    - {{ option | string | yaml_dquote }}: {{ value | yaml }}
{%- endfor %}
