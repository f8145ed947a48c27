{#- salt-run state.orchestrate virt.orch.deploy: the guests that pillar virt_deploy lists #}
{%- for name, deployment in salt['pillar.get']('virt_deploy', {}).items() %}
{{ name | yaml_dquote }}:
  virt.deployed:
    - guests: {{ (deployment.get('guests') or {}) | json }}
    - defaults: {{ (deployment.get('defaults') or {}) | json }}
    - remove: {{ deployment.get('remove', False) }}
    - at_once: {{ deployment.get('at_once', 4) }}
    - parallel: True
{%- endfor %}
