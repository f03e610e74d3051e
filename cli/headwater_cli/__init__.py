"""The `headwater` command: it starts things, shows things and says what is wrong. It computes nothing."""
