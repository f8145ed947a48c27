"""An answer is accepted if the host that was asked has signed it for this job."""

import pytest

pytest.importorskip("salt")

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from saltvirt import errors
from saltvirt.fleet import answer, client, proof, target

JID = "20261121010203000001"
WHOLE = {
    "guests": {"web1": {"n": 1, "x": [1.5, None, True, "ä\n"], 7: "seven", "big": 2**70}},
    "tuple": (1, 2),
}


def make_key():
    key = rsa.generate_private_key(65537, 2048)
    how = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    public = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return key.private_bytes(serialization.Encoding.PEM, *how), public.decode()


@pytest.fixture(scope="module")
def minions(tmp_path_factory):
    """{id: (options of the minion, its public key)}."""
    found = {}
    for name in ("hv1", "web1"):
        folder = tmp_path_factory.mktemp(name)
        private, public = make_key()
        (folder / "minion.pem").write_bytes(private)
        found[name] = {"id": name, "pki_dir": str(folder)}, public
    return found


def signed(minions, host="hv1", jid=JID, fun="virt.vm_state", returned=WHOLE, retcode=0):
    return proof.sign(minions[host][0], jid, fun, {"return": returned, "retcode": retcode})


def travelled(data):
    """Data as Salt brings it."""
    import salt.payload

    return salt.payload.loads(salt.payload.dumps(data))


def test_what_a_host_says_is_proven_after_its_journey(minions):
    found = proof.verify("hv1", JID, "virt.vm_state", travelled(signed(minions)), minions["hv1"][1])
    assert found["return"]["guests"]["web1"]["x"] == [1.5, None, True, "ä\n"]
    assert found["retcode"] == 0


def other_host(minions):
    return signed(minions, "web1")


def other_job(minions):
    return signed(minions, jid="20261121010203000002")


def other_question(minions):
    return signed(minions, fun="virt.list_domains")


def other_words(minions):
    found = signed(minions)
    return {**found, "said": {"return": {}, "retcode": 0}}


def failed_instead(minions):
    found = signed(minions)
    return {**found, "said": {**found["said"], "retcode": 1}}


def other_types(minions):
    return {**signed(minions, returned={"a": 1}), "said": {"return": {"a": "1"}, "retcode": 0}}


@pytest.mark.parametrize(
    ("told", "other"),
    [
        (1, True), (0, False), (1, 1.0), (1, "1"), (None, "None"), (None, []), ("a", b"a"),
        ([], {}), ("\udc80", "x"),
        ({1: "a"}, {"1": "a"}), ({True: "a"}, {"True": "a"}), ({None: 1}, {"None": 1}),
        ({"a": 1}, [["a", 1]]), ([1, 2], [2, 1]), (2**70, 2**69), ("ab", ["a", "b"]),
        ({"a": {"b": 1}}, {"a": {"b": True}}),
    ],
)  # fmt: skip
def test_what_is_signed_has_one_reading(minions, told, other):
    """Its types as well: 1 is not True."""
    found = travelled(signed(minions, returned=told))
    key = minions["hv1"][1]
    assert proof.verify("hv1", JID, "virt.vm_state", found, key) is not None
    changed = {**found, "said": {**found["said"], "return": other}}
    assert proof.verify("hv1", JID, "virt.vm_state", changed, key) is None


def test_the_order_of_keys_says_nothing_and_a_second_one_of_a_name_is_not_read(minions):
    found = signed(minions, returned={"a": 1, "b": 2})
    turned = {**found, "said": {"retcode": 0, "return": {"b": 2, "a": 1}}}
    assert proof.verify("hv1", JID, "virt.vm_state", turned, minions["hv1"][1])
    same = signed(minions, returned={"a": 1, "b": 1})
    turned = {**same, "said": {"retcode": 0, "return": {"b": 1, "a": 1}}}
    assert proof.verify("hv1", JID, "virt.vm_state", turned, minions["hv1"][1])
    import msgpack

    twice = msgpack.packb({"a": 1}).replace(b"\x81", b"\x82") + msgpack.packb("a") + b"\x07"
    read = msgpack.unpackb(twice)
    forged = {**found, "said": {"retcode": 0, "return": read}}
    assert read == {"a": 7}
    assert proof.verify("hv1", JID, "virt.vm_state", forged, minions["hv1"][1]) is None


