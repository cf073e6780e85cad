//! Exchanges behind the next step: the client alone, without libtorch, and which data a worker
//! reports finished. Exchanges during backward: when blocks travel, what is skipped, how they fail.
//! That the values are right is shown in `equality`; that they are the same where gradients are
//! copied to main memory first, in `staged`.

mod background;
mod chunks;
mod during;
mod parts;
mod staged;
