"""What a master makes of the words of its own verbs."""

from saltvirt.metricsmaster import read

STATUS = {
    "configured": True, "armed": False, "problems": ["hv2 is fencing"],
    "engine": {"running": True, "why": "", "leading": False, "leader": "other", "settled": True},
    "hosts": {"hv1": {"state": "up", "unplaced": ["a", "b"]},
              "hv2": {"state": "fencing", "unplaced": []}},
    "guests": {"a": {"state": "blocked"}},
}  # fmt: skip


def samples(families):
    return {
        (family.name, *sorted(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }


def test_high_availability():
    found = samples(read.of_ha(STATUS))
    assert found["ha_armed",] == 0
    assert (found["ha_leading",], found["ha_led",], found["ha_problems",]) == (0, 1, 1)
    assert found["ha_host_state", ("host", "hv2"), ("state", "fencing")] == 1
    assert found["ha_host_unplaced_guests", ("host", "hv1")] == 2
    assert found["ha_guest_state", ("guest", "a"), ("state", "blocked")] == 1
    assert read.of_ha({"configured": False}) == []


def test_backups():
    def backup(when, wrong=None):
        return {"ident": "1", "guest": "a", "when": when, "wrong": wrong, "stored_bytes": 10}

    said = {
        "vault": [backup("2026-11-23T10:00:00Z"), backup("2026-11-22T10:00:00+00:00"),
                  backup("2026-11-24T10:00:00Z", "it is cut"), backup(None, "no record"),
                  backup("9999-01-01T00:00:00Z"), backup("0001-01-01T00:00:00+23:00"),
                  backup("yesterday"), backup([7])],
        "unreachable": {"far": "it is down"}, "retcode": 1,
    }  # fmt: skip
    found = samples(read.of_backups(said, 1795600000))
    assert found["backup_last_timestamp_seconds", ("guest", "a"), ("target", "vault")] == 1795428000
    assert found["backup_wrong", ("target", "vault")] == 2
    assert found["backup_stored_bytes", ("target", "vault")] == 80
    assert found["backup_target_answers", ("target", "vault")] == 1
    assert found["backup_target_answers", ("target", "far")] == 0
