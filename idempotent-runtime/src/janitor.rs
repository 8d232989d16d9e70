//! Purging at intervals, by one instance at a time.

use std::time::{Duration, Instant};

use tokio::sync::{oneshot, watch};

use crate::database::TableName;
use crate::lent::Lent;
use crate::purge::Run;
use crate::store::MAX_RETENTION;
use crate::{ClaimStore, Database, Error, PurgeEnd, PurgeOptions, Purged, observe, process};

/// How long an instance that has died keeps the others from purging, beside the pause between two batches.
const LEASE: Duration = Duration::from_secs(15);
/// In place of an interval of zero.
const SHORTEST: Duration = Duration::from_secs(1);
/// Younger than this the lease is not renewed.
const RENEW_AFTER: Duration = Duration::from_secs(5);

/// Purges a claim store at intervals, in the background.
///
/// - **Nothing before the first interval has passed**, so a service that comes back after a long time can still
///   recognise what is redelivered to it. An instance that never lives that long never purges.
/// - **Jitter**: each interval is lengthened by up to a tenth, at random, so that instances that started together drift
///   apart.
/// - **One active instance at a time.** Run it in every instance: whoever purges holds a lease, a row of the table
///   `processed_messages_janitor`, which works behind every pooler and on every cluster. The others skip that
///   interval. If the active instance dies, its lease ends 15 seconds (and one pause) after its last renewal, by the
///   database's clock. Were two active after all (one was stopped for longer than that), they would do each other
///   no harm: see [`ClaimStore::purge`].
/// - **Errors** are logged at warn, and the next interval tries again. If the pool is closed, the janitor ends.
/// - **Off-switch**: [`enabled`](Janitor::enabled).
///
/// ```
/// use std::time::Duration;
///
/// use idempotent_runtime::{ClaimStore, Error, Janitor};
///
/// # #[cfg(feature = "sqlite")]
/// async fn serve(pool: sqlx::SqlitePool) -> Result<(), Error> {
///     let janitor = Janitor::new(ClaimStore::new(pool))
///         .every(Duration::from_secs(3600))
///         .enabled(std::env::var_os("NO_PURGE").is_none())
///         .try_spawn()?;
///     // … consume messages until it is time to stop …
///     janitor.shutdown().await;
///     Ok(())
/// }
/// ```
#[derive(Debug)]
#[must_use = "a janitor does nothing until it is spawned"]
pub struct Janitor<DB: Database> {
    store: ClaimStore<DB>,
    interval: Duration,
    options: PurgeOptions,
    enabled: bool,
}

impl<DB: Database> Janitor<DB> {
    /// A janitor that purges once an hour, with the default options.
    pub const fn new(store: ClaimStore<DB>) -> Self {
        Self { store, interval: Duration::from_hours(1), options: PurgeOptions::new(), enabled: true }
    }

    /// How long it rests before the first purge and after each: more than zero, at most 36500 days. Default one hour.
    pub const fn every(mut self, interval: Duration) -> Self {
        self.interval = interval;
        self
    }

    /// How it purges.
    pub const fn options(mut self, options: PurgeOptions) -> Self {
        self.options = options;
        self
    }

    /// `false` makes [`spawn`](Janitor::spawn) start nothing: for a switch in the application's configuration.
    pub const fn enabled(mut self, enabled: bool) -> Self {
        self.enabled = enabled;
        self
    }

    /// Starts it as a task of the async runtime, if its settings can be meant.
    ///
    /// # Errors
    ///
    /// [`Error::Configuration`] for an interval of zero or of more than 36500 days, and for options that cannot be
    /// meant.
    ///
    /// # Panics
    ///
    /// Outside the async runtime that sqlx uses.
    pub fn try_spawn(self) -> Result<JanitorHandle, Error> {
        if self.interval.is_zero() || self.interval > MAX_RETENTION {
            return Err(Error::Configuration(format!(
                "an interval of {:?} between purges is not possible: choose more than zero and at most 36500 days",
                self.interval
            )));
        }
        self.options.check()?;
        Ok(self.spawn())
    }

    /// Starts it as a task of the async runtime.
    ///
    /// An interval of zero counts as one second, and a longer one than 36500 days as those. With options that cannot be meant
    /// every purge fails, and says so at warn. [`try_spawn`](Janitor::try_spawn) refuses both at once.
    ///
    /// # Panics
    ///
    /// Outside the async runtime that sqlx uses.
    #[expect(clippy::must_use_candidate, reason = "it works on without its handle")]
    pub fn spawn(mut self) -> JanitorHandle {
        self.interval = if self.interval.is_zero() { SHORTEST } else { self.interval.min(MAX_RETENTION) };
        let (stop, stopped) = watch::channel(false);
        let (done, ended) = oneshot::channel();
        if self.enabled {
            // Dropping its handle detaches the task.
            drop(sqlx_core::rt::spawn(async move {
                self.work(Stop(stopped)).await;
                drop(done);
            }));
        } else {
            observe::janitor_off(self.store.statements());
        }
        JanitorHandle { stop, ended }
    }

