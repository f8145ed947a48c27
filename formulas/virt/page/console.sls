{#- Screens and serial consoles in the page, docs/reach.md: noVNC's files, the engine by which they are
    reached, and nginx with the TLS before it and salt-api. For the master's own minion. #}
{%- set ask = salt["pillar.get"]("virt_page", {}) or {} %}
{%- set folder = "/srv/salt-virt-page" %}
{%- set conf = opts.conf_file.rpartition("/")[0] %}
{%- set mine = conf ~ "/master.d/salt-virt-reach.conf" %}
{#- Salt takes the list of engines of one file alone #}
{%- set others = salt["file.find"](conf ~ "/master.d", type="f", grep="^engines:") + salt["file.find"](conf ~ "/master", type="f", grep="^engines:") %}
{%- set others = others | reject("equalto", mine) | list %}

include:
  - virt.page

{%- if not ask.get("certificate") or not ask.get("key") %}

virt_console_tls:
  test.fail_without_changes:
    - name: "virt_page:certificate and virt_page:key of the pillar must be the paths of the certificate and the key with which the page is served"
    - failhard: true
{%- else %}

virt_console_packages:
  pkg.installed:
    - pkgs: [novnc, nginx]
    - install_recommends: false

virt_console_novnc:
  file.symlink:
    - name: {{ folder }}/novnc
    - target: {{ ask.novnc | default("/usr/share/novnc") | yaml_dquote }}
    - require:
      - virt_page_files
      - virt_console_packages

virt_console_engine:
  file.managed:
    - name: {{ mine | yaml_dquote }}
    - contents: |
        {%- if not others %}
        engines:
          - virt_reach:
              port: {{ ask.reach_port | default(8003) }}
        {%- endif %}
        rest_cherrypy:
          host: 127.0.0.1
          port: {{ ask.api_port | default(8001) }}
          disable_ssl: true
    - makedirs: true
    - watch_in:
      - virt_page_api
{%- if others and not salt["file.contains"](others | first, "virt_reach") %}

virt_console_engines:
  test.fail_without_changes:
    - name: {{ (others | first ~ " has the master's engines, and Salt takes one list alone: add virt_reach to it") | yaml_dquote }}
{%- endif %}

virt_console_front:
  file.managed:
    - name: /etc/nginx/conf.d/salt-virt.conf
    - source: salt://virt/page/console/nginx.conf
    - template: jinja
    - context:
        port: {{ ask.port | default(8000) }}
        api_port: {{ ask.api_port | default(8001) }}
        reach_port: {{ ask.reach_port | default(8003) }}
        certificate: {{ ask.certificate | yaml_dquote }}
        key: {{ ask.key | yaml_dquote }}
    - require:
      - virt_console_packages

virt_console_nginx:
  service.running:
    - name: nginx
    - enable: true
    - reload: true
    - require:
      - virt_page_api
    - watch:
      - virt_console_front
{%- endif %}
