"""The hand-written half of opwright: what its generated classes of ops stand on."""