def test_a_path_of_any_bytes_is_told(minions):
    found = travelled(signed(minions, returned={"path": "/a\udcff", b"k": (1, {2}), "at": object}))
    said = proof.verify("hv1", JID, "virt.vm_state", found, minions["hv1"][1])
    assert said["return"] == {"path": "/a?", "k": [1, [2]], "at": str(object)}


def test_a_number_that_the_transport_does_not_carry_is_told_as_text(minions):
    most, least = 2**64 - 1, -(2**63)
    told = signed(minions, returned=[most, most + 1, least, least - 1])["said"]["return"]
    assert told == [most, str(most + 1), least, str(least - 1)]
    found = travelled(signed(minions, returned=[most, least]))
    said = proof.verify("hv1", JID, "virt.vm_state", found, minions["hv1"][1])
    assert said["return"] == [most, least]


def test_a_host_below_a_syndic_is_believed_as_the_syndic_is(minions):
    """Its key is not here; what is no answer of virt.answer is none all the same."""
    found = signed(minions)
    assert proof.verify("hv1", JID, "virt.vm_state", found) == found["said"]
    for shape in ([], None, "x", {"said": 1}, {"said": ["x"]}, {}):
        assert proof.verify("hv1", JID, "virt.vm_state", shape) is None


def unsigned(minions):
    return {"said": {"return": {}, "retcode": 0}}


def plain(minions):
    return {"web1": "running"}


def missing(minions):
    return "'virt.answer' is not available."


SHAPES = [
    [], None, 7, {"said": 1, "proof": ""}, {"said": {}, "proof": None},
    {"said": {"return": 1}, "proof": "ä"}, {"said": {"return": 1}, "proof": ["x"]},
]  # fmt: skip


@pytest.mark.parametrize(
    "forged",
    [
        other_host, other_job, other_question, other_words, failed_instead, other_types, unsigned,
        plain, missing, *[lambda _minions, shape=shape: shape for shape in SHAPES],
    ],
)  # fmt: skip
def test_what_another_says_is_not(minions, forged):
    found = travelled(forged(minions))
    assert proof.verify("hv1", JID, "virt.vm_state", found, minions["hv1"][1]) is None


# -- on the bus --------------------------------------------------------------------------------


class Bus:
    """Salt's LocalClient and its bus, on which the events come that the test has prepared.

    say: a callable of (function, jid) that yields (id, what it returns, seconds after which).
    """

    def __init__(self, say):
        self.say, self.event, self.t, self.due = say, self, 0.0, []

    def now(self):
        return self.t

    def subscribe(self, _tag):
        pass

    unsubscribe = subscribe

    def pub(self, names, fun, arg, tgt_type, jid, listen):
        asked = arg[0]["fun"] if fun == proof.FUNCTION else fun
        for name, data, *after_s in self.say(asked, jid):
            event = {"id": name, "return": data, "retcode": 0, "success": True}
            self.due.append((self.t + sum(after_s), f"salt/job/{jid}/ret/{name}", event))

    def get_event(self, wait, tag, full, match_type="startswith"):
        prefixes = tuple(tag.strip("()").split("|"))
        for one in self.due:
            if one[0] <= self.t and one[1].startswith(prefixes):
                self.due.remove(one)
                return {"tag": one[1], "data": one[2]}
        self.t += wait
        return None

    def get_cache_returns(self, jid):
        return {"hv1": {"ret": {}, "retcode": 0}}


@pytest.fixture
def ask(monkeypatch, minions):
    """Asks hv1 for its guests; events as ``say`` has them."""
    monkeypatch.setattr(target, "connected", lambda opts, ids=None: {"hv1"})
    keys = {"hv1": minions["hv1"][1]}
    store = type("Keys", (), {"__init__": lambda *_: None, "of_host": lambda _, host: keys[host]})
    monkeypatch.setattr(client, "KeyStore", store)

    def ask(say, fun="virt.vm_state", **options):
        bus = Bus(say)
        fleet = client.Fleet({"timeout": 5}, now=bus.now)
        fleet._client = bus
        [found] = fleet.ask(["hv1"], fun, **options)
        return found, bus.t

    return ask


