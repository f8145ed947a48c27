"""The alert rules and the dashboard: promtool evaluates each rule in its situation and in a normal
one."""

import json
import re

import pytest
import salt.utils.yaml

from tests.lab import packages, prometheus
from tests.lab.paths import REPOSITORY
from tests.lab.sh import run

FOLDER = REPOSITORY / "formulas/virt/monitoring"
RULES = FOLDER / "alerts.yml"
HOST = 'host="hv1",instance="hv1:9177",job="salt-virt"'
GUEST = f'guest="web1",uuid="u1",{HOST}'
DAY = 86400

# a rule to (series, what it is when all is well, what it is when the rule is meant); promtool's
# clock begins at 0, and three hours are longer than any rule waits
SITUATIONS = {
    "SaltVirtExporterDown": [("up{job=\"salt-virt\",instance=\"hv1:9177\"}", 1, 0)],
    "SaltVirtLibvirtDown": [(f"saltvirt_libvirt_up{{{HOST}}}", 1, 0)],
    "SaltVirtPartUnreadable": [(f'saltvirt_part_up{{part="capacity",{HOST}}}', 1, 0)],
    "SaltVirtStorageSilent": [(f'saltvirt_host_storage_silent{{mount="/srv",{HOST}}}', None, 1)],
    "SaltVirtPoolFull": [(f'saltvirt_pool_free_bytes{{pool="a",{HOST}}}', 50, 9),
                         (f'saltvirt_pool_total_bytes{{pool="a",{HOST}}}', 100, 100)],
    "SaltVirtPoolOvercommitted": [(f'saltvirt_pool_promisable_bytes{{pool="a",{HOST}}}', 0, -1)],
    "SaltVirtMemoryOvercommitted": [(f"saltvirt_host_memory_free_bytes{{{HOST}}}", 0, -1)],
    "SaltVirtCertificateEnds": [
        (f'saltvirt_certificate_not_after_timestamp_seconds{{use="server",{HOST}}}',
         30 * DAY, 14 * DAY)],
    "SaltVirtMigrationInterrupted": [(f'saltvirt_migrations{{state="interrupted",{HOST}}}', 0, 1),
                                   (f'saltvirt_migrations{{state="running",{HOST}}}', 1, 1)],
    "SaltVirtGuestCrashed": [(f'saltvirt_guest_state{{state="crashed",{GUEST}}}', None, 1),
                             (f'saltvirt_guest_state{{state="running",{GUEST}}}', 1, None)],
    "SaltVirtGuestPaused": [(f'saltvirt_guest_state{{state="paused",{GUEST}}}', None, 1)],
    "SaltVirtGuestWaitsForCpu": [
        (f'saltvirt_guest_vcpu_steal_seconds_total{{vcpu="0",{GUEST}}}', "0+6x180", "0+15x180")],
    "SaltVirtGuestRunsTwice": [('saltvirt_guest_running_hosts{guest="web1"}', None, 2)],
    "SaltVirtHostSilent": [('saltvirt_host_answers{host="hv1"}', 1, 0)],
    "SaltVirtSharedStorageOvercommitted": [
        ('saltvirt_shared_storage_promisable_bytes{storage="nfs a:/b"}', 0, -1)],
    "SaltVirtAuthorityDown": [('saltvirt_authority_up{authority="libvirt"}', 1, 0)],
    "SaltVirtAuthorityEnds": [
        ('saltvirt_authority_not_after_timestamp_seconds{authority="libvirt"}',
         90 * DAY, 60 * DAY)],
    "SaltVirtHaEngineDown": [('saltvirt_ha_engine_up{instance="master:9178"}', 1, 0)],
    "SaltVirtHaNobodyLeads": [('saltvirt_ha_led{instance="a"}', 1, 0),
                              ('saltvirt_ha_led{instance="b"}', 0, 0)],
    "SaltVirtHaDisarmed": [("saltvirt_ha_armed", 1, 0)],
    "SaltVirtHaHostLost": [('saltvirt_ha_host_state{host="hv1",state="fencing"}', None, 1),
                           ('saltvirt_ha_host_state{host="hv1",state="up"}', 1, None)],
    "SaltVirtHaGuestNotKept": [('saltvirt_ha_guest_state{guest="a",state="blocked"}', None, 1),
                               ('saltvirt_ha_guest_state{guest="a",state="placed"}', 1, None)],
    "SaltVirtHaNoRoom": [('saltvirt_ha_host_unplaced_guests{host="hv1"}', 0, 1)],
    "SaltVirtBackupTargetSilent": [('saltvirt_backup_target_answers{target="vault"}', 1, 0)],
    "SaltVirtBackupInvalid": [('saltvirt_backup_invalid{target="vault"}', 0, 1)],
    # at one of two targets it may be old
    "SaltVirtBackupOld": [
        ('saltvirt_backup_last_timestamp_seconds{guest="a",target="vault"}', 3 * DAY, -2 * DAY),
        ('saltvirt_backup_last_timestamp_seconds{guest="a",target="two"}', -9 * DAY, -9 * DAY)],
}  # fmt: skip


