"""The kernel's side of sharing GPUs with VMs, over the ``Files`` port: virtual functions, vGPUs in three frameworks,
and passthrough.
"""
