"""What `make wheels` is made of."""
