"""The kernel's side of sharing GPUs with virtual machines, over the ``Files`` port: virtual functions, vGPUs in
three worlds, passthrough.
"""
