//! Runs models compiled by mcc: no allocation, no global state, no dependency.

#![no_std]

pub mod abi;

/// The C header that every compiled model's own header includes.
pub const HEADER: &str = include_str!("../include/mcc.h");
