{#- The binding must be installed in the Python that runs the minion. The distribution's Salt runs in the distribution's
    Python, whose binding is a package; any other Python needs its own build. Salt Virt itself is installed there if
    pillar names a wheel; otherwise it is synced. #}
{%- from "libvirt/map.jinja" import libvirt, python, pip, restart_minion with context %}
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
    - name: {{ (pip ~ " install --no-cache-dir " ~ (build.requirement | string | quote)) | yaml_dquote }}
    - unless: {{ has_binding }}
    - reload_modules: true
    - require:
      - pkg: libvirt_python_build
{%- endif %}
{%- if build.salt_virt and python.startswith("/usr/bin/") %}

libvirt_salt_virt:
  test.fail_without_changes:
    - name: >-
        pip does not install into the distribution's Python, {{ python }}, which runs Salt here: let Salt Virt
        be synced (libvirt:python:salt_virt says otherwise), or use Salt's own packages
{%- elif build.salt_virt %}
{%-   set source = build.salt_virt | string %}
{%-   set file = source.split("?")[0].split("/")[-1] %}
{%-   set given = source %}
{%-   set served = source.startswith("salt://") %}
{%-   set wheel = "/var/cache/salt-virt/wheels/" ~ file %}
{#-   what pip has recorded about the installed one: its version, or the name and hash of its file #}
{%-   set installed = python ~ " -c \"from importlib.metadata import distribution; d = distribution('salt-virt'); "
        ~ "print('==' + d.version, d.read_text('direct_url.json'))\"" %}
{%-   if served %}
{%-     set wanted = (salt["cp.hash_file"](source) or {}).get("hsum", "") %}
{#-     pip before 23.1 records no hash unless it was given one #}
{%-     set given = "file://" ~ wheel ~ "#sha256=" ~ wanted %}

libvirt_salt_virt_wheel:
  file.managed:
    - name: {{ wheel | yaml_dquote }}
    - source: {{ source | yaml_dquote }}
    - makedirs: true
{%-   elif "==" in source %}
{%-     set wanted = "==" ~ source.split("==")[1] ~ " " %}
{%-   else %}
{%-     set wanted = file if file.endswith(".whl") else "==" %}
{%-   endif %}

libvirt_salt_virt:
  cmd.run:
    - name: {{ (pip ~ " install --no-cache-dir --disable-pip-version-check --no-deps --force-reinstall " ~ (given | quote)) | yaml_dquote }}
{%-   if served %}
    - require:
      - file: libvirt_salt_virt_wheel
{%-   endif %}
    - unless: {{ (installed ~ " | grep -qF " ~ (wanted | quote)) | yaml_dquote }}
    - reload_modules: true

libvirt_minion_restarts:
  cmd.run:
    - name: {{ restart_minion | yaml_dquote }}
    - order: last
    - onchanges:
      - cmd: libvirt_salt_virt
{%- endif %}
