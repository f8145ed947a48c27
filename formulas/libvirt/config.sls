{%- from "libvirt/map.jinja" import libvirt, daemons with context %}

include:
  - .package

{#- with test=True the packages that bring these files may not be there yet. Nobody may be let in
    without a certificate, whatever an earlier hand wrote #}
libvirt_config_verifies:
  file.replace:
    - name: {{ daemons.config }}
    - pattern: '^[ \t]*(tls_no_(?:verify|sanity)_certificate[ \t]*=[ \t]*1.*)$'
    - repl: '#\1'
    - ignore_if_missing: {{ opts["test"] }}
    - require:
      - pkg: libvirt_packages

{%- set remote = libvirt.config %}
{%- if libvirt.tls.allowed %}
{%-   set allowed = salt["virt.tls_allowed"]() if libvirt.tls.allowed is sameas true else libvirt.tls.allowed %}
{%-   set remote = salt["slsutil.merge"](remote, {"tls_allowed_dn_list": allowed}) %}
{%- endif %}
{%- for path, settings in ((daemons.config, remote), ("/etc/libvirt/qemu.conf", libvirt.qemu)) %}
{%-   for key, value in settings.items() %}

{{ ("libvirt_config_" ~ path ~ "_" ~ key) | yaml_dquote }}:
  file.replace:
    - name: {{ path }}
    - pattern: {{ ("^#?[ \\t]*" ~ (key | string | regex_escape) ~ "[ \\t]*=[ \\t]*(?:\\[[^\\]]*\\]|.*)$") | yaml_dquote }}
    - repl: {{ (key ~ " = " ~ (value | json)) | replace("\\", "\\\\") | yaml_dquote }}
    - append_if_not_found: true
    - count: 1
    - ignore_if_missing: {{ opts["test"] }}
    - require:
      - pkg: libvirt_packages
{%-   endfor %}
{%- endfor %}
