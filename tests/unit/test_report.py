from saltvirt.operations.report import Report


class Bus:
    def __init__(self):
        self.events = []

    def tell(self, tag, data):
        self.events.append((tag, data))


def test_a_step_is_a_line_and_an_event():
    bus, lines = Bus(), []
    Report(bus, "web1", "init", lines.append).step("placed", "on hv1", host="hv1")
    assert lines == ["on hv1"]
    assert bus.events == [
        ("salt/virt/web1/init/placed", {"guest": "web1", "message": "on hv1", "host": "hv1"})
    ]


def test_progress_is_shown_for_each_tenth():
    lines = []
    report = Report(Bus(), "web1", "migrate", lines.append)
    for percent in range(101):
        report.progress(percent, f"{percent} %")
    assert lines == [f"{tenth} %" for tenth in range(0, 101, 10)]
