{%- from "libvirt/map.jinja" import libvirt, daemons with context %}
{%- set remote = daemons.remote ~ ".service" %}

include:
  - .config
  - .keys
{%- if daemons.instead_of %}

{#- guests run on: each daemon finds those that run #}
libvirt_one_kind_of_daemon:
  service.dead:
    - names: {{ daemons.instead_of | yaml }}
    - enable: false
    - require_in:
      - service: libvirt_sockets
{%- endif %}

libvirt_service:
  service.enabled:
    - names: {{ daemons.services | yaml }}
    - require:
      - pkg: libvirt_packages

{#- systemd refuses to open a socket of a service that runs without it. Guests run on. #}
libvirt_makes_way_for_tls:
  service.dead:
    - name: {{ remote }}
    - unless: systemctl is-active --quiet {{ daemons.tls_socket }}
    - require:
      - virt: libvirt_keys

libvirt_sockets:
  service.running:
    - names: {{ (daemons.sockets + [daemons.tls_socket]) | yaml }}
    - enable: true
    - require:
      - service: libvirt_makes_way_for_tls

libvirt_reads_config:
  cmd.run:
    - name: systemctl try-restart {{ ([remote] + daemons.services) | unique | join(' ') }}
    - onchanges:
      - sls: libvirt.config
