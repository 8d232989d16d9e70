//! Why a delivery does not come to its body, and what its errors mean.

use std::time::Duration;

use backon::ExponentialBackoff;

use crate::__private::HandlerError;
use crate::Error;
use crate::database::{self, Failure, Statements, Verdict};
use crate::error::TransactionLost;
use crate::observe;
use crate::outcome::{Identity, InProgress};

/// Why a delivery does not come to its body.
#[derive(Debug)]
pub enum Refused<S> {
    /// What becomes of it is not settled.
    Yet(Refusal),
    /// What becomes of the consumer's message.
    Settled(S, &'static str),
}

/// Why it does not, before it is settled.
#[derive(Debug)]
pub enum Refusal {
    /// The database has judged so.
    Verdict(Verdict),
    /// It failed.
    Failed(Error),
    /// A conflict kept it from its claim; it is tried again after this pause.
    Again(Duration),
}

impl Refusal {
    pub(super) const fn failed<R>(error: Error) -> Result<R, Self> {
        Err(Self::Failed(error))
    }

    pub(super) const fn again<R>(pause: Duration) -> Result<R, Self> {
        Err(Self::Again(pause))
    }
}

/// What the handler returns for an error of the library's own.
pub(crate) fn to_caller<E: HandlerError>(consumer: &'static str, error: Error) -> E {
    observe::failed(consumer, error.kind());
    E::from_error(error)
}

pub(crate) fn lost(claim: Option<&Identity>, kept: bool) -> Error {
    let lost = TransactionLost { claim: claim.cloned(), kept };
    observe::lost(&lost);
    Error::TransactionLost(lost)
}

/// How long to wait before beginning again, if that may help.
pub(super) fn pause_after(
    error: &Error,
    claim_pauses: &mut ExponentialBackoff,
    run_pauses: &mut ExponentialBackoff,
    consumer: &'static str,
) -> Option<Duration> {
    if is_conflict(error)
        && let Some(pause) = claim_pauses.next()
    {
        observe::conflict(consumer);
        return Some(pause);
    }
    // A database that was busy for too long, say: `retry` has been asked for. A rival is waited for once.
    if matches!(error, Error::Database(_)) && error.is_transient() {
        return run_pauses.next().inspect(|_| observe::retried(consumer));
    }
    None
}

/// A conflict between transactions, or a connection that died in the pool: trying again may succeed at once. Not a
/// time-out, which has made the caller wait already.
fn is_conflict(error: &Error) -> bool {
    match error {
        Error::Database(error) => {
            matches!(database::failure_at_commit(error), Failure::Conflict | Failure::Unknown)
        }
        _ => false,
    }
}

/// What an error of the claim's statement means.
pub(crate) fn claim_error(error: sqlx::Error, statements: &Statements, identity: &Identity) -> Error {
    if database::failure_at_commit(&error) == Failure::LockTimeout {
        Error::InProgress(InProgress(identity.clone()))
    } else {
        table_error(error, statements)
    }
}

/// What an error of a statement over the claim table means.
pub(crate) fn table_error(error: sqlx::Error, statements: &Statements) -> Error {
    if database::failure(&error) == Failure::Schema {
        Error::NotMigrated { table: statements.table.to_string(), source: error }
    } else {
        Error::Database(error)
    }
}
