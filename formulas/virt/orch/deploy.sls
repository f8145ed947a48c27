{#- salt-run state.orchestrate virt.orch.deploy: deploys the guests of pillar virt_deploy #}
{%- for name, deployment in salt['pillar.get']('virt_deploy', {}).items() %}
{{ name | string | yaml_dquote }}:
  virt.deployed:
    - guests: {{ (deployment.get('guests') or {}) | yaml }}
    - defaults: {{ (deployment.get('defaults') or {}) | yaml }}
    - remove: {{ deployment.get('remove', False) | yaml }}
    - at_once: {{ deployment.get('at_once', 4) | yaml }}
    - parallel: True
{%- endfor %}
