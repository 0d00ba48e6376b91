"""How an update becomes bits and back."""
