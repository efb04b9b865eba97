"""Chat messages with images and tool calls."""
