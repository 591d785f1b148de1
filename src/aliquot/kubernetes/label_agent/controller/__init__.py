"""The label agents' part of the cluster's controller: settings, node labels, hints to pods that wait."""
