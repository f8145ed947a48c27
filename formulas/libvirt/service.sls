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

{#- systemd refuses to open a socket of a service that runs without it. Its other sockets are shut so long, or
    whoever asks libvirt meanwhile starts it again. Guests run on. #}
libvirt_makes_way_for_tls:
  cmd.run:
    - name: systemctl stop {{ (daemons.sockets | select("match", daemons.remote ~ "[-.]") | list + [remote]) | join(" ") }}
    - unless: systemctl is-active --quiet {{ daemons.tls_socket }}
    - require:
      - virt: libvirt_keys

{#- TLS's first: it opens those that it needs, and whoever asks libvirt by one of them starts it #}
libvirt_sockets:
  service.running:
    - names: {{ ([daemons.tls_socket] + daemons.sockets) | yaml }}
    - enable: true
    - require:
      - cmd: libvirt_makes_way_for_tls
