{#- Removes the hypervisor; refused while guests run. Disks, the definitions of guests, networks and pools, and the
    settings in /etc/libvirt are kept: a later state.apply libvirt uses them again. #}
{%- from "libvirt/map.jinja" import libvirt, daemons, restart_minion with context %}
{%- set virsh = "virsh -q -c qemu:///system" %}
{%- set pki = libvirt.get("keys", {}).get("basepath", "/etc/pki") ~ "/" %}

libvirt_clean_idle:
  virt.no_guests:
    {#- if this fails, no other state of this run is applied #}
    - failhard: true

{#- of libvirt.ha: without libvirt it has no guests to manage. A later libvirt.ha enables it again #}
libvirt_clean_agent:
  service.dead:
    - name: salt-virt-ha
    - enable: false
    - require:
      - virt: libvirt_clean_idle

{#- of libvirt.metrics: it would report forever that libvirt does not respond #}
libvirt_clean_exporter:
  file.absent:
    - name: {{ (opts.conf_file.rpartition("/")[0] ~ "/minion.d/virt_exporter.conf") | yaml_dquote }}
    - require:
      - virt: libvirt_clean_idle

libvirt_clean_minion_restarts:
  cmd.run:
    - name: {{ restart_minion | yaml_dquote }}
    - order: last
    - onchanges:
      - file: libvirt_clean_exporter

libvirt_clean_networks:
  cmd.run:
    - name: {{ virsh }} net-list --name | xargs -r -n 1 {{ virsh }} net-destroy
    - onlyif: {{ virsh }} net-list --name | grep -q .
    - require:
      - virt: libvirt_clean_idle

libvirt_clean_services:
  service.dead:
    - names: {{ ([daemons.tls_socket] + daemons.sockets + [daemons.remote ~ ".service"] + daemons.services) | unique | list | yaml }}
    - enable: false
    - require:
      - cmd: libvirt_clean_networks
      - service: libvirt_clean_agent

libvirt_clean_packages:
  pkg.removed:
    - pkgs: {{ (libvirt.packages + libvirt.arch_packages.get(grains.cpuarch, []) + libvirt.clean_packages) | yaml }}
    - require:
      - service: libvirt_clean_services

{#- Other software uses the folder CA, too: its files are removed only if they belong to the CA that has signed the host's
    certificate. The system's own CAs must not count for that. #}
{%- set ca, crl = ((pki ~ "CA/cacert.pem") | quote), ((pki ~ "CA/cacrl.pem") | quote) %}
{%- set signed = "SSL_CERT_DIR=/nonexistent SSL_CERT_FILE=/nonexistent openssl verify -no_check_time -partial_chain -CAfile "
  ~ ca ~ " " ~ ((pki ~ "libvirt/clientcert.pem") | quote) %}

libvirt_clean_crl:
  file.absent:
    - name: {{ (pki ~ "CA/cacrl.pem") | yaml_dquote }}
    - onlyif: {{ (signed ~ " && openssl crl -noout -CAfile " ~ ca ~ " -in " ~ crl ~ " 2>&1 | grep -qx 'verify OK'") | yaml_dquote }}
    - require:
      - service: libvirt_clean_services

libvirt_clean_ca:
  file.absent:
    - name: {{ (pki ~ "CA/cacert.pem") | yaml_dquote }}
    - onlyif: {{ signed | yaml_dquote }}
    - require:
      - file: libvirt_clean_crl

libvirt_clean_keys:
  file.absent:
    - names:
{%- for name in ("libvirt/servercert.pem", "libvirt/private/serverkey.pem",
  "libvirt/clientcert.pem", "libvirt/private/clientkey.pem", "qemu/ca-cert.pem", "qemu/ca-crl.pem",
  "qemu/server-cert.pem", "qemu/server-key.pem", "qemu/client-cert.pem", "qemu/client-key.pem") %}
      - {{ (pki ~ name) | yaml_dquote }}
{%- endfor %}
    - require:
      - file: libvirt_clean_ca

libvirt_clean_firewall:
  virt.firewall_absent:
    - require:
      - service: libvirt_clean_services
{%- if libvirt.network.manage %}
{%- for name in libvirt.network.bridges | sort %}

{{ ("libvirt_clean_bridge_" ~ name) | yaml_dquote }}:
  virt.bridge_absent:
    - name: {{ name | string | yaml_dquote }}
    - require:
      - virt: libvirt_clean_idle
      - service: libvirt_clean_services
    - require_in:
      - virt: libvirt_clean_bridge
{%- endfor %}

libvirt_clean_bridge:
  virt.bridge_absent:
    - name: {{ libvirt.network.bridge | string | yaml_dquote }}
    - require:
      - virt: libvirt_clean_idle
      - service: libvirt_clean_services
{%- endif %}
