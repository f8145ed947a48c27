"""The guest's CPU against the target's."""


def reasons(guest, host, request):
    if guest["active"] and host["cpu_error"]:
        yield f"the guest's CPU cannot run on {host['hostname']}: {host['cpu_error']}"
