from saltvirt.host.node import maintenance


def test_mark_and_clear(tmp_path):
    mark = tmp_path / "deep" / "maintenance.json"
    assert maintenance.read(mark) is None
    maintenance.write("disks", ["b", "a"], mark)
    assert maintenance.read(mark) == {"reason": "disks", "guests": ["a", "b"]}
    maintenance.write("memory", path=mark)
    assert maintenance.read(mark) == {"reason": "memory", "guests": []}
    maintenance.clear(mark)
    maintenance.clear(mark)
    assert maintenance.read(mark) is None
