"""libvirt's XML, one element per file: objects that read and edit it in place."""
