"""What the eye saw: the video's clock, the frame and the tree before each action, the target."""
