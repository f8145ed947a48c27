"""The conditions after each verb, evaluated on the answers of hosts and guest: pure."""

from tests.life.world import BESIDE

# the small guest's kernel keeps some of the memory for itself
MEMORY_SHARE = 0.5


def hosts(seen, guest):
    """One definition on one host, and nothing that no guest needs, anywhere."""
    wrong = []
    homes = {name: [host for host in seen if name in seen[host]["domains"]]
             for name in {n for host in seen.values() for n in host["domains"]}}  # fmt: skip
    if homes.pop(guest.name, []) != [guest.host]:
        where = [host for host in seen if guest.name in seen[host]["domains"]]
        wrong.append(f"{guest.name} is defined on {where}, expected {guest.host} alone")
    wrong += [f"{name} is defined on {homes[name]}" for name in sorted(homes)]
    for host, has in seen.items():
        wrong += _host(host, has, {guest.name} if host == guest.host else set())
    return wrong + _files(seen, guest.detached)


def _host(host, has, names):
    active = [n for n, d in has["domains"].items() if d["state"] in ("running", "paused")]
    wrong = [f"{host}: {tool} still runs" for tool in has["tools"]]
    if sorted(active) != has["emulators"]:
        wrong.append(f"{host}: QEMU runs {has['emulators']}, libvirt says {active}")
    wrong += [f"{host}: {path} changed" for path in has["changed"]]
    wrong += [f"{host}: {loop} is attached" for loop in has["loops"] if "/srv/" in loop]
    for name in names & set(has["domains"]):
        macs = has["domains"][name]["macs"]
        if len(set(macs)) != len(macs):
            wrong.append(f"{name} has one MAC twice: {macs}")
    return wrong


def _files(seen, detached):
    """Files that belong to no domain. Shared storage is listed on each host."""
    needed = {path for has in seen.values() for d in has["domains"].values() for path in d["files"]}
    needed |= set(detached)
    wrong = []
    for host, has in seen.items():
        left = [p for p in has["files"] if p not in needed and not any(b in p for b in BESIDE)]
        wrong += [f"{host}: {path} belongs to no guest" for path in left]
        gone = [p for d in has["domains"].values() for p in d["files"] if p.startswith("/srv/")]
        wrong += [f"{host}: {p} is missing" for p in gone if p not in set(has["files"])]
    return wrong


def same_system(seen, before):
    """Nothing of the host's firmware and mounts went or came."""
    wrong = []
    for host, has in seen.items():
        for key in ("firmware", "mounts"):
            lost = sorted(set(before[host][key]) - set(has[key]))
            new = sorted(set(has[key]) - set(before[host][key]))
            wrong += [f"{host}: {path} is gone ({key})" for path in lost]
            wrong += [f"{host}: {path} is new ({key})" for path in new]
    return wrong


def answers(guest, domain, answer):
    """The guest runs, has an address on each interface, and its disks have their records."""
    if "silent" in answer:
        return [f"{guest.name} does not answer: {answer['silent']}"]
    wrong = []
    if answer["uuid"].lower() != domain["uuid"]:
        wrong.append(f"another machine answers: {answer['uuid']} instead of {domain['uuid']}")
    if sorted(answer["nics"]) != sorted(domain["macs"]):
        wrong.append(f"{guest.name} has interfaces {answer['nics']}, not {domain['macs']}")
    if len(answer["nics"]) != len(guest.interfaces):
        wrong.append(f"{guest.name} has {len(answer['nics'])} interfaces: {guest.interfaces}")
    records = [[int(n) for n in disk["records"]] for disk in answer["disks"].values()]
    if records != list(guest.records.values()):
        wrong.append(f"the disks of {guest.name} hold {records}, not {guest.records}")
    sizes = [disk["sectors"] // 2048 for disk in answer["disks"].values()]
    if sizes != list(guest.disks.values()):
        wrong.append(f"the disks of {guest.name} have {sizes} MiB, not {guest.disks}")
    if answer["firmware"] != guest.firmware:
        wrong.append(f"{guest.name} booted by {answer['firmware']}, not {guest.firmware}")
    return wrong + _power(guest, answer)


def _power(guest, answer):
    """CPUs and memory that a guest has which was started after the last change of these."""
    memory_mib = int(answer["memory_kib"]) // 1024
    if int(answer["cpus"]) != guest.cpus:
        return [f"{guest.name} has {answer['cpus']} CPUs, not {guest.cpus}"]
    if not MEMORY_SHARE * guest.memory_mib < memory_mib <= guest.memory_mib:
        return [f"{guest.name} has {memory_mib} MiB of memory, not {guest.memory_mib}"]
    return []


def unchanged(what, answer):
    """A repeated request changed nothing. answer: of virt.update, or of a state."""
    changes = answer.get("changes") if isinstance(answer, dict) else answer
    if changes or changes is None:
        return [f"{what} again, and something changed: {answer}"]
    return []
