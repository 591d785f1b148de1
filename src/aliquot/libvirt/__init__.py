"""libvirt: device XML for virtual machines, rules checked before a device is attached, persistent mdevs, and who holds
what. ``domain_xml``, ``choose``, ``check``, ``attach`` and ``nodedev`` compute; only ``binding`` (libvirt-python) and
``virsh`` speak to a daemon.
"""
