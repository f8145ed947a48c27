{#- The binding belongs into the Python that runs the minion. A Salt of the distribution runs in the
    distribution's Python, whose binding is a package; any other Python needs one of its own. #}
{%- from "libvirt/map.jinja" import libvirt with context %}
{%- set python = grains.pythonexecutable %}
{%- set onedir = "/opt/saltstack/salt/" %}
{%- set has_binding = python ~ " -c 'import libvirt'" %}
{%- set build = libvirt.python %}
{%- if build.manage and python.startswith("/usr/bin/") %}

libvirt_python:
  pkg.installed:
    - name: {{ build.system_package | string | yaml_dquote }}
    - reload_modules: true
{%- elif build.manage %}

libvirt_python_build:
  pkg.installed:
    - pkgs: {{ build.build_packages | yaml }}
    - unless: {{ has_binding }}
{%- for option, value in build.build_options.items() %}
    - {{ option | string | yaml_dquote }}: {{ value | yaml }}
{%- endfor %}

libvirt_python:
  cmd.run:
    {#- salt-pip puts it where an update of Salt's packages leaves it #}
    - name: {{ onedir ~ "salt-pip" if python.startswith(onedir) else python ~ " -m pip" }} install --no-cache-dir '{{ build.requirement }}'
    - unless: {{ has_binding }}
    - reload_modules: true
    - require:
      - pkg: libvirt_python_build
{%- endif %}
