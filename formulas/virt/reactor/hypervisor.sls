{#- For salt/minion/*/start: a hypervisor that has started gets its states, the cloud its guests.
    The id is the one that the master knows; a minion can fire a tag with any name in it. #}
{{ data['id'] | yaml_dquote }}:
  runner.state.orchestrate:
    - args:
      - mods: virt.orch.hypervisor
      - pillar:
          hypervisor: {{ data['id'] | yaml_dquote }}
