//! A message whose body runs: its transaction, and how that ends.

use sqlx::Transaction;
use tracing::{Instrument as _, Span};

use crate::__private::HandlerError;
use crate::claim::Claim;
use crate::database::{Failed, Progress};
use crate::message::Message;
use crate::observe::Timer;
use crate::outcome::Identity;
use crate::process::lost;
use crate::replay::{Replay, StoredValue};
use crate::seen::Seen;
use crate::store::Settings;
use crate::{Database, Error, Outcome, observe};

/// A claimed message whose body is to run now.
pub struct Run<'s, DB: Database> {
    pub(crate) transaction: Transaction<'s, DB>,
    pub(crate) watch: DB::Watch,
    pub(crate) message: &'s Message,
    pub(crate) settings: &'s Settings,
    /// Where a processed message is remembered.
    pub(crate) seen: Option<(&'s Seen, &'s Identity)>,
    pub(crate) progress: &'s mut Progress,
    /// Around body and commit.
    pub(crate) span: Span,
    /// Of the body.
    pub(crate) timer: Timer,
}

impl<'s, DB: Database> Run<'s, DB> {
    /// What the body works in.
    pub const fn transaction(&mut self) -> &mut Transaction<'s, DB> {
        &mut self.transaction
    }

    /// What a body runs in.
    #[must_use]
    pub fn span(&self) -> Span {
        self.span.clone()
    }

    /// What a body with a `claim: &Claim` parameter works with. The macro refuses such a body together with
    /// `missing = "process"`, so there is a claim.
    ///
    /// # Panics
    ///
    /// In a handler whose messages may have no claim.
    #[must_use]
    pub const fn parts(&mut self) -> (&mut Transaction<'s, DB>, &Claim) {
        match &self.message.claim {
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
        let span = self.span.clone();
        let ended = self.end(end).instrument(span.clone()).await;
        let outcome = match (&result, &ended) {
            (_, Err(_)) => "lost",
            (Ok(_), Ok(())) if refused.is_none() => "processed",
            _ => "failed",
        };
        span.record("outcome", outcome);
        match (result, ended.and_then(|()| refused.map_or(Ok(()), Err))) {
            (Ok(value), Ok(())) => Ok(Outcome::Processed(value)),
            (Err(error), Ok(())) => Err(error),
            (_, Err(error)) => Err(E::from_error(error)),
        }
    }

    async fn end(self, end: End) -> Result<(), Error> {
        let Self { transaction, watch, message, settings, seen, progress, timer, span: _ } = self;
        timer.ran(message.handler.consumer());
        let claim = message.claim.as_ref();
        let admission = message.admission(settings);
        let commit = matches!(end, End::Commit(_));
        let ended = match end {
            End::Commit(value) => DB::commit(transaction, watch, admission, value.as_ref()).await,
            End::RollBack => DB::rollback(transaction, watch, admission).await,
        };
        match ended {
            Ok(()) => {
                if *progress == Progress::Open {
                    *progress = Progress::Closed;
                }
                if let (true, Some((seen, identity))) = (commit, seen) {
                    seen.insert(identity);
                }
                match (claim, &message.position) {
                    _ if !commit => {}
                    (None, None) => observe::unclaimed(message.handler.consumer()),
                    _ => observe::processed(&message.identity()),
                }
                Ok(())
            }
            Err(Failed::Lost { kept }) => Err(lost(claim, kept)),
            Err(Failed::AtEnd(error)) if commit => Err(Error::at_commit(error)),
            // The server undoes what a broken connection had open.
            Err(Failed::AtEnd(_)) => Ok(()),
        }
    }
}

/// How a body has ended.
enum End {
    /// With `Ok`, and perhaps a value to store.
    Commit(Option<StoredValue>),
    /// Otherwise.
    RollBack,
}
