"""Label agents' part of the cluster controller: settings, node labels, and hints for pending pods."""
