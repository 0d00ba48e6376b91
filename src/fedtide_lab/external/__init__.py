"""fedtide beside numbers that others published: their experiments set up here, and the models and splits that these need."""
