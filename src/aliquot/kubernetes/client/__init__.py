"""Kubernetes API client that decodes into narrow structs. Only this package imports the HTTP library.

Aliquot has its own client because no library that is small enough for a node agent keeps bookmarks and lists again
after a 410. Importing it takes 190 ms of CPU and 19 MiB (PSS). The same for other clients: lightkube 170 ms and
21 MiB, kr8s 290 ms and 31 MiB, kubernetes-asyncio 610 ms and 60 MiB.
"""
