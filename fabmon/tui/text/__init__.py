"""What the screen says, as lines: pure functions of a scene, a palette and a width."""
