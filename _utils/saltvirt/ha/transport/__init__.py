"""High availability: messages between agents and masters, as frames over mutual TLS.

Only agents listen. An agent connects to each of its peers, and a master to each agent, so no port
is open on a master. The common name of the certificate, signed by the cloud's CA, identifies the
sender. Agents and masters use ``PeerNetwork``; see docs/explanation/ha-design.md.
"""
