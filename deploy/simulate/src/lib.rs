//! `tradewind simulate`.

mod agenda;
mod legs;
mod machine;
mod members;
mod outcome;
mod plan;
mod quantiles;
mod resource;
mod slowest;
mod time;
mod world;
