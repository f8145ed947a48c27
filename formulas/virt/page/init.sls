{#- The page of the cloud, see docs/how-to/web.md: its files, and their configuration in salt-api. For the master's own
    minion. #}
{%- set folder = "/srv/salt-virt-page" %}
{%- set backends = salt["saltutil.runner"]("config.get", arg=["external_auth"]) %}
{%- set methods = backends.keys() | list if backends is mapping else [] %}

{#- the page knows the authentication backends before a login by this file; it has no user names #}
virt_page_login:
  file.managed:
    - name: {{ folder }}/login.json
    - contents: {{ {"methods": methods | sort} | json | yaml_squote }}
    - user: root
    - mode: "0644"
    - dir_mode: "0755"
    - makedirs: true

virt_page_files:
  file.recurse:
    - name: {{ folder }}
    - source: salt://virt/page/files
    - clean: true
    - exclude_pat: novnc
    - user: root
    - dir_mode: "0755"
    - file_mode: "0644"
    # what it requires is not cleaned away
    - require:
      - file: virt_page_login

virt_page_settings:
  file.managed:
    - name: {{ (opts.conf_file.rpartition("/")[0] ~ "/master.d/salt-virt-page.conf") | yaml_dquote }}
    - contents: |
        rest_cherrypy:
          app: {{ folder }}/index.html
          app_path: /page
          static: {{ folder }}
          static_path: /static
    - makedirs: true
    - require:
      - virt_page_files

virt_page_api:
  service.running:
    - name: salt-api
    - enable: true
    - watch:
      - virt_page_settings
