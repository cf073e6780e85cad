//! The page as a person sees it.

mod browser;
mod real;
