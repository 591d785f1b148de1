"""The state that Aliquot keeps of a host: the journal, the record for the next boot, and the current change."""
