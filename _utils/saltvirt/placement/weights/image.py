"""A host that has the image in its cache starts sooner and costs the master nothing."""


def score(host, request, policy):
    return 1.0 if request.image and request.image in host.images else 0.0
