{#- For salt/minion/*/start: a guest that has started loses the volume that told it who it is.
    The id is a minion's own word: quoted, and the runner looks whether there is such a guest. #}
eject the seed:
  runner.virt.seed_eject:
    - args:
      - name: {{ data['id'] | yaml_dquote }}
