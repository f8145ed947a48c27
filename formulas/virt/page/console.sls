{#- Displays and serial consoles in the page, see docs/how-to/consoles.md: noVNC's files, the engine that connects to
    them, and nginx, which terminates TLS for the engine and salt-api. For the master's own minion. #}
{%- set ask = salt["pillar.get"]("virt_page", {}) or {} %}
{%- set folder = "/srv/salt-virt-page" %}
{%- set conf = opts.conf_file.rpartition("/")[0] %}
{%- set mine = conf ~ "/master.d/salt-virt-reach.conf" %}
{#- Salt joins the lists of engines of all files in master.d, and any of them replaces the list of the main file #}
{%- set main = conf ~ "/master" %}
{%- set own_list = salt["file.search"](main, "^engines:", ignore_if_missing=True) %}

include:
  - virt.page

{%- if not ask.get("certificate") or not ask.get("key") %}

virt_console_tls:
  test.fail_without_changes:
    - name: "virt_page:certificate and virt_page:key of the pillar must be the paths of the page's certificate and key"
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
        {%- if not own_list %}
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
{%- if own_list and not salt["file.search"](main, "^[^#]*virt_reach") %}

virt_console_engines:
  test.fail_without_changes:
    - name: {{ (main ~ " has a list of engines, which a list in master.d would replace: add virt_reach to it, or move the list to a file in master.d, and apply this again") | yaml_dquote }}
{%- endif %}

virt_console_front:
  file.managed:
    - name: /etc/nginx/conf.d/salt-virt.conf
    - source: salt://virt/page/console/nginx.conf
    - template: jinja
    - context:
        ipv6: {{ (grains.get("ipv6") or []) | length > 0 }}
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
