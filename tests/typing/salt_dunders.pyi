"""What Salt's loader puts into the modules that it loads."""

from collections.abc import Callable
from typing import Any

# the functions of the kind that the module may call: execution modules, for runners runners
__salt__: dict[str, Callable[..., Any]]
__states__: dict[str, Callable[..., Any]]
__opts__: dict[str, Any]
__grains__: dict[str, Any]
__context__: dict[str, Any]
__env__: str
