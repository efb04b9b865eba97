"""From raw input to actions: repair, segmentation and the accounting of every event."""
