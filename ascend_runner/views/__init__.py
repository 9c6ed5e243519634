"""What people look at: the failure screen, the page, the lines on the console. See README.md."""
