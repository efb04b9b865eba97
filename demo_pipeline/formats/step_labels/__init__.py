"""Labels of steps and of outcomes, as TRL reads them for reward models."""
