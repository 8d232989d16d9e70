//! What the kit has found.

use std::fmt;

/// What is wrong with a handler: what was done, what was seen, and the usual cause.
///
/// Its `Debug` text is the same as its `Display`, so that `unwrap`, `expect` and a test that returns it read well.
pub struct Failure(String);

impl Failure {
    pub(super) fn new(what: impl fmt::Display, usual_cause: &str) -> Self {
        Self(format!("{what}\nusual cause: {usual_cause}"))
    }

    /// The test itself cannot go on.
    fn of_the_test(error: impl fmt::Display) -> Self {
        Self(format!("the kit could not look at the database: {error}"))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Failure {}

impl From<sqlx::Error> for Failure {
    fn from(error: sqlx::Error) -> Self {
        Self::of_the_test(error)
    }
}

impl From<crate::Error> for Failure {
    fn from(error: crate::Error) -> Self {
        Self::of_the_test(error)
    }
}
