"""The dashboard for Perses, made of the one for Grafana: ``make docs``.

What Grafana has and Perses has not is replaced by the nearest: a row is a group of panels, a bar
gauge a bar chart. What Grafana asks for one moment alone is asked for the end of the range: Perses
asks for all of the range and takes the last value, which of what is gone is none of now.
"""

import json
import re

from tests.lab.paths import REPOSITORY

FOLDER = REPOSITORY / "formulas/virt/monitoring"
GRAFANA, PERSES = FOLDER / "dashboard.json", FOLDER / "perses.json"
KINDS = {"timeseries": "TimeSeriesChart", "stat": "StatChart", "bargauge": "BarChart"}
UNITS = {
    "short": {"unit": "decimal", "shortValues": True},
    "bytes": {"unit": "bytes", "shortValues": True},
    "Bps": {"unit": "bytes/sec"},
    "s": {"unit": "seconds"},
    "percentunit": {"unit": "percent-decimal"},
}
# a number alone is neither good nor bad: Grafana is told the same
BLUE = "#3274d9"
_LABEL_VALUES = re.compile(r"label_values\((?P<series>.+), (?P<label>\w+)\)")
_SERIES = re.compile(r"saltvirt_\w+(?:\{[^}]*\})?")


def dashboard():
    """The dashboard for Perses, as the text of its file."""
    found = json.loads(GRAFANA.read_text(encoding="utf-8"))
    panels = [panel for panel in found["panels"] if panel["type"] != "row"]
    spec = {
        "display": {"name": found["title"]},
        "duration": found["time"]["from"].removeprefix("now-"),
        "refreshInterval": found["refresh"],
        "variables": [
            _variable(one) for one in found["templating"]["list"] if one["type"] == "query"
        ],
        "panels": {_key(panel): _panel(panel) for panel in panels},
        "layouts": _groups(found["panels"]),
    }
    made = {"kind": "Dashboard", "metadata": {"name": found["uid"]}, "spec": spec}
    return f"{json.dumps(made, indent=1)}\n"


def _key(panel):
    return f"panel{panel['id']}"


def _variable(one):
    series, label = _LABEL_VALUES.fullmatch(one["definition"]).group("series", "label")
    plugin = {
        "kind": "PrometheusLabelValuesVariable",
        "spec": {"labelName": label, "matchers": [series]},
    }
    return {
        "kind": "ListVariable",
        "spec": {
            "name": one["name"],
            "display": {"name": one["name"]},
            "allowMultiple": one["multi"],
            "allowAllValue": one["includeAll"],
            "customAllValue": one["allValue"],
            "defaultValue": "$__all",
            "sort": "alphabetical-asc",
            "plugin": plugin,
        },
    }


def _panel(panel):
    kind, unit = KINDS[panel["type"]], UNITS[panel["fieldConfig"]["defaults"]["unit"]]
    plugin = {"kind": kind, "spec": _options(kind, unit)}
    return {
        "kind": "Panel",
        "spec": {
            "display": {"name": panel["title"]},
            "plugin": plugin,
            "queries": [_query(target) for target in panel["targets"]],
        },
    }


def _options(kind, unit):
    if kind == "TimeSeriesChart":
        return {"legend": {"position": "bottom", "mode": "list"}, "yAxis": {"format": unit}}
    found = {"calculation": "last-number", "format": unit}
    return {**found, "thresholds": {"defaultColor": BLUE}} if kind == "StatChart" else found


def _query(target):
    asked = target["expr"]
    if target.get("instant"):
        asked = _SERIES.sub(lambda series: f"{series[0]} @ end()", asked)
    spec = {"query": asked, "seriesNameFormat": target["legendFormat"]}
    plugin = {"kind": "PrometheusTimeSeriesQuery", "spec": spec}
    return {"kind": "TimeSeriesQuery", "spec": {"plugin": plugin}}


def _groups(panels):
    """Each row with what is below it."""
    groups = []
    for panel in panels:
        at = panel["gridPos"]
        if panel["type"] == "row":
            top, items = at["y"] + at["h"], []
            display = {"title": panel["title"], "collapse": {"open": not panel["collapsed"]}}
            groups.append({"kind": "Grid", "spec": {"display": display, "items": items}})
        else:
            place = {"x": at["x"], "y": at["y"] - top, "width": at["w"], "height": at["h"]}
            items.append({**place, "content": {"$ref": f"#/spec/panels/{_key(panel)}"}})
    return groups
