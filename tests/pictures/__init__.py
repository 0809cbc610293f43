"""Pictures of the screen, drawn by the program itself: for the README, and every size to look at."""
