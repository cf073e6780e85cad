//! Histories that are right pass, histories that are wrong are refused.

/// What a small parameter server, which is right, does under random concurrency.
mod model;
/// Histories written by hand, each with one thing wrong.
mod planted;
/// Histories of the model, and random changes of them.
mod random;
