"""High availability on the master: the operators' requests, the engine, the fences. The pure
package ``ha.model`` decides. Only adapters import this package: docs/how-to/ha.md."""
