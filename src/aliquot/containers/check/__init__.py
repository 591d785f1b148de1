"""Can containers get MIG devices on this machine? ``gather`` looks, ``judge`` says what is wrong and what to type."""
