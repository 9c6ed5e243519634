source (status dirname)/ascend-runner.fish
