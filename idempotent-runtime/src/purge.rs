//! Deleting claims that are past their retention.
//!
//! The default batches and pause are chosen so that a consumer hardly notices. A million old claims beside 100,000
//! live ones, purged by two processes while four consumers work (`cargo bench -p tests --bench purge`, on the two busy
//! cores of the machine it was written on): 28 s on PostgreSQL, 146 s on MariaDB, 286 s on SQLite, and meanwhile the p99
//! of a message was 1.71, 2.43 and 5.20 times that of an idle database: 2.5, 3.4 and 19 ms. From run to run it differs by a
//! quarter, on SQLite by more than half. Smaller batches (`--batch`, after `--`) lower it, and the purge takes longer.

use std::time::{Duration, Instant, SystemTime};

use crate::database::{Batch, Deleted};
use crate::lent::{Lent, retried};
use crate::store::{self, MAX_RETENTION};
use crate::{ClaimStore, Database, Error, observe, process};

/// The largest batch. Locks are held until a batch is through.
const MAX_BATCH: u32 = 10_000;

/// How [`ClaimStore::purge`] and the [`Janitor`](crate::Janitor) delete claims.
///
/// ```
/// use std::time::Duration;
///
/// use idempotent_runtime::PurgeOptions;
///
/// let gentle = PurgeOptions::new().batch_size(200).pause(Duration::from_millis(100));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "options do nothing until they are passed on"]
pub struct PurgeOptions {
    margin: Duration,
    batch_size: Option<u32>,
    pub(crate) pause: Duration,
    max_run_time: Duration,
}

impl Default for PurgeOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl PurgeOptions {
    /// The defaults.
    pub const fn new() -> Self {
        Self {
            margin: Duration::from_hours(1),
            batch_size: None,
            pause: Duration::from_millis(25),
            max_run_time: Duration::from_mins(10),
        }
    }

    /// How long after its expiry a claim is kept, for steps of the database's clock and for a failover to a server
    /// whose clock differs. At most 36500 days. Default one hour.
    pub const fn margin(mut self, margin: Duration) -> Self {
        self.margin = margin;
        self
    }

    /// The most claims that are deleted, and locked, together: 1 to 10000. Default 500 on PostgreSQL, 100 on MariaDB
    /// and MySQL, and 50 on SQLite, where nobody else writes meanwhile.
    pub const fn batch_size(mut self, claims: u32) -> Self {
        self.batch_size = Some(claims);
        self
    }

    /// The pause between two batches, in which no lock and no connection is held. Default 25 milliseconds.
    pub const fn pause(mut self, pause: Duration) -> Self {
        self.pause = pause;
        self
    }

    /// No batch begins later than this after the start. Default ten minutes.
    pub const fn max_run_time(mut self, time: Duration) -> Self {
        self.max_run_time = time;
        self
    }

    /// The pause, unless the time would be over with it.
    pub(crate) fn longest_pause(&self) -> Duration {
        if self.pause < self.max_run_time { self.pause } else { Duration::ZERO }
    }

    /// Refuses what cannot be meant.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let refuse = |what: String| Err(Error::Configuration(what));
        match self {
            Self { batch_size: Some(size), .. } if !(1..=MAX_BATCH).contains(size) => {
                refuse(format!("a purge in batches of {size} is not possible: choose 1 to {MAX_BATCH}"))
            }
            Self { margin, .. } if *margin > MAX_RETENTION => {
                refuse(format!("a margin of {margin:?} is not possible: choose at most 36500 days"))
            }
            Self { max_run_time: Duration::ZERO, .. } => {
                refuse("a purge that may take no time is not possible: choose a run time of more than zero".to_owned())
            }
            _ => Ok(()),
        }
    }
}

/// What a purge has done.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Purged {
    /// Claims deleted by this purge, each counted by one purge only, however many run at once.
    pub deleted: u64,
    /// Batches, each a transaction of its own.
    pub batches: u64,
    /// Why it ended.
    pub end: PurgeEnd,
    /// When the first of the claims that are left expires, or has expired; `None` if no claim is left.
    pub oldest: Option<SystemTime>,
}

