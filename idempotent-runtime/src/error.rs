//! What can go wrong, and what to do about it.

use std::error::Error as StdError;
use std::fmt;

use crate::catalog::Isolation;
use crate::database::{self, Failure};
use crate::outcome::{Expired, FingerprintMismatch, Identity, InProgress, OccurredInFuture};
use crate::replay::ReplayError;

/// Why a message was not processed. Returned inside the handler's own error type; [`Error::find`] finds it there.
///
/// Every variant means: do not acknowledge the message. [`Error::disposition`] says what to do instead.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A part of the key, of the sender or of the entity was absent, empty or blank. No SQL was run.
    ///
    /// Park the message: without an id its duplicates cannot be told from it. If such messages are
    /// expected and harmless twice, `missing = "process"` runs them without a claim; not in a handler with `replay`,
    /// `fingerprint` or `claim: &Claim`, which need one.
    #[error(
        "consumer `{consumer}`: the key part `{part}`{} is absent, empty or blank, so a duplicate of this message could not be recognised; \
         park the message; a handler that may run twice and keeps nothing of its messages can declare `missing = \"process\"`",
        of_item(*index)
    )]
    #[non_exhaustive]
    MissingKey {
        /// The handler's consumer; empty where a [`Key`](crate::Key) was built by hand.
        consumer: &'static str,
        /// The placeholder as the template has it.
        part: &'static str,
        /// Of a batch, which item, counted from 0.
        index: Option<usize>,
    },

    /// Another delivery of the same message was still being processed when the wait was over.
    ///
    /// Redeliver: whatever the rival's end, the next delivery finds out.
    #[error("{0} is being processed by another delivery; redeliver it later")]
    InProgress(InProgress),

    /// The message is older than the retention by its own `occurred_at`, and has no claim: nobody can tell any more whether it
    /// was processed. Nothing was run.
    ///
    /// Park it for a person to decide: after an outage that was longer than the retention such messages are no
    /// duplicates. `expired = "skip"` acknowledges them instead, as [`Outcome::Expired`](crate::Outcome::Expired). See
    /// [late redeliveries](crate#late-redeliveries).
    #[error(
        "{0} is older than the retention, so nobody can tell whether it was processed; park it, or choose a longer `retention`"
    )]
    Expired(Expired),

    /// By its own `occurred_at` the message is from more than a day ahead of the database's clock. Nothing was run.
    ///
    /// Park the message: milliseconds may have been taken for seconds, or the producer's clock is wrong. Its claim would be
    /// kept far too long.
    #[error(
        "{0} says that it occurred more than a day ahead of the database's clock; check its unit and its producer's clock"
    )]
    OccurredInFuture(OccurredInFuture),

    /// The number of a message does not fit 64 bits, so it has no place in the order of its entity. No SQL was run.
    #[error(
        "consumer `{consumer}`: the number of `{entity}` does not fit a signed 64-bit integer (of a timestamp: nanoseconds since 1970)"
    )]
    #[non_exhaustive]
    NumberOutOfRange {
        /// The handler's consumer.
        consumer: &'static str,
        /// The stored form of the entity.
        entity: String,
        /// Of a batch, which item, counted from 0.
        index: Option<usize>,
    },

    /// The key came before, with another content by the handler's `fingerprint`: its sender has used one key for two
    /// messages. Nothing was run, and what is stored of the first one is as it was. See [the first answer
    /// again](crate#the-first-answer-again).
    #[error("{0} came before with another content; a new message needs a new key")]
    FingerprintMismatch(FingerprintMismatch),

    /// Of a handler with `replay`: a value could not be stored for later duplicates, or what is stored cannot be read.
    /// [`ReplayError`] says which; only in the second case was the message processed, before.
    #[error(transparent)]
    Replay(ReplayError),

    /// Two handlers of this program have one consumer name, so each would take the other's messages for duplicates.
    ///
    /// Nothing was run. Give one of them a name with `consumer = "…"`. Where both are the same place, its module is in the
    /// program twice, `mod handlers;` in lib.rs and in main.rs: let main.rs use the library's.
    #[error("{}", collision(consumer, first, second))]
    #[non_exhaustive]
    ConsumerCollision {
        /// The name that both have.
        consumer: &'static str,
        /// Function, file and line of the one handler.
        first: String,
        /// Function, file and line of the other.
        second: String,
    },

    /// The claim table is missing, or it is not the one that this version works with.
    #[error(
        "the table `{table}` is missing or not of this version; run `idempotent_runtime::migrate(&pool).await?` \
         (or `store.migrate().await?` for a table with another name) once at start-up or deployment"
    )]
    #[non_exhaustive]
    NotMigrated {
        /// The table's name.
        table: String,
        /// What the database said.
        #[source]
        source: sqlx::Error,
    },

    /// The transaction that held the claim was no longer alive when the body returned: the body swallowed
    /// the error of a statement, lost a deadlock, or sent COMMIT, ROLLBACK or a statement that commits by itself.
    #[error("{0}")]
    TransactionLost(TransactionLost),

    /// COMMIT was sent and its reply was lost, so claim and effect are both there or both not there.
    ///
    /// Redeliver: the next delivery is either a duplicate or does the work.
    #[error("the outcome of the commit is unknown: {0}; redelivering the message settles it")]
    CommitUnknown(#[source] sqlx::Error),

    /// A name, a duration or an option that cannot be used; the text says what to write instead.
    #[error("{0}")]
    Configuration(String),

    /// The migrations of the claim table could not be applied.
    #[error("the migrations of the claim table failed: {0}")]
    Migrate(#[source] Box<sqlx::migrate::MigrateError>),

    /// Any other error of the database, as sqlx gave it.
    #[error(transparent)]
    Database(sqlx::Error),
}

/// How the transaction of a claim was lost. See [`Error::TransactionLost`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransactionLost {
    pub(crate) claim: Option<Identity>,
    pub(crate) kept: bool,
}

