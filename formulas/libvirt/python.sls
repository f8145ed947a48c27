{#- The binding belongs into the Python that runs the minion, not into the system's #}
{%- from "libvirt/map.jinja" import libvirt with context %}
{%- set python = grains.pythonexecutable %}
{%- set has_binding = python ~ " -c 'import libvirt'" %}
{%- if libvirt.python.manage %}

libvirt_python_build:
  pkg.installed:
    - pkgs: {{ libvirt.python.build_packages | tojson }}
    - unless: {{ has_binding }}

libvirt_python:
  cmd.run:
    - name: {{ python }} -m pip install --no-cache-dir '{{ libvirt.python.requirement }}'
    - unless: {{ has_binding }}
    - reload_modules: true
    - require:
      - pkg: libvirt_python_build
{%- endif %}
