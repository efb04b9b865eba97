"""The OSWorld-Desktopd dataset: trajectories with screenshots, UI trees and actions."""
