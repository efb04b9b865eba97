"""What the eye saw: clock, frames, canvas, trees, targets."""
