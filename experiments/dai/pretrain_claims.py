"""What ``pretrain`` claims."""
CLAIMS = ()
