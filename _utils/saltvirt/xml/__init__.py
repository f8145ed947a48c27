"""libvirt's XML, one element a file: objects that read and edit it in place."""
