//! Random histories against the database, each step compared with a short oracle; what fails is shrunk to the shortest
//! history that does. And random deliveries at once: one effect per message (G1).
//!
//! `IDEMPOTENT_TEST_LONG=1` runs a thousand; `PROPTEST_RNG_SEED=1` chooses the histories.

mod oracle;

use std::fmt::Debug;
use std::time::{Duration, SystemTime};

use idempotent_runtime::{ClaimStore, Error, Outcome, PurgeOptions, Source, commit, idempotent};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use sqlx::AssertSqlSafe;
use tokio::task::JoinSet;

use crate::handlers::effect;
use crate::harness::{World, connect, drop_after, rounds};
use crate::{Db, Tx};
use oracle::{Age, Body, End, Ending, Message, Oracle, Step};

const HOUR: Duration = Duration::from_hours(1);

async fn act(tx: &mut Tx<'_>, message: Message, body: Body) -> Result<(), Error> {
    effect(tx, &message.effect()).await?;
    match body {
        Body::Succeed | Body::Cancel(_) => Ok(()),
        Body::Fail => Err(sqlx::Error::RowNotFound.into()),
        // Without the hook, which would print it.
        Body::Panic => std::panic::resume_unwind(Box::new("on purpose")),
    }
}

#[idempotent(key = "{id}", consumer = "histories.plain")]
async fn plain(#[tx] tx: &mut Tx<'_>, id: u8, message: Message, body: Body) -> Result<(), Error> {
    act(tx, message, body).await
}

#[idempotent(key = "{id}", consumer = "histories.dated", retention = "1d", occurred_at = "at", expired = "skip")]
async fn dated(#[tx] tx: &mut Tx<'_>, id: u8, at: SystemTime, message: Message, body: Body) -> Result<(), Error> {
    act(tx, message, body).await
}

#[idempotent(key = "{id}", consumer = "histories.versioned", sequence(entity = "{entity}", number = "number"))]
async fn versioned(
    #[tx] tx: &mut Tx<'_>,
    id: u8,
    entity: u8,
    number: i64,
    message: Message,
    body: Body,
) -> Result<(), Error> {
    act(tx, message, body).await
}

#[idempotent(consumer = "histories.offset", sequence(entity = "{entity}", number = "number"))]
async fn offset(#[tx] tx: &mut Tx<'_>, entity: u8, number: i64, message: Message, body: Body) -> Result<(), Error> {
    act(tx, message, body).await
}

#[idempotent(key = "{id}", consumer = "histories.answered", fingerprint = "{content}", replay)]
async fn answered(#[tx] tx: &mut Tx<'_>, id: u8, content: u8, message: Message, body: Body) -> Result<u8, Error> {
    act(tx, message, body).await.map(|()| content)
}

async fn deliver(source: impl Into<Source<'_, Db>>, message: Message, body: Body) -> Result<Ending, Error> {
    let source = source.into();
    let outcome = match message {
        Message::Plain { id } => plain(source, id, message, body).await,
        Message::Dated { id, age } => {
            let now = SystemTime::now();
            let at = match age {
                Age::Recent => now - HOUR,
                Age::TooOld => now - 25 * HOUR,
                Age::Ahead => now + 25 * HOUR,
            };
            dated(source, id, at, message, body).await
        }
        Message::Versioned { id, entity, number } => versioned(source, id, entity, number, message, body).await,
        Message::Offset { entity, number } => offset(source, entity, number, message, body).await,
        Message::Answered { id, content } => match answered(source, id, content, message, body).await {
            Ok(Outcome::Replayed(answer)) => return Ok(Ending::Replayed(answer)),
            Ok(Outcome::Processed(_)) => Ok(Outcome::Processed(())),
            Ok(other) => panic!("{other:?}"),
            Err(error) => Err(error),
        },
    };
    match outcome {
        Ok(Outcome::Processed(())) => Ok(Ending::Processed),
        Ok(Outcome::Duplicate(_)) => Ok(Ending::Duplicate),
        Ok(Outcome::Stale(_)) => Ok(Ending::Stale),
        Ok(Outcome::Expired(_)) => Ok(Ending::Expired),
        Ok(Outcome::Replayed(())) => panic!("only one handler replays"),
        Err(Error::OccurredInFuture(_)) => Ok(Ending::InTheFuture),
        Err(Error::FingerprintMismatch(_)) => Ok(Ending::Mismatch),
        Err(Error::Database(sqlx::Error::RowNotFound)) => Ok(Ending::Failed),
        Err(error) => Err(error),
    }
}

/// One process: a pool of one connection, so that what a dropped future has left is brought back before the next step.
struct Process<'w> {
    world: &'w World,
    store: ClaimStore<Db>,
    with_cache: bool,
}

impl<'w> Process<'w> {
    async fn start(world: &'w World, with_cache: bool) -> Self {
        let builder = ClaimStore::builder(connect(&world.fresh, 1).await);
        let builder = if with_cache { builder.seen_cache(100) } else { builder };
        Self { world, store: builder.build().expect("a store"), with_cache }
    }

