"""`ascend-runner --check`: reports what would prevent a job from running on this node, and starts nothing."""
