"""What is put into a cluster, as plain objects; ``deploy/kubernetes`` and the chart are written from here."""