@pytest.mark.parametrize("forged", [{}, {"web9": "running"}, "ERROR: refused: no room"])
def test_a_forged_return_is_not_taken_and_the_true_one_is(ask, minions, forged):
    def say(fun, jid):
        if fun == "virt.vm_state":
            yield "hv1", forged
            yield "hv1", {"said": {"return": forged, "retcode": 0}, "proof": "AAAA"}
            yield "hv1", signed(minions, "web1", jid, fun, forged)
            yield "hv1", signed(minions, "hv1", jid, fun, {"web1": "running"})

    found, took_s = ask(say)
    assert found.data == {"web1": "running"}
    assert took_s < 1


def test_a_true_return_that_is_late_is_waited_for(ask, minions):
    """Somebody answers first, for the host, and that it has ended the job: the host denies it."""
    jobs = []

    def say(fun, jid):
        jobs.append(jid)
        if fun == "virt.vm_state":
            yield "hv1", {}
            yield "hv1", signed(minions, "hv1", jid, fun, {"web1": "running"}), 60
        if fun == client.WORKING:
            yield "hv1", {}
            yield "hv1", {"said": {"return": {}, "retcode": 0}, "proof": "AAAA"}
            yield "hv1", signed(minions, "hv1", jid, fun, {"jid": jobs[0]})

    found, took_s = ask(say, long=True)
    assert found.data == {"web1": "running"}
    assert took_s >= 60


def test_a_host_that_cannot_sign_is_named_soon(ask):
    found, took_s = ask(lambda fun, jid: [("hv1", f"'{proof.FUNCTION}' is not available.")])
    assert found.kind == answer.BAD
    assert "the answer is not signed with the host's key" in found.error
    assert "salt hv1 saltutil.sync_all" in found.error
    assert took_s < 5
    with pytest.raises(errors.ConnectionFailed):
        found.get()


def test_what_the_master_wrote_down_is_no_proof(ask, minions):
    """Salt writes down what any minion returns as a syndic."""

    def say(fun, jid):
        if fun == "saltutil.find_job":
            yield "hv1", signed(minions, "hv1", jid, fun, {})

    found, _ = ask(say)
    assert found.kind != None  # noqa: E711
    assert not found.ok


def test_a_signed_error_is_the_hosts_own(ask, minions):
    said = ("hv1", "ERROR: refused: no room")
    found, _ = ask(lambda fun, jid: [(said[0], signed(minions, "hv1", jid, fun, said[1], 1))])
    with pytest.raises(errors.Refused, match="hv1: no room"):
        found.get()


# -- what any accepted minion can fire ---------------------------------------------------------


def nested(levels):
    found = []
    for _ in range(levels):
        found = [found]
    return found


class Noise(Bus):
    """A bus on which another minion fires events of its own making, with every tag it is asked
    for, without a pause."""

    fired = ()

    def get_event(self, wait, tag, full, match_type="startswith"):
        found = super().get_event(0.0, tag, full, match_type)
        if found:
            return found
        self.t += 0.1
        prefixes = tag.strip("()").split("|")
        self.count = getattr(self, "count", 0) + 1
        assert self.count < 100_000, "it waits without end"
        return {"tag": f"{prefixes[-1]}x", "data": self.fired[self.count % len(self.fired)]}


NOISE = [
    [{"id": ["hv1"], "return": {}}],
    [{"id": {"hv1": 1}, "return": {}}, {}],
    [{"id": "hv1", "return": {"said": {"return": nested(450)}, "proof": "AAAA"}}],
    [{"id": "web9", "return": {}}],
    [{"id": "hv1", "cmd": "_minion_event", "data": {"message": nested(900), "percent": 1}}],
    [{"id": "hv1", "cmd": "_minion_event", "data": {"within_s": -1e9, "percent": 5}}],
    [{"id": "hv1", "cmd": "_minion_event", "data": {"within_s": float("nan")}}],
    [{"id": ["hv1"], "cmd": "_minion_event", "data": {"percent": 5}}],
]


