{#- The master's schedule for backups, their pruning and verification, see docs/how-to/backups.md. For the master's own
    minion; pillar virt_backups. #}
{%- set given = salt["pillar.get"]("virt_backups", {}) or {} %}
{%- set faults = [] %}
{%- if given is not mapping %}
{%-   do faults.append("a mapping, not " ~ (given | json)) %}
{%-   set given = {} %}
{%- endif %}
{#- the arguments of each verb: Salt reports an unknown argument only in the master's log #}
{%- set words = {
  "due": ["guests", "hours", "to", "at_once", "test", "scheduled"],
  "prune": ["name", "to", "test"],
  "verify": ["name", "backup", "to", "days", "test", "limit"],
  "instant": ["name", "timeout", "test"],
} %}
{%- set defaults = {
  "due": {"seconds": 3600},
  "prune": {"seconds": 86400},
  "verify": {"seconds": 86400, "days": 30},
  "instant": {"seconds": 600},
} %}
{%- set unknown = given | reject("in", defaults) | list %}
{%- if unknown %}
{%-   do faults.append("unknown " ~ unknown | join(", ") ~ "; known: " ~ defaults | join(", ")) %}
{%- endif %}
{%- set schedule = {} %}
{%- for name, values in defaults.items() %}
{%-   set said = given.get(name, {}) %}
{%-   if said and said is not mapping %}
{%-     do faults.append(name ~ ": a mapping or false, not " ~ (said | json)) %}
{%-   elif said is not sameas false %}
{%-     set kwargs = dict(values, **(said or {})) %}
{#-     without a pattern of names, the guests that have a schedule of their own #}
{%-     if name == "due" and "scheduled" not in kwargs and "guests" not in kwargs %}
{%-       do kwargs.update({"scheduled": True}) %}
{%-     endif %}
{%-     set seconds = kwargs.pop("seconds") %}
{#-     Salt would start it at each evaluation of its schedule, without a pause #}
{%-     if seconds | string is not match("^[1-9][0-9]*\\Z") %}
{%-       do faults.append(name ~ ": seconds: a number above 0, not " ~ (seconds | json)) %}
{%-     endif %}
{%-     set strange = kwargs | reject("in", words[name]) | list %}
{%-     if strange %}
{%-       do faults.append(name ~ ": unknown " ~ strange | join(", ") ~ "; known: seconds, " ~ words[name] | join(", ")) %}
{%-     endif %}
{#-     a run takes as long as its largest guest; the next one skips running backups #}
{%-     do schedule.update({"virt_backup_" ~ name: {"function": "virt.backup_" ~ name,
          "seconds": seconds | int, "kwargs": kwargs,
          "maxrunning": 12 if name == "due" else 1}}) %}
{%-   endif %}
{%- endfor %}
{%- if faults %}

virt_backups_schedule:
  test.fail_without_changes:
    - name: {{ ("pillar virt_backups: " ~ faults | join("; ")) | yaml_dquote }}
{%- else %}

virt_backups_schedule:
  file.managed:
    - name: {{ (opts.conf_file.rpartition("/")[0] ~ "/master.d/salt-virt-backups.conf") | yaml_dquote }}
    - contents: {{ ("schedule: " ~ schedule | json) | yaml_dquote }}
    - makedirs: true

virt_backups_master:
  service.running:
    - name: salt-master
    - order: last
    - watch:
      - virt_backups_schedule
{%- endif %}
