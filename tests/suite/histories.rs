//! Random histories against the database, each step compared with a short oracle; what fails is shrunk to the shortest
//! history that does. And random deliveries at once: one effect per message (G1).
//!
//! `IDEMPOTENT_TEST_LONG=1` runs a thousand; `PROPTEST_RNG_SEED=1` chooses the histories.

mod oracle;

use std::fmt::Debug;
use std::time::{Duration, SystemTime};

use idempotent_runtime::{ClaimStore, Error, ItemOutcome, Outcome, PurgeOptions, Source, commit, idempotent};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use sqlx::{AssertSqlSafe, Pool};
use tokio::task::JoinSet;

use crate::handlers::effect;
use crate::harness::{World, connect, drop_after, rounds};
use crate::{Db, Tx};
use oracle::{Age, Body, Delivery, End, Ending, Message, Oracle, Step};

const HOUR: Duration = Duration::from_hours(1);

impl Age {
    /// For a handler that keeps claims for a day.
    fn time(self) -> SystemTime {
        let now = SystemTime::now();
        match self {
            Self::Recent => now - HOUR,
            // Its claim, were there one, would be for the next purge.
            Self::TooOld => now - 26 * HOUR,
            Self::Ahead => now + 25 * HOUR,
        }
    }
}

async fn act(tx: &mut Tx<'_>, message: Message, body: Body) -> Result<(), Error> {
    effect(tx, &message.effect()).await?;
    end(body)
}

fn end(body: Body) -> Result<(), Error> {
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

#[derive(Clone)]
struct Item {
    id: u8,
    at: SystemTime,
    entity: u8,
    number: i64,
    message: Message,
}

impl From<Message> for Item {
    fn from(message: Message) -> Self {
        let Message::Item { id, age, entity, number } = message else { panic!("{message:?} is no item") };
        Self { id, at: age.time(), entity, number, message }
    }
}

#[idempotent(
    key = "{item.id}",
    each = "item in items",
    consumer = "histories.items",
    retention = "1d",
    occurred_at = "item.at",
    expired = "skip",
    sequence(entity = "{item.entity}", number = "item.number")
)]
async fn all(#[tx] tx: &mut Tx<'_>, items: Vec<Item>, body: Body) -> Result<(), Error> {
    for item in items {
        effect(tx, &item.message.effect()).await?;
    }
    end(body)
}

