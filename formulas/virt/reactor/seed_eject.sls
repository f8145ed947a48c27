{#- For salt/minion/*/start: removes the volume with the seed data from a guest that has started. Any minion can send this
    event: the id is quoted, and the runner checks that the guest exists. #}
eject the seed:
  runner.virt.seed_eject:
    - args:
      - name: {{ data['id'] | yaml_dquote }}