/// Why a purge ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PurgeEnd {
    /// It came to the last claim past expiry and margin. Claims that another transaction had locked at that moment
    /// are left to the next purge, if that transaction does not delete them.
    Finished,
    /// Its time was over: there is more.
    OutOfTime,
    /// It was asked to stop: a [`Janitor`](crate::Janitor) that is shut down, or whose place another instance has
    /// taken.
    Stopped,
}

/// A purge between two batches.
#[derive(Debug)]
pub(crate) struct Run<'s, DB: Database> {
    store: &'s ClaimStore<DB>,
    options: &'s PurgeOptions,
    start: Instant,
    from: Option<i64>,
    deleted: u64,
    batches: u64,
}

impl<'s, DB: Database> Run<'s, DB> {
    pub(crate) fn new(store: &'s ClaimStore<DB>, options: &'s PurgeOptions) -> Self {
        Self { store, options, start: Instant::now(), from: None, deleted: 0, batches: 0 }
    }

    /// Deletes one batch; why no other one follows, if so.
    pub(crate) async fn batch(&mut self) -> Result<Option<PurgeEnd>, Error> {
        let Deleted { claims, next } = self.deleted_batch().await?;
        observe::purged(self.store.statements(), claims);
        self.deleted += claims;
        self.batches += 1;
        self.from = next;
        Ok(if next.is_none() {
            Some(PurgeEnd::Finished)
        } else if self.start.elapsed().saturating_add(self.options.pause) >= self.options.max_run_time {
            Some(PurgeEnd::OutOfTime)
        } else {
            None
        })
    }

    async fn deleted_batch(&self) -> Result<Deleted, Error> {
        let batch = Batch {
            margin: self.options.margin,
            size: self.options.batch_size.unwrap_or(DB::PURGE_BATCH),
            from: self.from,
        };
        let deleted = retried(|| self.once(batch)).await;
        deleted.map_err(|error| process::table_error(error, self.store.statements()))
    }

    async fn once(&self, batch: Batch) -> Result<Deleted, sqlx::Error> {
        let mut lent = Lent::from(self.store.pool()).await?;
        let deleted = DB::purge(&mut lent.connection, self.store.statements(), batch).await?;
        lent.give_back();
        Ok(deleted)
    }

    /// What was done, and what is left.
    pub(crate) async fn end(self, end: PurgeEnd) -> Result<Purged, Error> {
        let oldest = self.oldest().await.map_err(|error| process::table_error(error, self.store.statements()))?;
        let Self { store: of, deleted, batches, .. } = self;
        let purged = Purged { deleted, batches, end, oldest: oldest.map(store::time) };
        observe::purge_ended(of.statements(), &purged);
        Ok(purged)
    }

    async fn oldest(&self) -> Result<Option<i64>, sqlx::Error> {
        let mut lent = Lent::from(self.store.pool()).await?;
        let oldest = DB::oldest(&mut lent.connection, self.store.statements()).await?;
        lent.give_back();
        Ok(oldest)
    }
}

/// Deletes batch after batch until nothing is left or the time is over.
pub(crate) async fn purge<DB: Database>(store: &ClaimStore<DB>, options: &PurgeOptions) -> Result<Purged, Error> {
    options.check()?;
    let mut run = Run::new(store, options);
    let end = loop {
        match run.batch().await? {
            Some(end) => break end,
            None => sqlx_core::rt::sleep(options.pause).await,
        }
    };
    run.end(end).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_meant_is_refused_and_what_is_long_is_not() {
        let options = PurgeOptions::new;
        for bad in [
            options().batch_size(0),
            options().batch_size(MAX_BATCH + 1),
            options().margin(MAX_RETENTION + Duration::from_nanos(1)),
            options().margin(Duration::MAX),
            options().max_run_time(Duration::ZERO),
        ] {
            assert!(matches!(bad.check(), Err(Error::Configuration(_))), "{bad:?}");
        }
        for good in [
            options(),
            options().batch_size(1).batch_size(MAX_BATCH),
            options().margin(Duration::ZERO).pause(Duration::ZERO),
            options().margin(MAX_RETENTION).pause(Duration::MAX).max_run_time(Duration::MAX),
        ] {
            assert!(good.check().is_ok(), "{good:?}");
        }
    }
}