/// What becomes of each message.
async fn deliver(source: impl Into<Source<'_, Db>>, delivery: &[Message], body: Body) -> Result<Vec<Ending>, Error> {
    let source = source.into();
    let outcome = match *delivery {
        [message @ Message::Plain { id }] => plain(source, id, message, body).await,
        [message @ Message::Dated { id, age }] => dated(source, id, age.time(), message, body).await,
        [message @ Message::Versioned { id, entity, number }] => {
            versioned(source, id, entity, number, message, body).await
        }
        [message @ Message::Offset { entity, number }] => offset(source, entity, number, message, body).await,
        [message @ Message::Answered { id, content }] => match answered(source, id, content, message, body).await {
            Ok(Outcome::Replayed(answer)) => return Ok(vec![Ending::Replayed(answer)]),
            Ok(Outcome::Processed(_)) => Ok(Outcome::Processed(())),
            Ok(other) => panic!("{other:?}"),
            Err(error) => Err(error),
        },
        ref items => {
            let items = items.iter().copied().map(Item::from).collect();
            let ending = |outcome| match outcome {
                ItemOutcome::Processed => Ending::Processed,
                ItemOutcome::Duplicate => Ending::Duplicate,
                ItemOutcome::Stale => Ending::Stale,
                ItemOutcome::Expired => Ending::Expired,
            };
            match all(source, items, body).await {
                Ok(batch) => return Ok(batch.outcomes.into_iter().map(ending).collect()),
                Err(error) => Err(error),
            }
        }
    };
    let ending = match outcome {
        Ok(Outcome::Processed(())) => Ending::Processed,
        Ok(Outcome::Duplicate(_)) => Ending::Duplicate,
        Ok(Outcome::Stale(_)) => Ending::Stale,
        Ok(Outcome::Expired(_)) => Ending::Expired,
        Ok(Outcome::Replayed(())) => panic!("only one handler replays"),
        Err(Error::OccurredInFuture(_)) => Ending::InTheFuture,
        Err(Error::FingerprintMismatch(_)) => Ending::Mismatch,
        Err(Error::Database(sqlx::Error::RowNotFound)) => Ending::Failed,
        Err(error) => return Err(error),
    };
    // A batch that fails fails for all.
    Ok(vec![ending; delivery.len()])
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
            Step::Deliver(delivery, body) => {
                let found = self.deliver(delivery, *body).await?;
                let expected = oracle.deliver(delivery, *body, false);
                // The cancelled run may have committed.
                let settled =
                    matches!(body, Body::Cancel(_)) && found == oracle.clone().deliver(delivery, Body::Succeed, true);
                if !settled {
                    same(&found, &expected)?;
                }
            }
            Step::Join(deliveries, end) => self.join(deliveries, *end, oracle).await?,
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

    async fn deliver(&self, delivery: &[Message], body: Body) -> Result<Vec<Ending>, TestCaseError> {
        let endings = match body {
            Body::Panic => {
                let (store, messages) = (self.store.clone(), delivery.to_vec());
                match tokio::spawn(async move { deliver(&store, &messages, body).await }).await {
                    Ok(endings) => endings,
                    Err(_) => Ok(vec![Ending::Panicked; delivery.len()]),
                }
            }
            Body::Cancel(polls) => match drop_after(polls, deliver(&self.store, delivery, body)).await {
                Some(endings) => endings,
                None => deliver(&self.store, delivery, Body::Succeed).await,
            },
            Body::Succeed | Body::Fail => deliver(&self.store, delivery, body).await,
        };
        endings.map_err(failed)
    }

    /// In a transaction of the caller's, which has an effect of its own.
    async fn join(&self, deliveries: &[(Delivery, bool)], end: End, oracle: &mut Oracle) -> Result<(), TestCaseError> {
        let mut afterwards = oracle.clone();
        let mut tx = self.store.pool().begin_with(crate::BEGIN_TO_WRITE).await.map_err(failed)?;
        effect(&mut tx, "caller").await.map_err(failed)?;
        for (delivery, succeeds) in deliveries {
            let body = if *succeeds { Body::Succeed } else { Body::Fail };
            let found = deliver(self.store.join(&mut tx), delivery, body).await.map_err(failed)?;
            same(&found, &afterwards.deliver(delivery, body, true))?;
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

/// A delivery among others: of these messages, whose body takes so many microseconds.
type AtOnce = (Vec<u8>, Body, u64);

#[idempotent(key = "{history}/{id}", consumer = "histories.at-once", retry = 2)]
async fn at_once(#[tx] tx: &mut Tx<'_>, history: usize, id: u8, body: Body, micros: u64) -> Result<(), Error> {
    work(tx, history, &[id], body, micros).await
}

#[idempotent(key = "{history}/{id}", each = "id in ids", consumer = "histories.batches-at-once", retry = 2)]
async fn batch_at_once(
    #[tx] tx: &mut Tx<'_>,
    history: usize,
    ids: Vec<u8>,
    body: Body,
    micros: u64,
) -> Result<(), Error> {
    work(tx, history, &ids, body, micros).await
}

async fn work(tx: &mut Tx<'_>, history: usize, ids: &[u8], body: Body, micros: u64) -> Result<(), Error> {
    for id in ids {
        effect(tx, &format!("at-once-{history}-{id}")).await?;
    }
    tokio::time::sleep(Duration::from_micros(micros)).await;
    end(body)
}

/// The messages that it has processed, of one or of a batch.
async fn deliver_at_once(pool: &Pool<Db>, history: usize, batch: bool, of: &AtOnce) -> Result<Vec<u8>, Error> {
    let (ids, body, micros) = of;
    let processed: Vec<bool> = if batch {
        let outcomes = batch_at_once(pool, history, ids.clone(), *body, *micros).await?.outcomes;
        outcomes.into_iter().map(|outcome| outcome == ItemOutcome::Processed).collect()
    } else {
        vec![at_once(pool, history, ids[0], *body, *micros).await?.is_processed()]
    };
    Ok(ids.iter().zip(processed).filter_map(|(id, processed)| processed.then_some(*id)).collect())
}

async fn all_at_once(
    world: &World,
    history: usize,
    batch: bool,
    mut deliveries: Vec<AtOnce>,
) -> Result<(), TestCaseError> {
    if !batch {
        for (ids, ..) in &mut deliveries {
            ids.truncate(1);
        }
    }
    let all: std::collections::BTreeSet<u8> = deliveries.iter().flat_map(|(ids, ..)| ids.clone()).collect();
    let mut running = JoinSet::new();
    for delivery in deliveries {
        let pool = world.pool.clone();
        running.spawn(async move {
            let handling = deliver_at_once(&pool, history, batch, &delivery);
            let ended = match delivery.1 {
                Body::Cancel(polls) => drop_after(polls, handling).await,
                _ => Some(handling.await),
            };
            (delivery.0, ended)
        });
    }
    let (mut acknowledged, mut processed) = (Vec::new(), Vec::new());
    while let Some(ended) = running.join_next().await {
        match ended {
            Ok((ids, Some(Ok(ran)))) => {
                acknowledged.extend(ids);
                processed.extend(ran);
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
    let row = |id: &u8| format!("at-once-{history}-{id}");
    for id in &all {
        if acknowledged.contains(id) {
            same(&world.effects_of(&row(id)).await, &1)?;
        }
        let times = processed.iter().map(|other| usize::from(other == id)).sum::<usize>();
        if times > 1 {
            return Err(TestCaseError::fail(format!("{id} was processed {times} times")));
        }
        deliver_at_once(&world.pool, history, batch, &(vec![*id], Body::Succeed, 0)).await.map_err(failed)?;
        same(&world.effects_of(&row(id)).await, &1)?;
    }
    Ok(())
}

#[test]
fn random_deliveries_at_once_have_one_effect_each() {
    let delivery = (prop::collection::vec(0..5_u8, 1..6), oracle::body(), 0..3_000_u64);
    // Of single messages, or of batches.
    let histories = (any::<bool>(), prop::collection::vec(delivery, 2..16));
    let (cases, number, deliveries) = (rounds(40, 2_000), std::cell::Cell::new(0), std::cell::Cell::new(0));
    run(cases, 6, &histories, async |world, (batch, history)| {
        number.set(number.get() + 1);
        deliveries.set(deliveries.get() + history.len());
        all_at_once(world, number.get(), batch, history).await
    });
    println!("{cases} histories of {} deliveries at once", deliveries.get());
}
