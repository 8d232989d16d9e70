//! A consumer that takes up to 500 messages at a time, from a queue that delivers some of them again.
//!
//! `cargo run -p examples --example batch_consumer`
//!
//! Observe: a batch is one transaction. Repeats within it and from earlier batches do not reach the body; one message
//! without an id fails its whole batch before any SQL, is named, and is parked, and the rest is delivered again. The
//! acknowledgement of one batch is lost: when it comes again, all of it is recognised. In the end each reading is there
//! once.

use std::collections::VecDeque;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Result, ensure};
use idempotent_runtime::ItemOutcome::{Duplicate, Processed};
use idempotent_runtime::{Error, idempotent, migrate};
use sqlx::{QueryBuilder, SqlitePool, SqliteTransaction};

#[derive(Clone)]
struct Reading {
    id: String,
    meter: usize,
    watts: i64,
}

/// Adds the fresh readings, in one statement.
#[idempotent(key = "{reading.id}", each = "reading in readings", consumer = "examples.readings")]
async fn add(tx: &mut SqliteTransaction<'_>, readings: Vec<Reading>) -> Result<usize, Error> {
    let mut insert = QueryBuilder::new("INSERT INTO reading (meter, watts) ");
    insert.push_values(&readings, |mut row, reading| {
        row.push_bind(reading.meter.to_string()).push_bind(reading.watts);
    });
    insert.build().execute(&mut **tx).await?;
    Ok(readings.len())
}

const MESSAGES: usize = 2_000;
const BATCH: usize = 500;

/// The queue's messages: the first hundred of each three hundred come again at once, and one has no id.
fn deliveries() -> VecDeque<Reading> {
    let mut queue = VecDeque::new();
    for number in 0..MESSAGES {
        let reading = Reading { id: format!("reading-{number}"), meter: number % 7, watts: 100 };
        if number % 300 < 100 {
            queue.push_back(reading.clone());
        }
        queue.push_back(reading);
    }
    queue.insert(700, Reading { id: " ".into(), meter: 0, watts: 1_000_000 });
    queue.extend((0..MESSAGES).step_by(10).map(|number| Reading {
        id: format!("reading-{number}"),
        meter: 0,
        watts: 1,
    }));
    queue
}

#[tokio::main]
async fn main() -> ExitCode {
    examples::exit_code(run().await)
}

async fn run() -> Result<()> {
    let pool = SqlitePool::connect("sqlite::memory:").await?;
    migrate(&pool).await?;
    sqlx::query("CREATE TABLE reading (meter TEXT NOT NULL, watts INTEGER NOT NULL)").execute(&pool).await?;

    let (mut queue, mut parked, mut batches) = (deliveries(), 0, 0);
    println!("batch  messages  processed  duplicate");
    let started = Instant::now();
    while !queue.is_empty() {
        batches += 1;
        let taken: Vec<Reading> = queue.drain(..BATCH.min(queue.len())).collect();
        match add(&pool, taken.clone()).await {
            // Every item has an outcome, in the order of the batch, and each of them means: acknowledge.
            Ok(batch) => {
                let [processed, duplicates] = [Processed, Duplicate].map(|outcome| batch.count(outcome));
                ensure!(batch.outcomes.len() == taken.len(), "an item has no outcome");
                ensure!(batch.output.unwrap_or(0) == processed, "the body got other items than the fresh ones");
                print!("{batches:>5}  {:>8}  {processed:>9}  {duplicates:>9}", taken.len());
                if batches == 3 {
                    // As if the process had died here: the queue knows nothing, and delivers it again.
                    taken.into_iter().rev().for_each(|reading| queue.push_front(reading));
                    print!("  the acknowledgement is lost");
                }
                println!();
            }
            // Nothing of the batch was done. The message with this index is at fault, the others are not.
            Err(Error::MissingKey { index: Some(index), part, .. }) => {
                println!("{batches:>5}  {:>8}  refused: message {index} has no `{part}`, and is parked", taken.len());
                let good = taken.into_iter().enumerate().filter(|(number, _)| *number != index);
                good.rev().for_each(|(_, reading)| queue.push_front(reading));
                parked += 1;
            }
            // Nothing was done either; `error.disposition()` says whether to deliver it again.
            Err(error) => return Err(error.into()),
        }
    }

    let took = started.elapsed().as_millis();
    let (readings, watts): (i64, i64) =
        sqlx::query_as("SELECT count(*), sum(watts) FROM reading").fetch_one(&pool).await?;
    println!("\n{readings} readings of {MESSAGES} messages, {parked} parked, in {took} ms");
    ensure!(readings == 2_000 && watts == 200_000, "a reading is lost or twice there: {watts} W");
    Ok(())
}
