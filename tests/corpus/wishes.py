"""Networks and pools: the arguments of a state for an existing one, and single edits. A state lists
all settings of a network or pool, so the arguments are derived from the definition."""

from saltvirt.design import network as network_design
from saltvirt.design import pool as pool_design
from saltvirt.diff import network_changes, pool_changes
from saltvirt.errors import VirtError
from saltvirt.spec import network as network_spec
from saltvirt.spec import pool as pool_spec
from tests.corpus import same


def said(**words):
    """Only what is said."""
    return {word: value for word, value in words.items() if value not in (None, [], {})}


def _bandwidth(model):
    return {
        way: limits
        for way in ("inbound", "outbound")
        if (
            limits := said(
                **{
                    name: getattr(model, f"{way}_{name}", None)
                    for name in ("average", "peak", "burst", "floor")
                }
            )
        )
    }


def _vlan(model):
    tags = [said(id=tag.id, nativeMode=tag.native_mode) for tag in model.tags]
    return said(trunk=model.trunk, tags=tags)


def _port(model):
    names = ("interfaceid", "profileid", "managerid", "typeid", "typeidversion", "instanceid")
    return said(type=model.type, parameters=said(**{n: getattr(model, n) for n in names}))


def _dns(dns):
    return said(
        enable=dns.enable,
        forwarders=[said(domain=item.domain, addr=item.addr) for item in dns.forwarders],
        txt={item.name: item.value for item in dns.txts},
        hosts={item.ip: [name.text for name in item.hostnames] for item in dns.hosts},
        srvs=[
            said(name=item.service, protocol=item.protocol, domain=item.domain,
                 target=item.target, port=item.port, priority=item.priority, weight=item.weight)
            for item in dns.srvs
        ],
    )  # fmt: skip


_SECONDS = {"seconds": 1, "minutes": 60, "hours": 3600, None: 60}


def _lease(item):
    expiry = item.lease_expiry
    return None if expiry is None else int(expiry) * _SECONDS[item.lease_unit]


def _ip(ip):
    ranges = [said(start=r.start, end=r.end, lease=_lease(r)) for r in ip.ranges]
    hosts = [said(ip=h.ip, name=h.name, mac=h.mac, id=h.id) for h in ip.hosts]
    bootp = said(file=ip.bootp_file, server=ip.bootp_server)
    return said(
        cidr=str(ip.interface()), dhcp_ranges=ranges, hosts=hosts, bootp=bootp, tftp=ip.tftp
    )


def network_arguments(model):
    """The arguments of virt.network_defined that say what a network is."""
    forward = model.forward
    ips = {"ipv4": [], "ipv6": []}
    for ip in model.ips:
        ips[ip.family or "ipv4"].append(_ip(ip))
    nat = said(
        address=said(start=forward.nat_address_start, end=forward.nat_address_end),
        port=said(start=forward.nat_port_start, end=forward.nat_port_end),
        ipv6=forward.nat_ipv6,
    )
    addresses = [
        f"{int(a.domain or 0):04x}:{int(a.bus):02x}:{int(a.slot):02x}.{int(a.function)}"
        for a in forward.addresses
    ]
    found = said(
        bridge=model.bridge, forward=model.mode, mtu=model.mtu, stp=model.stp,
        delay=model.delay_s, dev=forward.dev, nat=nat, addresses=addresses,
        interfaces=[item.dev for item in forward.interfaces],
        physical_function=forward.physical_function,
        domain=said(name=model.domain_name, localOnly=model.domain_local_only),
        dns=_dns(model.dns), tag=_vlan(model.vlan), vport=_port(model.virtualport),
        bandwidth=_bandwidth(model.bandwidth), isolated_ports=model.isolated_ports,
        portgroups=[
            said(name=g.name, default=g.default, vlan=_vlan(g.vlan),
                 virtualport=_port(g.virtualport), bandwidth=_bandwidth(g.bandwidth))
            for g in model.portgroups
        ],
    )  # fmt: skip
    for family, configs in ips.items():
        if configs:
            found[f"{family}_config"] = configs[0]
    if "dev" in found and found.get("interfaces") == [found["dev"]]:
        del found["interfaces"]  # libvirt lists the device among the interfaces
    if "physical_function" in found:
        found.pop("addresses", None)
        found.pop("interfaces", None)
    return found


def several(model):
    """A network with more than one address of a family, which our arguments cannot say."""
    families = [ip.family or "ipv4" for ip in model.ips]
    return len(families) > len(set(families))


