"""How arrived updates become the next model."""
