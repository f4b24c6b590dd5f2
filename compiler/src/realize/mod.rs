//! Carries out decisions.

pub mod schedule;
