//! A message whose body runs: its transaction, and how that ends.

use sqlx::Transaction;
use tracing::{Instrument as _, Span};

use crate::__private::HandlerError;
use crate::batch::{Batch, ItemOutcome, Messages};
use crate::claim::Claim;
use crate::database::{Failed, Progress};
use crate::message::Message;
use crate::observe::Timer;
use crate::process::{Work, lost, to_caller};
use crate::replay::{Replay, StoredValue};
use crate::seen::Memory;
use crate::store::Settings;
use crate::{Database, Error, Outcome, observe};

/// The kind of failure of a body that returned an error of its own.
const HANDLER: &str = "handler";

/// A claimed message whose body is to run now.
pub struct Run<'s, DB: Database, W> {
    pub(crate) transaction: Transaction<'s, DB>,
    pub(crate) watch: DB::Watch,
    pub(crate) work: &'s W,
    /// Of a batch, what becomes of each item.
    pub(crate) outcomes: Vec<ItemOutcome>,
    pub(crate) settings: &'s Settings,
    /// Where a processed message is remembered.
    pub(crate) seen: Option<Memory<'s>>,
    pub(crate) progress: &'s mut Progress,
    /// Around body and commit.
    pub(crate) span: Span,
    /// Of the body.
    pub(crate) timer: Timer,
}

impl<'s, DB: Database, W: Work> Run<'s, DB, W> {
    /// What the body works in.
    pub const fn transaction(&mut self) -> &mut Transaction<'s, DB> {
        &mut self.transaction
    }

    /// What a body runs in.
    #[must_use]
    pub fn span(&self) -> Span {
        self.span.clone()
    }

    async fn end(self, end: End) -> Result<Vec<ItemOutcome>, Error> {
        let Self { transaction, watch, work, outcomes, settings, seen, progress, timer, span: _ } = self;
        timer.ran(work.handler().consumer());
        let admission = work.admission(settings);
        let (commit, claim) = (matches!(end, End::Commit(_)), admission.claim.map(|claim| claim.identity));
        let refused = commit && refuses_commit();
        #[cfg(feature = "testing")]
        let transaction = if refused { crate::testing::looked_into(transaction).await } else { transaction };
        let ended = match end {
            End::Commit(value) if !refused => DB::commit(transaction, watch, admission, value.as_ref()).await,
            End::Commit(_) | End::RollBack => DB::rollback(transaction, watch, admission).await,
        };
        match ended {
            Ok(()) => {
                if *progress == Progress::Open {
                    *progress = Progress::Closed;
                }
                if refused {
                    return Err(refused_commit());
                }
                if let (true, Some(memory)) = (commit, seen) {
                    memory.keep();
                }
                Ok(outcomes)
            }
            Err(Failed::Lost { kept }) => Err(lost(claim, kept)),
            Err(Failed::AtEnd(error)) if commit => Err(Error::at_commit(error)),
            // The server undoes what a broken connection had open.
            Err(Failed::AtEnd(_)) => Ok(outcomes),
        }
    }
}

impl<'s, DB: Database> Run<'s, DB, Message> {
    /// What a body with a `claim: &Claim` parameter works with. The macro refuses such a body together with
    /// `missing = "process"`, so there is a claim.
    ///
    /// # Panics
    ///
    /// In a handler whose messages may have no claim.
    #[must_use]
    pub const fn parts(&mut self) -> (&mut Transaction<'s, DB>, &Claim) {
        match &self.work.claim {
            Some(claim) => (&mut self.transaction, claim),
            None => panic!("a handler with a `&Claim` parameter always has a claim"),
        }
    }

    /// Commits what the body did if it returned `Ok` and its transaction is still alive, and rolls it back otherwise.
    ///
    /// # Errors
    ///
    /// The body's own, and those of the commit.
    pub async fn finish<T, E: HandlerError>(self, result: Result<T, E>) -> Result<Outcome<T>, E> {
        self.finish_and_store(result, None).await
    }

