"""What is watched and how it is cabled; what nodes say and how a moment looks."""
