{%- from "libvirt/map.jinja" import libvirt, daemons with context %}

include:
  - .package

{#- with test=True, the packages with these files may not be installed yet. Clients without a certificate must be refused,
    whatever the file contained before #}
libvirt_config_verifies:
  file.replace:
    - name: {{ daemons.config }}
    - pattern: '^[ \t]*(tls_no_(?:verify|sanity)_certificate[ \t]*=[ \t]*1.*)$'
    - repl: '#\1'
    - ignore_if_missing: {{ opts["test"] }}
    - require:
      - pkg: libvirt_packages

{#- libvirt's files contain numbers, texts and lists of texts; with any other value, the daemon does not start #}
{%- macro written(path, key, value) %}
{%-   if value is boolean %}
{{-     value | int }}
{%-   elif value is integer or value is string or (value is iterable and value is not mapping
        and value | reject("string") | list == []) %}
{{-     value | json }}
{%-   else %}
{{-     raise("pillar libvirt: " ~ key ~ " of " ~ path ~ ": a number, a text or a list of texts, not " ~ (value | json)) }}
{%-   endif %}
{%- endmacro %}
{%- set changed = ["libvirt_config_verifies"] %}
{%- set remote = libvirt.config %}
{%- if libvirt.tls.allowed %}
{%-   set allowed = salt["virt.tls_allowed"]() if libvirt.tls.allowed is sameas true else libvirt.tls.allowed %}
{%-   set remote = salt["slsutil.merge"](remote, {"tls_allowed_dn_list": allowed}) %}
{%- endif %}
{%- for path, settings in ((daemons.config, remote), ("/etc/libvirt/qemu.conf", libvirt.qemu)) %}
{%-   for key, value in settings.items() %}
{%-     do changed.append("libvirt_config_" ~ path ~ "_" ~ key) %}

{{ ("libvirt_config_" ~ path ~ "_" ~ key) | yaml_dquote }}:
  file.replace:
    - name: {{ path }}
    - pattern: {{ ("^#?[ \\t]*" ~ (key | string | regex_escape) ~ "[ \\t]*=[ \\t]*(?:\\[[^\\]]*\\]|.*)$") | yaml_dquote }}
    - repl: {{ (key ~ " = " ~ written(path, key, value)) | replace("\\", "\\\\") | yaml_dquote }}
    - append_if_not_found: true
    - count: 1
    - ignore_if_missing: {{ opts["test"] }}
    - require:
      - pkg: libvirt_packages
{%-   endfor %}
{%- endfor %}

{#- here and not with the sockets: nothing else restarts the daemon if only this part is applied #}
libvirt_reads_config:
  cmd.run:
    - name: systemctl try-restart {{ ([daemons.remote ~ ".service"] + daemons.services) | unique | join(' ') }}
    - onchanges:
{%- for id in changed %}
      - file: {{ id | yaml_dquote }}
{%- endfor %}