    /// The same for a handler with `replay`: stores the value with the claim.
    ///
    /// # Errors
    ///
    /// Also [`Error::Replay`], for a value that cannot be stored.
    pub async fn finish_and_store<T, E: HandlerError>(
        self,
        result: Result<T, E>,
        replay: Option<Replay<T>>,
    ) -> Result<Outcome<T>, E> {
        let limit = self.settings.max_stored_value;
        let (end, refused) = match (&result, replay) {
            (Err(_), _) => (End::RollBack, None),
            (Ok(_), None) => (End::Commit(None), None),
            (Ok(value), Some(replay)) => match (replay.to_stored)(value, limit) {
                Ok(stored) => (End::Commit(Some(StoredValue(stored))), None),
                Err(error) => (End::RollBack, Some(Error::Replay(error))),
            },
        };
        let (message, span) = (self.work, self.span.clone());
        let consumer = message.handler().consumer();
        let ended = self.end(end).instrument(span.clone()).await;
        let outcome = match (&result, &ended) {
            (_, Err(_)) => "lost",
            (Ok(_), Ok(_)) if refused.is_none() => "processed",
            _ => "failed",
        };
        span.record("outcome", outcome);
        match (result, ended.and_then(|_| refused.map_or(Ok(()), Err))) {
            (Ok(value), Ok(())) => {
                message.observe_processed();
                Ok(Outcome::Processed(value))
            }
            (Err(error), Ok(())) => {
                observe::failed(consumer, HANDLER);
                Err(error)
            }
            (_, Err(error)) => Err(to_caller(consumer, error)),
        }
    }
}

impl<'s, DB: Database> Run<'s, DB, Messages> {
    /// What a body with a `claims: &[Claim]` parameter works with: the claims of the fresh items, in order.
    #[must_use]
    pub fn parts(&mut self) -> (&mut Transaction<'s, DB>, Vec<Claim>) {
        let claims = self.work.claims(&self.outcomes);
        (&mut self.transaction, claims)
    }

    /// The fresh items, in order.
    #[must_use]
    pub fn fresh<T>(&self, items: Vec<T>) -> Vec<T> {
        let fresh = items.into_iter().zip(&self.outcomes).filter(|(_, outcome)| **outcome == ItemOutcome::Processed);
        fresh.map(|(item, _)| item).collect()
    }

    /// Commits what the body did if it returned `Ok` and its transaction is still alive, and rolls it back otherwise.
    ///
    /// # Errors
    ///
    /// The body's own, and those of the commit.
    pub async fn finish<T, E: HandlerError>(self, result: Result<T, E>) -> Result<Batch<T>, E> {
        let end = if result.is_ok() { End::Commit(None) } else { End::RollBack };
        let (work, span) = (self.work, self.span.clone());
        let consumer = work.handler().consumer();
        let ended = self.end(end).instrument(span.clone()).await;
        let outcome = match (&result, &ended) {
            (_, Err(_)) => "lost",
            (Ok(_), Ok(_)) => "processed",
            (Err(_), Ok(_)) => "failed",
        };
        span.record("outcome", outcome);
        match (result, ended) {
            (Ok(value), Ok(outcomes)) => {
                work.observe(&outcomes);
                Ok(Batch { output: Some(value), outcomes })
            }
            (Err(error), Ok(_)) => {
                observe::failed(consumer, HANDLER);
                Err(error)
            }
            (_, Err(error)) => Err(to_caller(consumer, error)),
        }
    }
}

/// Whether the testing kit lets the commit fail that is due now.
#[cfg(feature = "testing")]
pub(crate) use crate::testing::refuses_commit;
#[cfg(not(feature = "testing"))]
pub(crate) const fn refuses_commit() -> bool {
    false
}

/// As after a connection that broke at the worst moment.
pub(crate) fn refused_commit() -> Error {
    Error::at_commit(sqlx::Error::Io(std::io::ErrorKind::ConnectionReset.into()))
}

/// How a body has ended.
enum End {
    /// With `Ok`, and perhaps a value to store.
    Commit(Option<StoredValue>),
    /// Otherwise.
    RollBack,
}
