{%- from "libvirt/map.jinja" import libvirt, daemons with context %}

include:
  - .package

{#- nobody may be let in without a certificate, whatever an earlier hand wrote #}
libvirt_config_verifies:
  file.replace:
    - name: {{ daemons.config }}
    - pattern: '^\s*(tls_no_(?:verify|sanity)_certificate\s*=\s*1.*)$'
    - repl: '#\1'
    - require:
      - pkg: libvirt_packages

{%- for path, settings in ((daemons.config, libvirt.config), ("/etc/libvirt/qemu.conf", libvirt.qemu)) %}
{%-   for key, value in settings.items() %}

libvirt_config_{{ path }}_{{ key }}:
  file.replace:
    - name: {{ path }}
    - pattern: '^#?\s*{{ key }}\s*=(?:\s*\[[^\]]*\]|.*)$'
    - repl: {{ (key ~ " = " ~ (value | tojson)) | replace("\\", "\\\\") | tojson }}
    - append_if_not_found: true
    - count: 1
    - require:
      - pkg: libvirt_packages
{%-   endfor %}
{%- endfor %}
