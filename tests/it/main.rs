//! What crosses processes, and what needs a world around it: one binary.

/// The simulated world.
mod sim;
mod survey;
/// What a machine can keep of the house rules.
mod tidy;
