//! Which errors of a body let it run again.

use std::error::Error as StdError;

use crate::Error;
use crate::database::{self, Failure};

/// An error type of the application's that says itself whether running the handler again may succeed.
///
/// `retry` looks through `std::error::Error::source` of every error type that has it, of `anyhow::Error`, and of boxed errors. Only a
/// type that is none of these, or that hides the database's error, implements this.
///
/// ```
/// use idempotent_runtime::Transient;
///
/// enum Problem { Busy, Refused(String) }
///
/// impl Transient for Problem {
///     fn is_transient(&self) -> bool {
///         matches!(self, Self::Busy)
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`retry` cannot tell of `{Self}` whether running the handler again may succeed",
    label = "neither a `std::error::Error` nor `Transient`",
    note = "implement `std::error::Error` for it, with the database's error as its `source()`, or `idempotent_runtime::Transient`"
)]
pub trait Transient {
    /// Whether running the handler again, in a new transaction, may succeed.
    fn is_transient(&self) -> bool;
}

/// Whether the database's error in the chain of sources is a passing one. Never after a commit whose fate is unknown: the
/// effect may be there.
fn is_transient(error: &(dyn StdError + 'static)) -> bool {
    if let Some(own) = Error::find(error) {
        return own.is_transient() && !matches!(own, Error::CommitUnknown(_));
    }
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(error) = error.downcast_ref::<sqlx::Error>() {
            return database::failure(error) == Failure::Transient;
        }
        next = error.source();
    }
    false
}

/// Asks an error of a type that the macro does not know: the first of the following traits that fits is the one that the
/// compiler finds, since each wants one reference less.
#[derive(Debug)]
#[expect(clippy::exhaustive_structs, reason = "the macro builds it")]
pub struct Probe<'e, E>(pub &'e E);

/// It says so itself.
pub trait OwnError {
    /// Whether it is transient.
    fn is_transient(&self) -> bool;
}

impl<E: Transient> OwnError for &&&&Probe<'_, E> {
    fn is_transient(&self) -> bool {
        self.0.is_transient()
    }
}

/// An error.
pub trait AnyError {
    /// Whether it is transient.
    fn is_transient(&self) -> bool;
}

impl<E: StdError + 'static> AnyError for &&&Probe<'_, E> {
    fn is_transient(&self) -> bool {
        is_transient(self.0)
    }
}

/// `anyhow::Error`, and an error in a box that can be sent.
pub trait AsSharedError {
    /// Whether it is transient.
    fn is_transient(&self) -> bool;
}

impl<E: AsRef<dyn StdError + Send + Sync>> AsSharedError for &&Probe<'_, E> {
    fn is_transient(&self) -> bool {
        is_transient(self.0.as_ref())
    }
}

/// An error in a box.
pub trait AsAnyError {
    /// Whether it is transient.
    fn is_transient(&self) -> bool;
}

impl<E: AsRef<dyn StdError>> AsAnyError for &Probe<'_, E> {
    fn is_transient(&self) -> bool {
        is_transient(self.0.as_ref())
    }
}

/// None of these: the compiler says what to implement.
pub trait NoError {
    /// The error type.
    type Error;
    /// Whether it is transient.
    fn is_transient(&self) -> bool
    where
        Self::Error: Transient;
}

impl<E> NoError for Probe<'_, E> {
    type Error = E;
    fn is_transient(&self) -> bool
    where
        E: Transient,
    {
        self.0.is_transient()
    }
}

/// What a handler with `retry` takes: each run of its body needs its own.
#[diagnostic::on_unimplemented(
    message = "`retry` may run the body again, and `{Self}` cannot be given to it twice",
    label = "not `Clone`",
    note = "take it by shared reference, or derive `Clone` for it; of a `Vec`, for its items"
)]
pub trait RetryArgument: Sized {
    /// The argument for one more run.
    #[must_use]
    fn again(&self) -> Self;
}

#[diagnostic::do_not_recommend]
impl<T: Clone> RetryArgument for T {
    fn again(&self) -> Self {
        self.clone()
    }
}

/// The argument for one run.
pub fn again<T: RetryArgument>(argument: &T) -> T {
    argument.again()
}

#[cfg(test)]
mod tests {
    use super::*;

    macro_rules! probe {
        ($error:expr) => {
            (&&&&&Probe(&$error)).is_transient()
        };
    }

    #[derive(Debug, thiserror::Error)]
    #[error("wrapped")]
    struct Wrapped(#[source] sqlx::Error);

    struct Opaque(bool);

    impl Transient for Opaque {
        fn is_transient(&self) -> bool {
            self.0
        }
    }

    /// Both: what it says itself counts.
    #[derive(Debug, thiserror::Error)]
    #[error("stubborn")]
    struct Stubborn(#[source] sqlx::Error);

    impl Transient for Stubborn {
        fn is_transient(&self) -> bool {
            false
        }
    }

    #[test]
    fn every_kind_of_error_is_asked_in_its_own_way() {
        let passing = || sqlx::Error::PoolTimedOut;
        let lasting = || sqlx::Error::RowNotFound;
        assert!(probe!(passing()) && !probe!(lasting()));
        assert!(probe!(Error::Database(passing())) && !probe!(Error::Database(lasting())));
        assert!(probe!(Wrapped(passing())) && !probe!(Wrapped(lasting())));
        assert!(probe!(Box::<dyn StdError>::from(Wrapped(passing()))));
        assert!(probe!(Box::<dyn StdError + Send + Sync>::from(Wrapped(passing()))));
        assert!(!probe!(Box::<dyn StdError + Send + Sync>::from(Wrapped(lasting()))));
        assert!(probe!(anyhow::Error::from(Wrapped(passing())).context("charging")));
        assert!(!probe!(anyhow::anyhow!("no database in it")));
        assert!(probe!(Opaque(true)) && !probe!(Opaque(false)));
        assert!(!probe!(Stubborn(passing())));
    }

    #[test]
    fn nothing_runs_again_after_a_commit_of_unknown_fate() {
        assert!(!probe!(Error::CommitUnknown(sqlx::Error::WorkerCrashed)));
        assert!(!probe!(sqlx::Error::from(Error::CommitUnknown(sqlx::Error::WorkerCrashed))));
        assert!(!probe!(Wrapped(Error::CommitUnknown(sqlx::Error::WorkerCrashed).into())));
    }
}
