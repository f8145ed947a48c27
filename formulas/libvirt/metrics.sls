{#- The exporter of metrics, docs/how-to/metrics.md. Salt joins the lists of engines of all files in minion.d, and any of
    them replaces the list of the main file #}
{%- from "libvirt/map.jinja" import libvirt, python, pip, restart_minion with context %}
{%- set metrics = libvirt.metrics %}
{%- set main = opts.conf_file %}
{%- set own_list = salt["file.search"](main, "^engines:", ignore_if_missing=True) %}

include:
  - .python
{%- if python.startswith("/usr/bin/") %}

libvirt_metrics_library:
  pkg.installed:
    - name: {{ metrics.system_package | string | yaml_dquote }}
{%- else %}

libvirt_metrics_library:
  cmd.run:
    - name: {{ (pip ~ " install --no-cache-dir --disable-pip-version-check " ~ (metrics.requirement | string | quote)) | yaml_dquote }}
    - unless: {{ python }} -c 'import prometheus_client'
{%- endif %}
{%- if not own_list %}

libvirt_metrics_engine:
  file.managed:
    - name: {{ (opts.conf_file.rpartition("/")[0] ~ "/minion.d/virt_exporter.conf") | yaml_dquote }}
    - contents: {{ ("engines: " ~ [{"virt_exporter": {"address": metrics.address, "port": metrics.port,
        "tls": metrics.tls, "every_s": metrics.every_s}}] | json) | yaml_dquote }}
    - makedirs: true
{%- elif not salt["file.search"](main, "^[^#]*virt_exporter") %}

libvirt_metrics_engine:
  test.fail_without_changes:
    - name: {{ (main ~ " has a list of engines, which a list in minion.d would replace: add virt_exporter to it, or move the list to a file in minion.d, and apply this again") | yaml_dquote }}
{%- endif %}

libvirt_metrics_minion_restarts:
  cmd.run:
    - name: {{ restart_minion | yaml_dquote }}
    - order: last
    - onchanges:
      - libvirt_metrics_library
{%- if not own_list %}
      - libvirt_metrics_engine
{%- endif %}
