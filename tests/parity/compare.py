"""The differences between two answers to one row, as short texts that a line of the document
names."""

import json
import re
from xml.etree import ElementTree

UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
MAC = re.compile(r"(?:[0-9a-f]{2}:){5}[0-9a-f]{2}", re.I)
TIME = re.compile(r"\d{4}-?\d\d-?\d\d[T -]?\d\d:?\d\d:?\d\d\w*")
# what the host counts by itself
COUNTED = {
    *("cputime", "cputime_percent", "free_memory", "freemem", "expiration_time", "mem_used"),
    *(f"{way}_{what}" for way in ("rx", "tx") for what in ("bytes", "packets", "errs", "drop")),
    *("errs", "rd_bytes", "rd_req", "wr_bytes", "wr_req"),
    *("allocation", "free", "disk size", "physical"),
}
# what libvirt lists in the order of a table with a seed, which Salt 3007 gives as it comes:
# compared by name
UNORDERED = ("virt.list_snapshots",)
# what a file system says of the moment
MOMENT = {"volume": {"timestamps"}, "pool": {"allocation", "available"}}


def differences(row, theirs, ours):
    """The sorted texts: where, and for an error with what it says."""
    if "error" in theirs and "error" in ours:
        return [] if "SaltException" in ours["error"][3] else [f"traceback: {ours['error'][0]}"]
    if "error" in ours:
        return [f"refused: {ours['error'][1]}"]
    if "error" in theirs:
        return [f"answered: {theirs['error'][1]}"]
    if "died" in theirs or "died" in ours:
        return [] if theirs.get("died") == ours.get("died") else ["died"]
    known = json.dumps(row)
    found = set()
    returns = [settled(side["return"], known) for side in (theirs, ours)]
    if row["function"] in UNORDERED:
        returns = [by_name(one) for one in returns]
    values(*returns, "return", found)
    values(theirs["files"], ours["files"], "files", found)
    for kind in sorted({*theirs["changed"], *ours["changed"]}):
        mine, its = (side["changed"].get(kind, {}) for side in (ours, theirs))
        for name in sorted({*mine, *its}):
            things(kind, its.get(name), mine.get(name), known, found)
    return sorted(found)


def by_name(listings):
    """Lists by a name, each sorted by the names of what is in it."""
    return {
        key: sorted(one, key=lambda thing: thing["name"]) if isinstance(one, list) else one
        for key, one in listings.items()
    }


def settled(value, known):
    """A value without what is random: identifiers and times that the row did not name."""
    if isinstance(value, dict):
        return {
            settled(key, known): "COUNTED" if is_count(key, one) else settled(one, known)
            for key, one in value.items()
        }
    if isinstance(value, list):
        return [settled(one, known) for one in value]
    if not isinstance(value, str):
        return value
    if value.lstrip().startswith("<"):
        return {"xml": tree(value, known)}
    for kind in (UUID, MAC, TIME):
        value = kind.sub(lambda m: m[0] if m[0].lower() in known.lower() else "RANDOM", value)
    return value


def is_count(key, value):
    """Is it a number that the host goes on counting?"""
    return key in COUNTED and isinstance(value, (int, float))


def things(kind, its, mine, known, found):
    """One guest, network or pool of both sides; None where it is gone or never was."""
    if its is None or mine is None:
        if its is not mine:
            found.add(f"{kind}: only {'here' if its is None else 'Salt 3007'}")
        return
    for key in its:
        if key == "xml":
            values({"xml": tree(its[key], known)}, {"xml": tree(mine[key], known)}, kind, found)
        elif key == "volumes":
            for name in sorted({*its[key], *mine[key]}):
                one, other = its[key].get(name), mine[key].get(name)
                if one is None or other is None:
                    found.add(f"volumes: only {'here' if one is None else 'Salt 3007'}")
                else:
                    xml = {"xml": tree(one, known)}, {"xml": tree(other, known)}
                    values(*xml, "volumes", found)
        elif its[key] != mine[key]:
            found.add(f"{kind}.{key}")


def tree(xml, known):
    """An XML text as nested dictionaries: attributes with @, children in lists by their tag."""

    def walk(element):
        made = {f"@{key}": settled(value, known) for key, value in element.attrib.items()}
        for child in element:
            # what stands in a namespace is a record of ours
            tag = re.sub(r"\{.*\}", "saltvirt:", child.tag)
            if tag not in passing:
                made.setdefault(tag, []).append(walk(child))
        text = (element.text or "").strip()
        if text:
            made["text"] = settled(text, known) if "<" not in text else text
        return made

    root = ElementTree.fromstring(xml)
    passing = MOMENT.get(root.tag, ())
    return {root.tag: walk(root)}


def values(its, mine, where, found):
    """Adds to found where two values differ; a place in a list has no number."""
    if isinstance(its, dict) and isinstance(mine, dict):
        for key in {*its, *mine}:
            place = f"{where}/{key}" if key != "text" else where
            if key not in mine:
                found.add(f"{place}: only Salt 3007")
            elif key not in its:
                found.add(f"{place}: only here")
            else:
                values(its[key], mine[key], place, found)
    elif isinstance(its, list) and isinstance(mine, list):
        for one, other in zip(its, mine, strict=False):
            values(one, other, where, found)
        if len(its) > len(mine):
            found.add(f"{where}: more in Salt 3007")
        elif len(its) < len(mine):
            found.add(f"{where}: more here")
    elif its != mine or isinstance(its, bool) != isinstance(mine, bool):
        found.add(where)
