"""A host that has the image in its cache starts sooner and costs the master nothing."""


def score(host, request, policy):
    if request.by_profile and host.needs:
        return 1.0 if host.needs.image_here else 0.0
    return 1.0 if request.image and request.image in host.images else 0.0