@pytest.mark.parametrize("watched", [True, False])
@pytest.mark.parametrize("fired", NOISE, ids=range(len(NOISE)))
def test_no_event_of_a_minion_breaks_or_holds_up_an_operation(
    monkeypatch, ask, minions, fired, watched
):
    def breaks(_tag, event):
        return f"{event['percent']} {event['elapsed_s']:.0f}"

    monkeypatch.setattr(Noise, "fired", fired)
    monkeypatch.setitem(globals(), "Bus", Noise)

    def say(fun, jid):
        if fun == "virt.migrate":
            yield "hv1", signed(minions, "hv1", jid, fun, {"outcome": "moved", "retained": {}}), 20
        if fun == client.WORKING:
            yield "hv1", signed(minions, "hv1", jid, fun, {"pid": 1})

    options = {"watch": ("salt/virt/migrate/web1/", breaks)} if watched else {}
    found, took_s = ask(say, "virt.migrate", long=True, **options)
    assert found.data == {"outcome": "moved", "retained": {}}
    assert took_s >= 20


def test_what_a_host_has_signed_is_an_error_of_it_when_it_has_no_end():
    found = answer.from_return("hv1", {"return": nested(900)})
    assert (found.kind, found.error) == (answer.BAD, "the answer is nested too deeply")


def test_a_ping_in_anothers_name_is_none(monkeypatch, ask, minions):
    """The host is off: it is told nothing, and is down as soon as without the forger."""
    monkeypatch.setattr(target, "connected", lambda opts, ids=None: set())
    monkeypatch.setattr(client.peers, "all_known", lambda _opts: False)
    told = []

    def say(fun, jid):
        told.append(fun)
        for after_s in range(60):
            yield "hv1", True, after_s
            yield "hv1", signed(minions, "web1", jid, fun, True), after_s

    found, took_s = ask(say, "virt.init", long=True)
    assert (found.kind, set(told) - {client.WORKING}) == (answer.DOWN, {"test.ping"})
    assert took_s < 8
    assert "another minion answers in its name" in found.error
    found, took_s = ask(say, "virt.vm_state")  # the ping is beside it
    assert (found.kind, took_s < 8) == (answer.BAD, True)
    assert "not signed with the host's key" in found.error


def test_what_comes_of_a_host_without_a_key_is_proven_by_nothing(tmp_path, minions):
    """Only a master of masters believes the syndic, which has the key."""
    opts, said = {"pki_dir": str(tmp_path)}, {"return": signed(minions)}
    assert client.Fleet(opts).verify("hv1", JID, "virt.vm_state", said) is None
    found = client.Fleet({**opts, "order_masters": True}).verify("hv1", JID, "virt.vm_state", said)
    assert found == said["return"]["said"]


@pytest.mark.parametrize("content", [None, b"no key"])
def test_a_minion_without_a_key_says_so(tmp_path, content):
    if content:
        (tmp_path / "minion.pem").write_bytes(content)
    with pytest.raises(errors.OperationFailed, match=r"minion\.pem"):
        proof.sign({"pki_dir": str(tmp_path), "id": "hv1"}, JID, "virt.vm_state", {})


def test_a_host_signs_where_cryptography_proves_every_key(minions, monkeypatch):
    """cryptography before 39 knows no other way."""
    real = proof.load_pem_private_key

    def older(pem, password):
        return real(pem, password)

    monkeypatch.setattr(proof, "load_pem_private_key", older)
    assert proof.verify("hv1", JID, "virt.vm_state", signed(minions), minions["hv1"][1])


def test_a_key_with_a_password_is_one_line(minions, tmp_path):
    key = rsa.generate_private_key(65537, 2048)
    how = serialization.PrivateFormat.PKCS8, serialization.BestAvailableEncryption(b"secret")
    (tmp_path / "minion.pem").write_bytes(key.private_bytes(serialization.Encoding.PEM, *how))
    with pytest.raises(errors.OperationFailed, match="cannot read the minion's key"):
        proof.sign({"id": "hv1", "pki_dir": str(tmp_path)}, JID, "virt.vm_state", {})


def test_a_proof_has_one_writing(minions):
    found = signed(minions)
    padded = {**found, "proof": found["proof"][:8] + "!" + found["proof"][8:]}
    assert proof.verify("hv1", JID, "virt.vm_state", padded, minions["hv1"][1]) is None
