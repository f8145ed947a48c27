"""Runs on the lab's master: asks a small guest over HTTP what it is, and prints it as JSON.

Its standard input is JSON: `macs` (the interfaces that must have an address and answer),
`record` (a number to append to each disk first, or null) and `timeout_s`.
"""

import json
import sys
import time
import urllib.request

LEASES = "/run/lab-dnsmasq.leases"
PAUSE_S = 0.3


def leases():
    """Read the DHCP server's leases: MAC to address."""
    with open(LEASES, encoding="ascii") as listed:
        return {line.split()[1]: line.split()[2] for line in listed}


def fetch(address, query=""):
    """Return the guest's lines, or None if it does not answer completely."""
    try:
        url = f"http://{address}/cgi-bin/info{query}"
        with urllib.request.urlopen(url, timeout=20) as answer:
            lines = answer.read().decode().splitlines()
    except OSError:
        return None
    return lines if lines and lines[-1] == "end" else None


def parsed(lines):
    """Turn the guest's lines into a dict."""
    guest = {"disks": {}, "nics": {}}
    for line in lines[:-1]:
        key, *words = line.split()
        if key == "nic":
            guest["nics"][words[0]] = words[1] if len(words) > 1 else None
        elif key == "disk":
            guest["disks"][words[0]] = {"sectors": int(words[1]), "records": words[2:]}
        else:
            guest[key] = words[0] if words else ""
    return guest


def answers(macs):
    """Ask the guest by each of its addresses: MAC to lines, of those that answer."""
    addresses = leases()
    asked = {mac: fetch(addresses[mac]) for mac in macs if mac in addresses}
    return {mac: lines for mac, lines in asked.items() if lines}


def main():
    given = json.load(sys.stdin)
    end = time.monotonic() + given["timeout_s"]
    while True:
        lines = answers(given["macs"])
        guests = {mac: parsed(text) for mac, text in lines.items()}
        missing = sorted(set(given["macs"]) - set(guests))
        addressed = guests and all(all(g["nics"].values()) for g in guests.values())
        if not missing and addressed:
            break
        if time.monotonic() > end:
            print(json.dumps({"silent": missing or ["an interface without an address"]}))
            return
        time.sleep(PAUSE_S)
    guest = next(iter(guests.values()))
    if given["record"] is not None:
        written = fetch(leases()[given["macs"][0]], f"?{given['record']}")
        guest = parsed(written) if written else {"silent": ["writing a record"]}
    print(json.dumps(guest))


if __name__ == "__main__":
    main()
