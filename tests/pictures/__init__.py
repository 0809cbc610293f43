"""Pictures of the screen, drawn by the program: for the README, and every size to look at."""
