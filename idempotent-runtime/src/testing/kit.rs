//! The checklist.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use sqlx::Pool;

use super::delivered::{Delivered, Ended, Numbered};
use super::deliveries::{deliver, deliver_until, redeliver, together};
use super::inspect::{Inspect, Table};
use super::state::{Effect, State};
use super::verdicts::{self, no_effect, not_processed, not_recognised, nothing, one_effect};
use super::{Failure, Recorder};
use crate::database::TableName;
use crate::purge::PurgeOptions;
use crate::{ClaimStore, Database, process};

/// How many deliveries [`Kit::check`] makes at once.
const AT_ONCE: usize = 4;
/// What PostgreSQL answers to the statement after one that has failed, found in the text of whatever type the error has.
const IN_FAILED_TRANSACTION: &str = "25P02";
/// A delivery that awaits more often than this is broken off at the first of these points only.
const MOST_POLLS: usize = 300;

/// Delivers a handler's messages as an unkind queue does, and watches the database and what is sent.
///
/// Each method takes messages that no other call of this kit has had, so that one test can call several.
#[derive(Debug)]
pub struct Kit<DB: Database> {
    store: ClaimStore<DB>,
    recorder: Recorder,
    without: Vec<String>,
    next: AtomicU64,
}

/// What became of a message whose claim had expired and was purged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Aged {
    /// It was taken for new: a redelivery later than the retention has a second effect. `occurred_at` prevents that.
    RunsAgain,
    /// It was too old by its own timestamp.
    Expired,
    /// Its position in a `sequence`, which is never purged, tells that it was applied.
    Stale,
    /// It was taken for new, and failed: at a unique key of the application's own, if all is well.
    Fails,
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
        Self { store: store.clone(), recorder: Recorder::new(), without: Vec::new(), next: AtomicU64::new(1) }
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

    /// All of it: [`twice`](Self::twice), four [`together`](Self::together), [`refused`](Self::refused),
    /// [`interrupted`](Self::interrupted) and [`aged`](Self::aged), of which any answer will do.
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
            return Err(no_effect(message));
        }
        let (again, _) = self::deliver(deliver(message.number)).await;
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
        for (delivery, _) in together((0..deliveries).map(|_| self::deliver(deliver(message.number)))).await {
            ended.push(match delivery {
                Ended::Failed(_) => redeliver(&deliver, message).await?,
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

    /// Lets the write to one table after another fail in the middle of a delivery: to each table that a delivery changes. The
    /// delivery has to fail, to change nothing and to send nothing. A redelivery, when writes succeed again, does the work.
    ///
    /// # Errors
    ///
    /// A [`Failure`] that names the table that refused the write.
    pub async fn refused<D: Delivered, E: fmt::Debug>(
        &self,
        deliver: impl AsyncFn(u64) -> Result<D, E>,
    ) -> Result<(), Failure> {
        let effect = self.effect(&deliver).await?;
        let [tables, _] = self.tables().await?;
        for table in tables.into_iter().filter(|table| effect.tables.contains(&table.shown())) {
            let shown = table.shown();
            let message = self.next::<D>();
            let before = self.state().await?;
            DB::refuse(&mut *self.store.pool().acquire().await?, &table).await?;
            let (ended, notes) = self::deliver(deliver(message.number)).await;
            let after = self.state().await;
            DB::allow(&mut *self.store.pool().acquire().await?, &table).await?;
            let after = after?;
            match ended {
                Ended::Failed(error) if notes.lost || error.contains(IN_FAILED_TRANSACTION) => {
                    return Err(Failure::new(
                        format_args!(
                            "table `{shown}` refused a write of {message}, and the body went on as if it had not: \
                             the delivery failed ({error})"
                        ),
                        verdicts::SWALLOWED,
                    ));
                }
                Ended::Failed(_) => {}
                ended => {
                    return Err(Failure::new(
                        format_args!("table `{shown}` refused a write of {message}, and yet the delivery is {ended}"),
                        verdicts::SWALLOWED,
                    ));
                }
            }
            let what = format_args!("the delivery of {message}, which failed at table `{shown}`,");
            nothing(&before, &after, what)?;
            let redelivered = redeliver(&deliver, message).await?;
            if !redelivered.is_processed() {
                return Err(Failure::new(
                    format_args!(
                        "{message} failed at table `{shown}`; its redelivery is {redelivered}, and was to do the work"
                    ),
                    "the claim was committed although the delivery failed: is it made with `ClaimStore::claim`, in a \
                     transaction of its own?",
                ));
            }
            let after = self.state().await?;
            one_effect(&effect, &before, &after, format_args!("{message}, which failed once at table `{shown}`,"))?;
        }
        Ok(())
    }

    /// Breaks deliveries off at each point where they await, one message for each point, until one comes to its end: as a
    /// timeout, a `select!` or a shutdown does. What is broken off has no effect, unless it was committed; its
    /// redelivery leads to one effect.
    ///
    /// A delivery that awaits more than 300 times is broken off at the first 300.
    ///
    /// # Errors
    ///
    /// A [`Failure`] that says after how many polls which table had changed.
    pub async fn interrupted<D: Delivered, E: fmt::Debug>(
        &self,
        deliver: impl AsyncFn(u64) -> Result<D, E>,
    ) -> Result<(), Failure> {
        let effect = self.effect(&deliver).await?;
        // At the very await after something was sent: how often a delivery awaits differs from one to the next.
        if effect.sends() {
            let sent = self.recorder.counts().plain;
            let stop = || self.recorder.counts().plain > sent;
            self.broken_off(&effect, &deliver, stop, format_args!("where it had sent something")).await?;
        }
        for polls in 1..=MOST_POLLS {
            let mut polled = 0;
            let stop = move || {
                polled += 1;
                polled == polls
            };
            let ended = self.broken_off(&effect, &deliver, stop, format_args!("after {polls} polls")).await?;
            if ended.is_processed() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Breaks one delivery off, and redelivers its message.
    async fn broken_off<D: Delivered, E: fmt::Debug>(
        &self,
        effect: &Effect,
        deliver: &impl AsyncFn(u64) -> Result<D, E>,
        stop: impl FnMut() -> bool + Unpin,
        place: fmt::Arguments<'_>,
    ) -> Result<Ended, Failure> {
        let message = self.next::<D>();
        let before = self.state().await?;
        let (ended, _) = deliver_until(stop, deliver(message.number)).await;
        match ended {
            Ended::Dropped => {}
            Ended::Processed(_) => return Ok(ended),
            other => return Err(not_processed(message, &other, false)),
        }
        let dropped = self.state().await?;
        // A commit on its way may have come through by now, the claim with it.
        if dropped.marks == before.marks {
            let what = format_args!("the delivery of {message}, broken off {place} and without a claim,");
            nothing(&before, &dropped, what)?;
        }
        redeliver(deliver, message).await?;
        let after = self.state().await?;
        let what = format_args!("{message}, broken off {place} and redelivered,");
        one_effect(effect, &before, &after, what)?;
        Ok(ended)
    }

    /// Makes every claim of the store expire. A message whose claim has expired and is still there has to be recognised.
    /// Then purges them all, and says what becomes of it: that tells what a redelivery later than the retention does.
    ///
    /// With [`occurred_at`](crate#late-redeliveries), give messages that are older than the retention, which are expired
    /// from the start, or expect [`Aged::RunsAgain`]: only the claim ages here, not the message.
    ///
    /// # Errors
    ///
    /// A [`Failure`] that says what the delivery came to.
    pub async fn aged<D: Delivered, E: fmt::Debug>(
        &self,
        deliver: impl AsyncFn(u64) -> Result<D, E>,
    ) -> Result<Aged, Failure> {
        let message = self.next::<D>();
        if let Ended::Expired(_) = self::deliver(deliver(message.number)).await.0 {
            return Ok(Aged::Expired);
        }
        self.expire().await?;
        let before = self.state().await?;
        let (again, _) = self::deliver(deliver(message.number)).await;
        if !again.is_recognised() {
            return Err(not_recognised(message, &again, None, None));
        }
        let after = self.state().await?;
        nothing(&before, &after, format_args!("a delivery of {message}, whose claim is past its expiry,"))?;
        self.store.purge(PurgeOptions::new().margin(std::time::Duration::ZERO)).await?;
        match self::deliver(deliver(message.number)).await.0 {
            Ended::Processed(_) => Ok(Aged::RunsAgain),
            Ended::Stale(_) => Ok(Aged::Stale),
            Ended::Expired(_) => Ok(Aged::Expired),
            Ended::Failed(_) => Ok(Aged::Fails),
            other => Err(verdicts::still_recognised(message, &other)),
        }
    }

    /// Moves the expiry of every claim of the store into the past, without purging it.
    ///
    /// # Errors
    ///
    /// A [`Failure`] if the database fails.
    pub async fn expire(&self) -> Result<(), Failure> {
        Ok(DB::age(&mut *self.store.pool().acquire().await?, self.store.statements()).await?)
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
        let effect = Effect::between(&before, &self.state().await?);
        if effect.is_nothing() { Err(no_effect(message)) } else { Ok(effect) }
    }

    async fn first<D: Delivered, E: fmt::Debug>(
        &self,
        deliver: &impl AsyncFn(u64) -> Result<D, E>,
        message: Numbered,
    ) -> Result<(), Failure> {
        match self::deliver(deliver(message.number)).await {
            (Ended::Processed(_), _) => Ok(()),
            (ended, notes) => Err(not_processed(message, &ended, notes.lost)),
        }
    }

    /// Those of the application, and those that hold claims and positions: of every store, since a handler may have been
    /// given another one than the kit.
    async fn tables(&self) -> Result<[Vec<Table>; 2], Failure> {
        let all = DB::tables(&mut *self.store.pool().acquire().await?).await?;
        let holds_claims = |table: &&Table| TableName::BESIDE.iter().all(|suffix| all.contains(&table.beside(suffix)));
        let claims: Vec<&Table> = all.iter().filter(holds_claims).collect();
        let own = |table: &Table| {
            claims.iter().any(|claims| {
                *claims == table || TableName::BESIDE.iter().any(|suffix| claims.beside(suffix) == *table)
            })
        };
        let applications = all.iter().filter(|table| !own(table) && !self.without.contains(&table.shown()));
        let mut marks: Vec<Table> = claims.iter().map(|claims| claims.beside(TableName::POSITIONS)).collect();
        marks.extend(claims.iter().copied().cloned());
        // These may be in a schema that is not listed.
        marks.extend(self.store.statements().table.marks().map(|(schema, name)| Table { schema, name }));
        Ok([applications.cloned().collect(), marks])
    }

    /// The tables first, then the claims: an effect without a claim was not committed with one.
    async fn state(&self) -> Result<State, Failure> {
        let [tables, marks] = self.tables().await?;
        let mut connection = self.store.pool().acquire().await?;
        let mut contents = BTreeMap::new();
        for table in tables {
            contents.insert(table.shown(), DB::contents(&mut connection, &table).await?);
        }
        let mut claimed = Vec::new();
        for table in marks {
            claimed.push(DB::contents(&mut connection, &table).await.map_err(|error| self.of_claims(error))?);
        }
        Ok(State { tables: contents, marks: claimed, sent: self.recorder.counts() })
    }

    /// An error of a statement over the claim table.
    fn of_claims(&self, error: sqlx::Error) -> Failure {
        process::table_error(error, self.store.statements()).into()
    }

    async fn claims(&self) -> Result<Vec<[String; 3]>, Failure> {
        let claims = DB::claims(&mut *self.store.pool().acquire().await?, self.store.statements()).await;
        claims.map_err(|error| self.of_claims(error))
    }
}
