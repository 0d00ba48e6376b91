"""fedtide: asynchronous federated learning over wireless networks."""
