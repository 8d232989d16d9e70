//! Procedures, step by step.

#[doc = include_str!("../docs/adoption.md")]
pub mod adoption {}