    async fn take(&mut self, step: &Step, oracle: &mut Oracle) -> Result<(), TestCaseError> {
        match step {
            Step::Deliver(message, body) => {
                let found = self.deliver(*message, *body).await?;
                let expected = oracle.deliver(*message, *body, false);
                // The cancelled run may have committed.
                let settled = matches!(body, Body::Cancel(_))
                    && expected == Ending::Processed
                    && matches!(found, Ending::Duplicate | Ending::Stale | Ending::Replayed(_));
                if !settled {
                    same(&found, &expected)?;
                }
            }
            Step::Join(messages, end) => self.join(messages, *end, oracle).await?,
            Step::Forget(message) => {
                if let Some((consumer, key)) = message.claim() {
                    let forgotten = self.store.forget(consumer, "", &key).await.map_err(failed)?;
                    same(&forgotten, &oracle.forget(*message))?;
                }
            }
            Step::Expire(message) => {
                if let Some((consumer, key)) = message.claim() {
                    let (column, past) = (crate::KEY, crate::from_now(-2 * 3_600_000));
                    let expire = format!(
                        "UPDATE processed_messages SET expires_at = {past} WHERE consumer = '{consumer}' AND {column} = '{key}'"
                    );
                    self.world.run(&expire).await;
                }
                oracle.expire(*message);
            }
            Step::Purge => {
                let purged = self.store.purge(PurgeOptions::new()).await.map_err(failed)?;
                same(&purged.deleted, &oracle.purge())?;
            }
            Step::Restart => {
                *self = Self::start(self.world, self.with_cache).await;
                oracle.restart();
            }
        }
        self.compare(oracle).await
    }

    async fn deliver(&self, message: Message, body: Body) -> Result<Ending, TestCaseError> {
        match body {
            Body::Panic => {
                let store = self.store.clone();
                match tokio::spawn(async move { deliver(&store, message, body).await }).await {
                    Ok(ending) => ending.map_err(failed),
                    Err(_) => Ok(Ending::Panicked),
                }
            }
            Body::Cancel(polls) => match drop_after(polls, deliver(&self.store, message, body)).await {
                Some(ending) => ending.map_err(failed),
                None => deliver(&self.store, message, Body::Succeed).await.map_err(failed),
            },
            Body::Succeed | Body::Fail => deliver(&self.store, message, body).await.map_err(failed),
        }
    }

    /// In a transaction of the caller's, which has an effect of its own.
    async fn join(&self, messages: &[(Message, bool)], end: End, oracle: &mut Oracle) -> Result<(), TestCaseError> {
        let mut afterwards = oracle.clone();
        let mut tx = self.store.pool().begin_with(crate::BEGIN_TO_WRITE).await.map_err(failed)?;
        effect(&mut tx, "caller").await.map_err(failed)?;
        for (message, succeeds) in messages {
            let body = if *succeeds { Body::Succeed } else { Body::Fail };
            let found = deliver(self.store.join(&mut tx), *message, body).await.map_err(failed)?;
            same(&found, &afterwards.deliver(*message, body, true))?;
        }
        match end {
            End::Commit => {
                commit(tx).await.map_err(failed)?;
                *afterwards.effects.entry("caller".to_owned()).or_default() += 1;
                *oracle = afterwards;
            }
            End::RollBack => tx.rollback().await.map_err(failed)?,
            End::Drop => {
                drop(tx);
                // Where it is dropped in the pool, its rollback comes with the next use.
                drop(self.store.pool().acquire().await.map_err(failed)?);
            }
        }
        Ok(())
    }

    async fn compare(&self, oracle: &Oracle) -> Result<(), TestCaseError> {
        let observer = &self.world.observer;
        let effects = "SELECT id, count(*) FROM effects GROUP BY id ORDER BY id";
        let effects: Vec<(String, i64)> = sqlx::query_as(effects).fetch_all(observer).await.map_err(failed)?;
        same(&effects, &oracle.effects.clone().into_iter().collect())?;
        let claims = format!("SELECT consumer, {} FROM processed_messages ORDER BY 1, 2", crate::KEY);
        let claims: Vec<(String, String)> =
            sqlx::query_as(AssertSqlSafe(claims)).fetch_all(observer).await.map_err(failed)?;
        same(&claims, &oracle.claims())?;
        let positions = "SELECT consumer, entity, number FROM processed_messages_positions ORDER BY 1, 2";
        let positions: Vec<(String, String, i64)> =
            sqlx::query_as(positions).fetch_all(observer).await.map_err(failed)?;
        let expected = oracle
            .positions
            .iter()
            .map(|((consumer, entity), number)| ((*consumer).to_owned(), entity.clone(), *number));
        same(&positions, &expected.collect())
    }
}

fn failed(error: impl Debug) -> TestCaseError {
    TestCaseError::fail(format!("{error:?}"))
}

