"""Tests of the observation: clock, frames, canvas, accessibility trees and targets."""
