"""Definitions of Salt 3007, passed to our ``update`` and states with the same arguments: nothing
changes."""

UPDATES = {
    "virt.init": ("virt.update", {"nic": "nic_profile", "disk": "disk_profile"}),
    "virt.network_define": ("virt.network_update", {}),
    "virt.pool_define": ("virt.pool_update", {}),
}
STATES = {
    "virt.init": "state:virt.defined",
    "virt.network_define": "state:virt.network_defined",
    "virt.pool_define": "state:virt.pool_defined",
}
KINDS = {"virt.init": "domains", "virt.network_define": "networks", "virt.pool_define": "pools"}
STEPS = {"domains": "define", "networks": "network", "pools": "pool"}
# of making alone
NOT_UPDATED = ("start", "seed", "os_type", "arch", "hypervisor", "transient", "autostart")
SOURCE = "source_"


def rows(table, answers):
    """A row of update and one of a state for each definition that Salt 3007 made."""
    found = []
    for row in table:
        kind = KINDS.get(row["function"])
        made = answers[row["id"]].get("changed", {}).get(kind) if kind else None
        for name, thing in (made or {}).items():
            if not thing or not thing["persistent"]:
                continue
            # files first: a pool knows what lies there when it starts
            setup = [*files(answers[row["id"]]), *row["setup"], step(kind, thing)]
            if thing["autostart"]:
                setup.append(["autostart", name, kind])
            update, renamed = UPDATES[row["function"]]
            asked = {renamed.get(key, key): value for key, value in row["kwargs"].items()
                     if key not in NOT_UPDATED}  # fmt: skip
            number = row["id"].rpartition(" ")[2]
            same = {"host": row["host"], "setup": setup}
            found.append({**same, "id": f"{update} of {row['function']} {number}",
                          "function": f"handed:{update}", "args": [name, *row["args"][1:]],
                          "kwargs": {**asked, "test": True}})  # fmt: skip
            if kind != "pools":
                # the state of a pool takes its source as one dictionary
                found.append({**same, "id": f"{STATES[row['function']]} of {number}",
                              "function": f"handed:{STATES[row['function']]}",
                              "args": [name, *row["args"][1:]],
                              "kwargs": {**asked, **started(row), "__test__": True}})  # fmt: skip
    return found


def started(row):
    """What a row says of its start with the host, which a state asks for and an update does not."""
    return {key: value for key, value in row["kwargs"].items() if key == "autostart"}


def files(answer):
    """The steps that make the files that were made with it, of the same size and format."""
    return [["image", path, *about] for path, about in answer.get("images", {}).items()]


def step(kind, thing):
    """The step that defines it as it was."""
    given = [STEPS[kind], thing["xml"]]
    return given if kind == "domains" else [*given, thing["active"]]


def wrong(answer):
    """What an update or a state would change, for a guest each part of it; or why it refuses."""
    if "error" in answer:
        return [f"refused: {answer['error'][1]}"]
    given = answer["return"]
    if isinstance(given, bool):
        return ["changes"] if given else []
    if "definition" in given:
        parts = [change["path"] for change in given["changes"]]
        return sorted(f"changes: {part}" for part in parts) or ["changes"] * given["definition"]
    if given["result"] is False:
        return [f"refused: {given['comment']}"]
    parts = [part for thing in given["changes"].values() if isinstance(thing, dict)
             for part in thing.get("definition") or ()]  # fmt: skip
    changes = bool(given["changes"] or given["result"] is None)
    return sorted(f"changes: {part}" for part in parts) or ["changes"] * changes