    async fn work(self, mut stop: Stop) {
        let holder = format!("{:016x}", fastrand::u64(..));
        while !stop.within(jittered(self.interval)).await {
            match self.purge(&holder, &mut stop).await {
                Ok(Some(purged)) => observe::janitor_purged(self.store.statements(), &purged),
                Ok(None) => observe::janitor_skipped(self.store.statements()),
                Err(Error::Database(sqlx::Error::PoolClosed)) => return,
                Err(error) => observe::janitor_failed(self.store.statements(), &error),
            }
        }
    }

    /// One purge, if no other instance is active.
    async fn purge(&self, holder: &str, stop: &mut Stop) -> Result<Option<Purged>, Error> {
        self.options.check()?;
        let mut lease = Lease { store: &self.store, holder, time: self.lease_time(), renewed: None };
        if !lease.hold().await? {
            return Ok(None);
        }
        let purged = self.batches(&mut lease, stop).await;
        // Otherwise it ends by itself.
        let released = lease.release().await;
        let purged = purged?;
        released?;
        Ok(Some(purged))
    }

    /// Long enough for the pauses that are made: none is longer than the run.
    fn lease_time(&self) -> Duration {
        LEASE.saturating_add(self.options.longest_pause()).min(MAX_RETENTION)
    }

    async fn batches(&self, lease: &mut Lease<'_, DB>, stop: &mut Stop) -> Result<Purged, Error> {
        let mut run = Run::new(&self.store, &self.options);
        let end = loop {
            if let Some(end) = run.batch().await? {
                break end;
            }
            if stop.within(self.options.pause).await || !lease.hold().await? {
                break PurgeEnd::Stopped;
            }
        };
        run.end(end).await
    }
}

/// An interval, and up to a tenth of it: never less, so that nothing is purged too early.
fn jittered(interval: Duration) -> Duration {
    interval.saturating_add(interval.mul_f64(fastrand::f64() / 10.0))
}

/// What makes one instance the active one.
struct Lease<'j, DB: Database> {
    store: &'j ClaimStore<DB>,
    holder: &'j str,
    time: Duration,
    renewed: Option<Instant>,
}

impl<DB: Database> Lease<'_, DB> {
    /// Takes the lease or renews it; `false` if another instance has it.
    async fn hold(&mut self) -> Result<bool, Error> {
        if self.renewed.is_some_and(|renewed| renewed.elapsed() < RENEW_AFTER) {
            return Ok(true);
        }
        let asked = Instant::now();
        let lease = async {
            let mut lent = Lent::from(self.store.pool()).await?;
            let held = DB::lease(&mut lent.connection, self.store.statements(), self.holder, self.time).await?;
            lent.give_back();
            Ok(held)
        };
        let held = lease.await.map_err(|error| self.error(error))?;
        self.renewed = held.then_some(asked);
        Ok(held)
    }

    async fn release(&self) -> Result<(), Error> {
        let release = async {
            let mut lent = Lent::from(self.store.pool()).await?;
            DB::release(&mut lent.connection, self.store.statements(), self.holder).await?;
            lent.give_back();
            Ok(())
        };
        release.await.map_err(|error| self.error(error))
    }

    /// Names the table that may be missing.
    fn error(&self, error: sqlx::Error) -> Error {
        match process::table_error(error, self.store.statements()) {
            Error::NotMigrated { table, source } => {
                Error::NotMigrated { table: format!("{table}{}", TableName::JANITOR), source }
            }
            error => error,
        }
    }
}

/// The janitor's view of its handle.
struct Stop(watch::Receiver<bool>);

impl Stop {
    /// Rests for so long, or until it is to stop: then `true`.
    async fn within(&mut self, rest: Duration) -> bool {
        sqlx_core::rt::timeout(rest, self.asked()).await.is_ok()
    }

    async fn asked(&mut self) {
        if self.0.wait_for(|stop| *stop).await.is_err() {
            // The handle was dropped, so nobody will ever ask.
            std::future::pending::<()>().await;
        }
    }
}

/// Stops a janitor in an orderly way.
///
/// Dropping it does not: the janitor then works until its async runtime ends or its pool is closed.
#[derive(Debug)]
pub struct JanitorHandle {
    stop: watch::Sender<bool>,
    ended: oneshot::Receiver<()>,
}

impl JanitorHandle {
    /// Lets the batch that is running come to its end, starts no other one, and returns when the janitor has ended.
    ///
    /// Dropped before that, the janitor ends all the same.
    pub async fn shutdown(self) {
        self.stop.send_replace(true);
        // Closed without a word when the task is through, or was dropped with its runtime.
        let _ = self.ended.await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jitter_lengthens_an_interval_by_up_to_a_tenth() {
        let intervals: Vec<_> = (0..1_000).map(|_| jittered(Duration::from_secs(100)).as_secs_f64()).collect();
        assert!(intervals.iter().all(|seconds| (100.0..=110.0).contains(seconds)));
        assert!(intervals.iter().any(|seconds| *seconds < 103.0) && intervals.iter().any(|seconds| *seconds > 107.0));
        assert!(jittered(MAX_RETENTION) >= MAX_RETENTION);
    }
}
