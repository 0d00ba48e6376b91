"""What the server carries from one aggregation to the next, and what it does with one."""