fn same<T: Debug + PartialEq>(found: &T, expected: &T) -> Result<(), TestCaseError> {
    if found == expected { Ok(()) } else { Err(TestCaseError::fail(format!("{found:?}, and not {expected:?}"))) }
}

/// Runs each history in the database that the first one has made.
#[expect(clippy::needless_pass_by_value, reason = "a reference to an async closure hides its signature")]
fn run<S: Strategy>(
    cases: usize,
    connections: u32,
    strategy: &S,
    history: impl AsyncFn(&World, S::Value) -> Result<(), TestCaseError>,
) {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    let world = runtime.block_on(World::with_connections(connections));
    let config = Config {
        cases: cases.try_into().expect("not that many"),
        failure_persistence: None,
        max_shrink_iters: 400,
        ..Config::default()
    };
    let ran = TestRunner::new(config).run(strategy, |value| runtime.block_on(history(&world, value)));
    // Dropped where destructors find a runtime.
    let _guard = runtime.enter();
    drop(world);
    if let Err(error) = ran {
        panic!("{error}");
    }
}

#[test]
fn random_histories_come_to_what_the_oracle_says_step_by_step() {
    let histories = (any::<bool>(), prop::collection::vec(oracle::step(), 1..30));
    let (cases, mut steps) = (rounds(25, 1_000), 0);
    let counted = std::cell::Cell::new(0);
    run(cases, 1, &histories, async |world, (with_cache, history)| {
        for table in ["effects", "processed_messages", "processed_messages_positions"] {
            world.run(&format!("DELETE FROM {table}")).await;
        }
        let (mut process, mut oracle) = (Process::start(world, with_cache).await, Oracle::new(with_cache));
        for step in &history {
            counted.set(counted.get() + 1);
            process.take(step, &mut oracle).await.map_err(|error| TestCaseError::fail(format!("{step:?}: {error}")))?;
        }
        Ok(())
    });
    steps += counted.get();
    println!("{cases} histories of {steps} steps");
}

/// A delivery among others: of one of a few messages, whose body takes so many microseconds.
type Delivery = (u8, Body, u64);

#[idempotent(key = "{history}/{id}", consumer = "histories.at-once", retry = 2)]
async fn at_once(#[tx] tx: &mut Tx<'_>, history: usize, id: u8, body: Body, micros: u64) -> Result<(), Error> {
    effect(tx, &format!("at-once-{history}-{id}")).await?;
    tokio::time::sleep(Duration::from_micros(micros)).await;
    act(tx, Message::Plain { id }, body).await
}

async fn all_at_once(world: &World, history: usize, deliveries: Vec<Delivery>) -> Result<(), TestCaseError> {
    let mut running = JoinSet::new();
    let ids: std::collections::BTreeSet<u8> = deliveries.iter().map(|(id, ..)| *id).collect();
    for (id, body, micros) in deliveries {
        let pool = world.pool.clone();
        running.spawn(async move {
            let handling = at_once(&pool, history, id, body, micros);
            let outcome = match body {
                Body::Cancel(polls) => drop_after(polls, handling).await,
                _ => Some(handling.await),
            };
            (id, outcome)
        });
    }
    let (mut acknowledged, mut processed) = (Vec::new(), Vec::new());
    while let Some(ended) = running.join_next().await {
        match ended {
            Ok((id, Some(Ok(outcome)))) => {
                acknowledged.push(id);
                processed.extend(outcome.is_processed().then_some(id));
            }
            Ok((_, Some(Err(error)))) => {
                let own = matches!(error, Error::Database(sqlx::Error::RowNotFound));
                if !own && !error.is_transient() {
                    return Err(failed(error));
                }
            }
            Ok((_, None)) | Err(_) => {}
        }
    }
    for id in ids {
        let row = format!("at-once-{history}-{id}");
        let count = |of: &[u8]| of.iter().map(|other| usize::from(*other == id)).sum::<usize>();
        if count(&acknowledged) > 0 {
            same(&world.effects_of(&row).await, &1)?;
        }
        if count(&processed) > 1 {
            return Err(TestCaseError::fail(format!("{id} was processed {} times", count(&processed))));
        }
        at_once(&world.pool, history, id, Body::Succeed, 0).await.map_err(failed)?;
        same(&world.effects_of(&row).await, &1)?;
    }
    Ok(())
}

#[test]
fn random_deliveries_at_once_have_one_effect_each() {
    let delivery = (0..3_u8, oracle::body(), 0..3_000_u64);
    let histories = prop::collection::vec(delivery, 2..16);
    let (cases, number, deliveries) = (rounds(40, 2_000), std::cell::Cell::new(0), std::cell::Cell::new(0));
    run(cases, 6, &histories, async |world, history| {
        number.set(number.get() + 1);
        deliveries.set(deliveries.get() + history.len());
        all_at_once(world, number.get(), history).await
    });
    println!("{cases} histories of {} deliveries at once", deliveries.get());
}