impl TransactionLost {
    /// Whether the claim was committed early and stays, so that a redelivery would be taken for a duplicate
    /// although the work may be half done. If not, everything was rolled back and a redelivery runs.
    #[must_use]
    pub const fn claim_kept(&self) -> bool {
        self.kept
    }
}

impl fmt::Display for TransactionLost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the transaction that held the claim ")?;
        if let Some(claim) = &self.claim {
            write!(f, "of {claim} ")?;
        }
        if self.kept {
            f.write_str(
                "was committed before the body returned (a COMMIT or a statement that commits by itself), so the claim stays \
                 although the work may be half done: check the effect by hand, then `forget` the claim to run it again",
            )
        } else {
            f.write_str(
                "was rolled back before the body returned (a swallowed error, a deadlock, or a COMMIT or ROLLBACK sent by the body); \
                 nothing of that transaction stays, redelivering the message runs it again",
            )
        }
    }
}

/// What to do with a message that was not processed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Disposition {
    /// Let it be delivered again, after a pause.
    Retry,
    /// Park it where a person will look: delivering it again would fail again.
    DeadLetter,
}

/// Each handler is its function, with the path, and in parentheses its file and line.
fn collision(consumer: &str, first: &str, second: &str) -> String {
    let name_and_place = |handler: &str| handler.rsplit_once("::").map(|(_, end)| end.to_owned());
    if name_and_place(first) == name_and_place(second) {
        return format!(
            "the consumer name `{consumer}` belongs to one handler that is compiled into the program twice, as {first} and \
             {second}: where lib.rs has its module, let main.rs use it from the library, and not declare it with `mod` again"
        );
    }
    format!(
        "the consumer name `{consumer}` belongs to two handlers, {first} and {second}: each would take the other's messages \
         for duplicates; give one of them its own name with `consumer = \"…\"`"
    )
}

