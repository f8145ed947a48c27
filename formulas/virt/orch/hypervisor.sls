{#- state.orchestrate virt.orch.hypervisor pillar={hypervisor: ID}: applies its states, then deploys
    the guests. Does nothing for a minion that virt:hosts in the master's configuration does not match. #}
{%- set id = salt['pillar.get']('hypervisor', '') %}
{%- set hosts = salt['config.get']('virt:hosts') or 'G@virt_host:hypervisor:True' %}
{%- if id | string is match('^[A-Za-z0-9._-]{1,255}\\Z') %}
include:
  - virt.orch.deploy

hypervisor {{ id }}:
  salt.state:
    - tgt: {{ ("( " ~ hosts ~ " ) and L@" ~ id) | yaml_dquote }}
    - tgt_type: compound
    - highstate: True
    - queue: True
    - require_in:
      - sls: virt.orch.deploy
{%- endif %}
