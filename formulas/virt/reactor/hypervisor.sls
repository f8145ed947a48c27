{#- For salt/minion/*/start: applies the states of a hypervisor that has started, and deploys the cloud's guests. Any
    minion can send this event: the runner ignores ids that are not hypervisors, and runs one orchestration per host at
    a time, however many events arrive. #}
hypervisor started:
  runner.virt.started:
    - args:
      - host: {{ data['id'] | yaml_dquote }}