impl Error {
    /// Whether running the same message again may succeed.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::InProgress(_) | Self::CommitUnknown(_) => true,
            Self::TransactionLost(lost) => !lost.kept,
            Self::Database(error) => database::failure(error) == Failure::Transient,
            Self::MissingKey { .. }
            | Self::Expired(_)
            | Self::OccurredInFuture(_)
            | Self::NumberOutOfRange { .. }
            | Self::FingerprintMismatch(_)
            | Self::Replay(_)
            | Self::ConsumerCollision { .. }
            | Self::NotMigrated { .. }
            | Self::Configuration(_)
            | Self::Migrate(_) => false,
        }
    }

    /// Whether to let the message be delivered again or to park it.
    ///
    /// Parked is what the message itself makes fail; what a deployment can repair (a missing table, two
    /// handlers of one name, a permission) is retried, so that a wrong deployment parks no queue.
    #[must_use]
    pub fn disposition(&self) -> Disposition {
        match self {
            Self::MissingKey { .. }
            | Self::Expired(_)
            | Self::OccurredInFuture(_)
            | Self::NumberOutOfRange { .. }
            | Self::FingerprintMismatch(_)
            | Self::Replay(ReplayError::TooLarge { .. } | ReplayError::NotSerializable) => Disposition::DeadLetter,
            Self::TransactionLost(lost) if lost.kept => Disposition::DeadLetter,
            Self::Database(error) => database_disposition(error),
            _ => Disposition::Retry,
        }
    }

    /// The HTTP status that tells a webhook's sender the same: 400 (no usable key, number or timestamp), 409 (in progress),
    /// 422 (the key belongs to another content, or the message is too old to tell), 503 (try again), 500.
    #[must_use]
    pub fn http_status(&self) -> u16 {
        match self {
            Self::MissingKey { .. } | Self::OccurredInFuture(_) | Self::NumberOutOfRange { .. } => 400,
            Self::InProgress(_) => 409,
            Self::FingerprintMismatch(_) | Self::Expired(_) => 422,
            error if error.is_transient() => 503,
            _ => 500,
        }
    }

    /// Finds this library's error in another: itself, behind [`sqlx::Error`], or anywhere in the chain of sources.
    ///
    /// For `anyhow::Error` pass `error.as_ref()`. An error of the body's own is not this library's, and
    /// [`Error::Database`] that has become a `sqlx::Error` is a plain one again: [`Error::disposition_of`] judges those too.
    ///
    /// ```
    /// use idempotent_runtime::Error;
    ///
    /// fn http_status(error: &(dyn std::error::Error + 'static)) -> u16 {
    ///     Error::find(error).map_or(500, Error::http_status)
    /// }
    /// ```
    #[must_use]
    pub fn find<'e>(error: &'e (dyn StdError + 'static)) -> Option<&'e Self> {
        let mut next = Some(error);
        while let Some(error) = next {
            if let Some(found) = error.downcast_ref::<Self>() {
                return Some(found);
            }
            next = match error.downcast_ref::<sqlx::Error>() {
                // thiserror's `#[source]` of a box skips the box, so this is the same as `source()`; kept explicit
                // because it is what `From<Error> for sqlx::Error` relies on.
                Some(sqlx::Error::AnyDriverError(inner)) => Some(&**inner),
                _ => error.source(),
            };
        }
        None
    }

    /// What to do with a message whose handler returned this error, whatever its type: [`disposition`](Error::disposition)
    /// of this library's error or of the [`sqlx::Error`] that is found first in the chain of sources, and
    /// [`Retry`](Disposition::Retry) where there is neither.
    ///
    /// For `anyhow::Error` pass `error.as_ref()`.
    ///
    /// ```
    /// use idempotent_runtime::{Disposition, Error};
    ///
    /// let error = sqlx::Error::RowNotFound; // the data is at fault, so the next run would fail too
    /// assert_eq!(Error::disposition_of(&error), Disposition::DeadLetter);
    /// ```
    #[must_use]
    pub fn disposition_of(error: &(dyn StdError + 'static)) -> Disposition {
        if let Some(own) = Self::find(error) {
            return own.disposition();
        }
        let mut next = Some(error);
        while let Some(error) = next {
            if let Some(error) = error.downcast_ref::<sqlx::Error>() {
                return database_disposition(error);
            }
            next = error.source();
        }
        Disposition::Retry
    }

    /// A name for metrics, as few as there are variants.
    pub(crate) const fn kind(&self) -> &'static str {
        match self {
            Self::MissingKey { .. } => "missing_key",
            Self::InProgress(_) => "in_progress",
            Self::Expired(_) => "expired",
            Self::OccurredInFuture(_) => "occurred_in_future",
            Self::NumberOutOfRange { .. } => "number_out_of_range",
            Self::FingerprintMismatch(_) => "fingerprint_mismatch",
            Self::Replay(_) => "replay",
            Self::ConsumerCollision { .. } => "consumer_collision",
            Self::NotMigrated { .. } => "not_migrated",
            Self::TransactionLost(_) => "transaction_lost",
            Self::CommitUnknown(_) => "commit_unknown",
            Self::Configuration(_) => "configuration",
            Self::Migrate(_) => "migrate",
            Self::Database(_) => "database",
        }
    }

    pub(crate) fn missing_key(consumer: &'static str, part: &'static str) -> Self {
        Self::MissingKey { consumer, part, index: None }
    }

    /// Says which item of a batch it is about.
    pub(crate) fn of_item(mut self, item: usize) -> Self {
        if let Self::MissingKey { index, .. } | Self::NumberOutOfRange { index, .. } = &mut self {
            *index = Some(item);
        }
        self
    }

    pub(crate) fn isolated(consumer: &str, isolation: Isolation) -> Self {
        Self::Configuration(format!(
            "consumer `{consumer}` declares `isolation = \"{}\"`, and a transaction that it joins has its own: pass the pool, or \
             remove the option and begin the caller's transaction that way",
            isolation.as_str().to_ascii_lowercase()
        ))
    }

    /// An error of COMMIT, or of what closes the transaction in the same request.
    pub(crate) fn at_commit(error: sqlx::Error) -> Self {
        if database::failure_at_commit(&error) == Failure::Unknown {
            Self::CommitUnknown(error)
        } else {
            Self::Database(error)
        }
    }
}

