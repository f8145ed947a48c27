{#- Completion of salt-run virt.VERB in bash and zsh, see docs/how-to/runner.md. For the master's own minion. #}
{%- set files = {
  "/usr/local/share/bash-completion/completions/salt-run": "salt-run",
  "/usr/local/share/zsh/site-functions/_salt-run": "_salt-run",
} %}
{%- for path, source in files.items() %}

virt_completion_{{ source }}:
  file.managed:
    - name: {{ path }}
    - source: salt://virt/completion/{{ source }}
    - user: root
    - mode: "0644"
    - dir_mode: "0755"
    - makedirs: true
{%- endfor %}
