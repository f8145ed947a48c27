"""High availability: what agents and masters tell each other, as frames over mutual TLS.

Only agents listen. An agent connects to each of its peers, a master to each agent, so no port is
open on a master. Who speaks is the name in the certificate that the cloud's own authority signed.
``talk.Talk`` is what both use; docs/ha.md.
"""
