{%- from "libvirt/map.jinja" import libvirt, daemons with context %}
{%- set remote = daemons.remote ~ ".service" %}

include:
  - .config
  - .keys
{%- if daemons.instead_of %}

{#- guests keep running, and each daemon finds them #}
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

{#- systemd refuses to open a socket of a service that was started without it. The other sockets are closed meanwhile,
    because a client would start the service again. Guests keep running. #}
libvirt_makes_way_for_tls:
  cmd.run:
    - name: systemctl stop {{ (daemons.sockets | select("match", daemons.remote ~ "[-.]") | list + [remote]) | join(" ") }}
    - unless: systemctl is-active --quiet {{ daemons.tls_socket }}
    - require:
      - virt: libvirt_keys

{#- the TLS socket first: it opens the sockets that it needs, and a client of one of them starts the service #}
libvirt_sockets:
  service.running:
    - names: {{ ([daemons.tls_socket] + daemons.sockets) | yaml }}
    - enable: true
    - require:
      - cmd: libvirt_makes_way_for_tls
