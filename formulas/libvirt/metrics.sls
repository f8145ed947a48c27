{#- The exporter of metrics, docs/metrics.md. Salt takes the list of engines of one file alone #}
{%- from "libvirt/map.jinja" import libvirt, python, pip, restart_minion with context %}
{%- set metrics = libvirt.metrics %}
{%- set names = [] %}
{%- for one in opts.get("engines") or [] %}
{%-   do names.append(one if one is string else one | first) %}
{%- endfor %}
{%- set others = names | reject("equalto", "virt_exporter") | list %}

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
{%- if not others %}

libvirt_metrics_engine:
  file.managed:
    - name: {{ (opts.conf_file.rpartition("/")[0] ~ "/minion.d/virt_exporter.conf") | yaml_dquote }}
    - contents: {{ ("engines: " ~ [{"virt_exporter": {"address": metrics.address, "port": metrics.port,
        "tls": metrics.tls, "every_s": metrics.every_s}}] | json) | yaml_dquote }}
    - makedirs: true
{%- elif "virt_exporter" not in names %}

libvirt_metrics_engine:
  test.fail_without_changes:
    - name: {{ ("this minion has engines of its own (" ~ others | join(", ")
        ~ "), and Salt takes one list alone: add virt_exporter to it, and apply this again") | yaml_dquote }}
{%- endif %}

libvirt_metrics_minion_restarts:
  cmd.run:
    - name: {{ restart_minion | yaml_dquote }}
    - order: last
    - onchanges:
      - libvirt_metrics_library
{%- if not others %}
      - libvirt_metrics_engine
{%- endif %}
