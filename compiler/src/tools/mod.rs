//! The command and what it is made of.

pub mod exec;
