"""What Aliquot keeps of a host: journal, record for the next boot, the change that runs now."""