def rules():
    found = salt.utils.yaml.safe_load(RULES.read_text(encoding="utf-8"))
    return {rule["alert"]: rule for group in found["groups"] for rule in group["rules"]}


def series(name, column):
    """promtool's input series of a situation. column: 1 for that which is well, 2 for the other."""
    several = [(row[0], row[column]) for row in SITUATIONS[name] if row[column] is not None]
    return [
        {"series": one, "values": value if isinstance(value, str) else f"{value}+0x180"}
        for one, value in several
    ]


def fires(tmp_path, name, column):
    """Which rules fire after three hours of that situation, of all rules."""
    asked = {
        "rule_files": [str(RULES)],
        "evaluation_interval": "1m",
        "tests": [{"interval": "1m", "input_series": series(name, column),
                   "promql_expr_test": [{"expr": 'ALERTS{alertstate="firing"}',
                                         "eval_time": "3h", "exp_samples": []}]}],
    }  # fmt: skip
    path = tmp_path / f"{name}.json"
    path.write_text(json.dumps(asked), encoding="utf-8")
    said = run([prometheus.program("promtool"), "test", "rules", path], check=False)
    words = said.stdout + said.stderr
    assert "FAILED" in words or "SUCCESS" in words, words
    assert "nil" in words or "SUCCESS" in words or "alertname=" in words, words
    return {*re.findall(r'alertname="(\w+)"', words)}


@pytest.fixture(scope="module")
def promtool():
    if packages.why_not():
        pytest.skip("Prometheus is Debian's, and is downloaded by root")
    return prometheus.program("promtool")


def test_every_rule_has_its_situation():
    assert list(SITUATIONS) == list(rules())


def test_promtool_takes_the_rules(promtool):
    run([promtool, "check", "rules", RULES])


@pytest.mark.parametrize("name", SITUATIONS)
def test_a_rule_fires_when_it_is_meant_and_not_when_all_is_well(promtool, tmp_path, name):
    assert fires(tmp_path, name, 1) == set()
    assert fires(tmp_path, name, 2) == {name}


def asked_by_grafana():
    """(title of the panel, expression) of the dashboard."""
    found = json.loads((FOLDER / "dashboard.json").read_text(encoding="utf-8"))
    for panel in found["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"]


def asked_by_perses():
    """The same of the one for Perses."""
    found = json.loads((FOLDER / "perses.json").read_text(encoding="utf-8"))
    for panel in found["spec"]["panels"].values():
        for query in panel["spec"]["queries"]:
            yield panel["spec"]["display"]["name"], query["spec"]["plugin"]["spec"]["query"]


def of_all(asked):
    """The variables as those of one host."""
    for title, expression in asked:
        text = expression.replace("$__rate_interval", "5m")
        yield title, text.replace("$host", ".*").replace("$guest", ".*")


def expressions():
    """(title of the panel, expression) of the dashboard, its variables as those of one host."""
    return of_all(asked_by_grafana())


@pytest.mark.parametrize("asked", [asked_by_grafana, asked_by_perses])
def test_every_expression_of_the_dashboard_is_one(promtool, tmp_path, asked):
    found = [{"record": f"panel{n}", "expr": text} for n, (_, text) in enumerate(of_all(asked()))]
    assert len(found) > 10
    path = tmp_path / "panels.json"
    path.write_text(json.dumps({"groups": [{"name": "panels", "rules": found}]}), "utf-8")
    run([promtool, "check", "rules", path])


def test_perses_asks_what_grafana_asks():
    """But what is of one moment, which is that at the end of the range."""
    found = [(title, text.replace(" @ end()", "")) for title, text in asked_by_perses()]
    assert found == [*asked_by_grafana()]
    of_now = (FOLDER / "dashboard.json").read_text(encoding="utf-8").count('"instant": true')
    assert sum(" @ end()" in text for _, text in asked_by_perses()) == of_now > 0
