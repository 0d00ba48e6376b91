"""What Python sessions and notebooks use besides `experiment` and `simulate`: plans, runs read back, studies, comparisons."""
