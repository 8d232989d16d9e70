//! What the examples share: deliveries, and the summary that proves how often each had its effect.

mod delivery;
pub mod http;
pub mod money;
pub mod payer;

use std::process::ExitCode;

use anyhow::{Result, ensure};

pub use delivery::Delivery;

/// Ends an example: an error is printed on one line.
#[must_use]
pub fn exit_code(result: Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

// Compiles and runs the README's code.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
pub mod readme {}

/// How many deliveries ended in which way. A delivery counts once, by its final outcome.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// They did the work.
    pub processed: usize,
    /// An earlier delivery had done it.
    pub duplicates: usize,
}

impl Tally {
    /// Prints the summary. `effects` is what the database has, and `counted_by` says how it was counted.
    ///
    /// # Errors
    ///
    /// If the numbers do not prove that every distinct id had its effect once.
    pub fn conclude(self, deliveries: &[Delivery], effects: usize, counted_by: &str) -> Result<()> {
        let distinct = Delivery::distinct(deliveries);
        println!();
        println!("{:>6} deliveries", deliveries.len());
        println!("{:>6} processed", self.processed);
        println!("{:>6} duplicates", self.duplicates);
        println!("{effects:>6} effects, counted by {counted_by}");
        println!("{distinct:>6} distinct ids");
        ensure!(effects == distinct, "{effects} effects for {distinct} distinct ids");
        ensure!(self.processed == distinct, "{} messages processed for {distinct} distinct ids", self.processed);
        Ok(())
    }
}