NETWORK_EDITS = {
    "mtu": ({"mtu": 1400}, ("mtu",)),
    "domain": ({"domain": "corpus.example"}, ("domain",)),
    "stp": ({"stp": False}, ("bridge/@stp",)),
    "dns": ({"dns": {"txt": {"corpus": "1"}}}, ("dns",)),
    "bandwidth": ({"bandwidth": {"inbound": {"average": 7}}}, ("bandwidth",)),
    "portgroups": ({"portgroups": [{"name": "corpus"}]}, ("portgroup",)),
}


def network(model, report):
    """A network: nothing when nothing else is asked, and each edit alone."""
    if model.name is None:
        return
    arguments = network_arguments(model)
    if several(model):
        report.add("more than we can say")
        return
    base = _network(model, arguments, report, "as it is")
    if base is None:
        return
    wanted, found = base
    if found:
        raise AssertionError(f"what it is changes {', '.join(change.path for change in found)}")
    if _sorted(model) != _sorted(wanted):
        raise AssertionError(f"loses: {same.difference(model.node, wanted.node)}")
    report.add("unchanged")
    for name, (more, places) in NETWORK_EDITS.items():
        done = _network(model, {**arguments, **more}, report, name)
        if done is None:
            continue
        after, found = done
        if _sorted(model, places) != _sorted(after, places):
            raise AssertionError(f"edit {name}: {same.difference(model.node, after.node)}")
        again, left = _network(after, {**arguments, **more}, report, name)
        del again
        if left:
            raise AssertionError(f"edit {name} changes {left[0].path} again")
        report.add("edits" if found else "edits that were so")


def _network(model, arguments, report, name):
    try:
        spec = network_spec.parse(model.name, **arguments)
    except VirtError as exc:
        report.refused(name, str(exc))
        return None
    wanted = network_design.build(spec, model)
    return wanted, network_changes.changes(wanted, model)


def _sorted(model, places=()):
    """A network's or pool's parts; the order of parts of different kinds means nothing."""
    places = ("ip", "connections", "forward/interface", "forward/@dev", "forward/@mode", *places)
    return _ordered(same.without(model.need(), places))


def _ordered(form):
    tag, attributes, text, children = form
    attributes = [(name, _number(value)) for name, value in attributes]
    kept = (_ordered(child) for child in children)
    kept = sorted((child for child in kept if child[0] != "source" or any(child[1:])), key=str)
    return tag, attributes, text.strip(), kept


def _number(text):
    """A number however it is written."""
    try:
        return int(text, 0)
    except ValueError:
        return text


def pool_arguments(model):
    """The arguments of virt.pool_defined that say what a pool is."""
    source = model.source
    auth = None
    if source.auth_username:
        kind = "uuid" if source.auth_uuid else "usage"
        secret = {"type": kind, "value": source.auth_uuid or source.auth_usage}
        auth = said(type=source.auth_type, username=source.auth_username, secret=secret)
    names = ("type", "name", "parent", "managed", "parent_wwnn", "parent_wwpn",
             "parent_fabric_wwn", "wwnn", "wwpn")  # fmt: skip
    adapter = source.adapter
    place = adapter.parent_address
    parent = said(
        unique_id=adapter.parent_unique_id,
        address=said(domain=place.domain, bus=place.bus, slot=place.slot, function=place.function)
        if place
        else None,
    )
    rights = model.permissions
    return said(
        ptype=model.type, target=model.path, source_dir=source.dir, source_name=source.name,
        source_initiator=source.initiator, source_format=source.format, source_auth=auth,
        source_hosts=[said(name=item.name, port=item.port) for item in source.hosts],
        source_devices=[
            said(path=item.path, part_separator=item.part_separator) for item in source.devices
        ],
        source_adapter=said(**{n: getattr(adapter, n) for n in names}, parent_address=parent),
        permissions=said(mode=rights.mode, owner=rights.owner, group=rights.group,
                         label=rights.label),
    )  # fmt: skip


def pool(model, report):
    """A pool: nothing when nothing else is asked, and nothing lost."""
    if model.name is None:
        return
    try:
        spec = pool_spec.parse(model.name, **pool_arguments(model))
    except VirtError as exc:
        report.refused("as it is", str(exc))
        return
    wanted = pool_design.build(spec, model)
    found = pool_changes.changes(wanted, model)
    if [change for change in found if model.path or change.path != "path"]:
        raise AssertionError(f"what it is changes {', '.join(change.path for change in found)}")
    sizes = ("capacity", "allocation", "available", "target/path", "target/permissions",
             "source/device/freeExtent")  # fmt: skip
    if model.type in ("logical", "zfs"):
        sizes = (*sizes, "source/name")  # the pool's own
    if _sorted(model, sizes) != _sorted(wanted, sizes):
        raise AssertionError(f"loses: {same.difference(model.node, wanted.node)}")
    report.add("unchanged")
