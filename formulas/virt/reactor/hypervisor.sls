{#- For salt/minion/*/start: a hypervisor that has started gets its states, the cloud its guests.
    The id is a minion's own word: the runner passes over who is no hypervisor, and runs one
    orchestration of a host at a time, however many of these events come. #}
hypervisor started:
  runner.virt.started:
    - args:
      - host: {{ data['id'] | yaml_dquote }}
