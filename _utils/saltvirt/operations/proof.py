"""What one host may delete on storage that others may have: when all of them said so."""


def elsewhere(fleet, host, places):
    """(paths that no other host uses, {path: why it must stay}) for the ``shared`` of a purge's
    plan on ``host``.

    A host that does not answer, or not to this, proves nothing.
    """
    why = {}
    others = [one for one in fleet.hosts() if one != host] if places else []
    for answer in fleet.ask(others, "virt.storage_users", {"places": places}):
        for path in places:
            words = _words(answer, path)
            if words:
                why.setdefault(path, []).append(f"{answer.host}: {words}")
    kept = {path: "; ".join(sorted(words)) for path, words in why.items()}
    return sorted(set(places) - set(why)), kept


def _words(answer, path):
    """Why one host's answer keeps a path; None when it says that nobody there uses it."""
    if not answer.ok:
        return answer.error
    if not isinstance(answer.data, dict) or path not in answer.data:
        return "it does not say who uses it"
    return answer.data[path]
