//! Exchanges behind the next step: the client alone, without libtorch, and which data a worker
//! reports finished. That the values are right is shown in `equality`.

mod background;
mod chunks;
