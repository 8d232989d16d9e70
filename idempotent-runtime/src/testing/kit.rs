//! The checklist.

use std::fmt;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use sqlx::Pool;

use super::delivered::{Delivered, Ended, Numbered};
use super::deliveries::together;
use super::inspect::Inspect;
use super::state::Effect;
use super::verdicts::{self, no_effect, not_processed, not_recognised, one_effect};
use super::{Failure, Recorder};
use crate::{ClaimStore, Database};

mod aged;
mod batches;
mod failing;
mod interrupted;
mod look;

pub use aged::Aged;

/// How many deliveries [`Kit::check`] makes at once.
const AT_ONCE: usize = 4;
/// How long a delivery may take unless the test says otherwise.
const PATIENCE: Duration = Duration::from_secs(30);

/// Delivers a handler's messages as an unkind queue does, and watches the database and what is sent.
///
/// Each method takes messages that no other call of this kit has had, so that one test can call several.
#[derive(Debug)]
pub struct Kit<DB: Database> {
    store: ClaimStore<DB>,
    recorder: Recorder,
    without: Vec<String>,
    pub(super) patience: Duration,
    next: AtomicU64,
    /// The pool's connections that somebody keeps.
    kept: AtomicU32,
}

impl<DB: Database + Inspect> Kit<DB> {
    /// For handlers that are given this pool, or transactions of it.
    #[must_use]
    pub fn new(pool: &Pool<DB>) -> Self {
        Self::of(&ClaimStore::new(pool.clone()))
    }

    /// For handlers that are given this store.
    #[must_use]
    pub fn of(store: &ClaimStore<DB>) -> Self {
        Self {
            store: store.clone(),
            recorder: Recorder::new(),
            without: Vec::new(),
            patience: PATIENCE,
            next: AtomicU64::new(1),
            kept: AtomicU32::new(0),
        }
    }

    /// Watches what the test's fake client records.
    #[must_use]
    pub fn recorder(mut self, recorder: &Recorder) -> Self {
        self.recorder = recorder.clone();
        self
    }

    /// Leaves a table out that may change with every delivery, such as a log of attempts; on PostgreSQL
    /// `schema.table`, where the schema is not `public`.
    #[must_use]
    pub fn without_table(mut self, table: impl Into<String>) -> Self {
        self.without.push(table.into());
        self
    }

    /// How long one delivery may take; 30 seconds unless set. One that takes longer is a [`Failure`], so that no test hangs.
    #[must_use]
    pub const fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// All of it: [`twice`](Self::twice), four [`together`](Self::together), [`refused`](Self::refused),
    /// [`uncommitted`](Self::uncommitted), [`fresh_only`](Self::fresh_only), [`interrupted`](Self::interrupted) and
    /// [`aged`](Self::aged), of which any answer will do.
    ///
    /// # Errors
    ///
    /// The first [`Failure`].
    pub async fn check<D: Delivered, E: fmt::Debug>(
        &self,
        deliver: impl AsyncFn(u64) -> Result<D, E>,
    ) -> Result<(), Failure> {
        self.twice(&deliver).await?;
        self.together(AT_ONCE, &deliver).await?;
        self.refused(&deliver).await?;
        self.uncommitted(&deliver).await?;
        self.fresh_only(&deliver).await?;
        self.interrupted(&deliver).await?;
        self.aged(&deliver).await.map(drop)
    }

    /// Delivers a message twice. The first delivery does the work; the second is recognised (a duplicate, replayed, or
    /// stale), changes no row of any table, and sends nothing.
    ///
    /// # Errors
    ///
    /// A [`Failure`] that names the table and its rows, or both claims.
    pub async fn twice<D: Delivered, E: fmt::Debug>(
        &self,
        deliver: impl AsyncFn(u64) -> Result<D, E>,
    ) -> Result<(), Failure> {
        let message = self.next::<D>();
        let old = self.claims().await?;
        let before = self.state().await?;
        self.first(&deliver, message).await?;
        let once = self.state().await?;
        let claims = self.claims().await?;
        if Effect::between(&before, &once).is_nothing() {
            return Err(no_effect(message, once.marks != before.marks));
        }
        let (again, _) = self.deliver(&deliver, message).await?;
        let twice = self.state().await?;
        if !again.is_recognised() {
            let news = |of: Vec<[String; 3]>, before: &[_]| of.into_iter().find(|claim| !before.contains(claim));
            let second = news(self.claims().await?, &claims);
            return Err(not_recognised(message, &again, news(claims, &old), second));
        }
        match twice.changes_since(&once) {
            None => Ok(()),
            Some(changes) => Err(Failure::new(
                format_args!("the second delivery of {message} is {again}, and yet it has changed:{changes}"),
                if twice.sent.plain > once.sent.plain {
                    "the code around the handler sends for duplicates too: send only what the handler has decided"
                } else {
                    verdicts::OUTSIDE
                },
            )),
        }
    }

    /// Delivers a message so many times at once. One delivery runs, the others are recognised, and there is one effect.
    ///
    /// Deliveries that fail, because a rival is at work (`wait`) or the database is busy, are redelivered.
    ///
    /// # Errors
    ///
    /// A [`Failure`] that lists what each delivery came to.
    pub async fn together<D: Delivered, E: fmt::Debug>(
        &self,
        deliveries: usize,
        deliver: impl AsyncFn(u64) -> Result<D, E>,
    ) -> Result<(), Failure> {
        let effect = self.effect(&deliver).await?;
        let message = self.next::<D>();
        let before = self.state().await?;
        let mut ended = Vec::new();
        for delivery in together((0..deliveries).map(|_| self.deliver(&deliver, message))).await {
            ended.push(match delivery?.0 {
                Ended::Failed(_) => self.redeliver(&deliver, message).await?,
                delivery => delivery,
            });
        }
        let after = self.state().await?;
        let processed = ended.iter().filter(|ended| ended.is_processed()).count();
        let recognised = ended.iter().filter(|ended| ended.is_recognised()).count();
        if (processed, recognised) != (1, deliveries.saturating_sub(1)) {
            let ended: Vec<_> = ended.iter().map(ToString::to_string).collect();
            return Err(Failure::new(
                format_args!("of {deliveries} deliveries of {message} at once, one had to run: {}", ended.join(", ")),
                "a part of the key is made on delivery, or each delivery uses another claim table",
            ));
        }
        one_effect(&effect, &before, &after, format_args!("{deliveries} deliveries of {message} at once"))
    }

    fn next<D: Delivered>(&self) -> Numbered {
        Numbered { noun: D::NOUN, number: self.next.fetch_add(1, Ordering::Relaxed) }
    }

    /// What a delivery does when it is not the first of its kind.
    async fn effect<D: Delivered, E: fmt::Debug>(
        &self,
        deliver: &impl AsyncFn(u64) -> Result<D, E>,
    ) -> Result<Effect, Failure> {
        self.first(deliver, self.next::<D>()).await?;
        let message = self.next::<D>();
        let before = self.state().await?;
        self.first(deliver, message).await?;
        let after = self.state().await?;
        let effect = Effect::between(&before, &after);
        if effect.is_nothing() { Err(no_effect(message, after.marks != before.marks)) } else { Ok(effect) }
    }

    async fn first<D: Delivered, E: fmt::Debug>(
        &self,
        deliver: &impl AsyncFn(u64) -> Result<D, E>,
        message: Numbered,
    ) -> Result<(), Failure> {
        match self.deliver(deliver, message).await? {
            (Ended::Processed(_), _) => Ok(()),
            (ended, notes) => Err(not_processed(message, &ended, notes.lost.as_ref())),
        }
    }
}
