{#- The page of the cloud, see docs/how-to/web.md: its files, and their configuration in salt-api. For the master's own
    minion. #}
{%- set folder = "/srv/salt-virt-page" %}

virt_page_files:
  file.recurse:
    - name: {{ folder }}
    - source: salt://virt/page/files
    - clean: true
    - exclude_pat: novnc
    - user: root
    - dir_mode: "0755"
    - file_mode: "0644"

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
