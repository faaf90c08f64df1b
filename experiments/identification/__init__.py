"""Which algorithm is it: how often ``icl_lab.identify`` is wrong, and what it says of networks of this laboratory."""