fn of_item(index: Option<usize>) -> String {
    index.map_or_else(String::new, |index| format!(" of item {index} of the batch"))
}

fn database_disposition(error: &sqlx::Error) -> Disposition {
    if database::failure(error) == Failure::Data { Disposition::DeadLetter } else { Disposition::Retry }
}

impl From<sqlx::Error> for Error {
    /// An [`Error`] that had become a `sqlx::Error` is itself again.
    fn from(error: sqlx::Error) -> Self {
        match error {
            sqlx::Error::AnyDriverError(inner) => match inner.downcast::<Self>() {
                Ok(own) => *own,
                Err(inner) => Self::Database(sqlx::Error::AnyDriverError(inner)),
            },
            error => Self::Database(error),
        }
    }
}

impl From<Error> for sqlx::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::Database(error) => error,
            error => Self::AnyDriverError(Box::new(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missing() -> Error {
        Error::missing_key("billing.grant-credit", "event.id")
    }

    #[test]
    fn find_looks_through_sqlx_boxes_and_sources() {
        #[derive(Debug, thiserror::Error)]
        #[error("handler")]
        struct Outer(#[source] sqlx::Error);

        let outer = Outer(missing().into());
        assert!(matches!(Error::find(&outer), Some(Error::MissingKey { .. })));
        let boxed: Box<dyn StdError + Send + Sync> = Box::new(outer);
        assert!(matches!(Error::find(&*boxed), Some(Error::MissingKey { .. })));
        assert_eq!(Error::disposition_of(&*boxed), Disposition::DeadLetter);
        assert!(Error::find(&sqlx::Error::RowNotFound).is_none());
        assert_eq!(Error::disposition_of(&Outer(sqlx::Error::RowNotFound)), Disposition::DeadLetter);
        assert_eq!(Error::disposition_of(&Outer(sqlx::Error::PoolTimedOut)), Disposition::Retry);
        assert_eq!(Error::disposition_of(&fmt::Error), Disposition::Retry);
    }

    #[test]
    fn a_round_trip_through_sqlx_error_keeps_the_error() {
        assert!(matches!(Error::from(sqlx::Error::from(missing())), Error::MissingKey { .. }));
        assert!(matches!(sqlx::Error::from(Error::Database(sqlx::Error::RowNotFound)), sqlx::Error::RowNotFound));
    }

    #[test]
    fn what_a_deployment_can_repair_is_not_dead_lettered() {
        let not_migrated = Error::NotMigrated { table: "t".into(), source: sqlx::Error::RowNotFound };
        assert_eq!(not_migrated.disposition(), Disposition::Retry);
        assert_eq!(missing().disposition(), Disposition::DeadLetter);
        let kept = Error::TransactionLost(TransactionLost { claim: None, kept: true });
        assert_eq!(
            (kept.disposition(), kept.is_transient(), kept.http_status()),
            (Disposition::DeadLetter, false, 500)
        );
        let gone = Error::TransactionLost(TransactionLost { claim: None, kept: false });
        assert_eq!((gone.disposition(), gone.is_transient(), gone.http_status()), (Disposition::Retry, true, 503));
    }
}
