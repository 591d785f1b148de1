"""libvirt: device XML for VMs, rules checked before a device is attached, persistent mdevs, and holders of devices.
``domain_xml``, ``choose``, ``check``, ``attach`` and ``nodedev`` compute. Only ``binding`` (libvirt-python) and
``virsh`` connect to a daemon.
"""
