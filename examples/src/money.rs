//! What the `postgres` and `mysql` examples share: everything but the handler.

use std::env;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use idempotent_runtime::{Disposition, Error, Outcome};
use tokio::task::JoinSet;

use crate::{Delivery, Tally};

/// What each message credits.
pub const CENTS: i64 = 100;
/// The account that is credited.
pub const ACCOUNT: &str = "alice";
/// The table of claims, so that the examples do not touch an application's own.
pub const CLAIMS: &str = "idempotent_example_claims";
/// Creates the tables anew, on either database.
pub const SET_UP: &str = "\
DROP TABLE IF EXISTS idempotent_example_account, idempotent_example_claims, idempotent_example_claims_migrations,
    idempotent_example_claims_janitor;
CREATE TABLE idempotent_example_account (name VARCHAR(50) PRIMARY KEY, cents BIGINT NOT NULL);
INSERT INTO idempotent_example_account (name, cents) VALUES ('alice', 0);";
/// The balance of the only account.
pub const BALANCE: &str = "SELECT cents FROM idempotent_example_account";

/// Consumers that take deliveries from one queue at the same time.
pub const WORKERS: u32 = 8;
/// How often a delivery comes again after an error that may pass.
const REDELIVERIES: u32 = 5;

/// The command line.
#[derive(Debug)]
pub struct Arguments {
    /// The database's address.
    pub url: String,
    /// The deliveries, shuffled.
    pub deliveries: Vec<Delivery>,
}

impl Arguments {
    /// Reads `<url> [file]`.
    ///
    /// # Errors
    ///
    /// How to call the example, or what is wrong with the file.
    pub fn read(example: &str, schemes: &[&str]) -> Result<Self> {
        let arguments: Vec<_> = env::args_os().skip(1).collect();
        let (url, file) = match arguments.as_slice() {
            [url] => (url, None),
            [url, file] => (url, Some(Path::new(file))),
            [] => bail!("the URL of a database is missing\n{}", usage(example, schemes)),
            _ => bail!("too many arguments\n{}", usage(example, schemes)),
        };
        let Some(url) = url.to_str().filter(|url| schemes.iter().any(|scheme| url.starts_with(scheme))) else {
            bail!("the URL does not start with {}\n{}", schemes.join(" or "), usage(example, schemes));
        };
        let mut deliveries = Delivery::read(file)?;
        fastrand::shuffle(&mut deliveries);
        Ok(Self { url: url.to_owned(), deliveries })
    }
}

fn usage(example: &str, schemes: &[&str]) -> String {
    format!(
        "usage: cargo run -p examples --example {example} -- {}user:password@localhost/database [deliveries.jsonl]\n\
         The example drops and creates tables there, all of them named `idempotent_example_…`.",
        schemes[0]
    )
}

/// Hands the deliveries to several workers at once, and prints what became of each.
///
/// # Errors
///
/// The first error after which a delivery would be parked, or that did not pass.
pub async fn replay<H, F>(deliveries: &[Delivery], handler: H) -> Result<Tally>
where
    H: Fn(Delivery) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Result<Outcome<i64>, Error>> + Send + 'static,
{
    let queue = Arc::new(Mutex::new(deliveries.to_vec()));
    let mut workers = JoinSet::new();
    for worker in 1..=WORKERS {
        workers.spawn(work(worker, Arc::clone(&queue), handler.clone()));
    }
    let mut tally = Tally::default();
    while let Some(finished) = workers.join_next().await {
        let Tally { processed, duplicates } = finished??;
        tally.processed += processed;
        tally.duplicates += duplicates;
    }
    Ok(tally)
}

async fn work<H, F>(worker: u32, queue: Arc<Mutex<Vec<Delivery>>>, handler: H) -> Result<Tally>
where
    H: Fn(Delivery) -> F,
    F: Future<Output = Result<Outcome<i64>, Error>>,
{
    let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).pop();
    let mut tally = Tally::default();
    while let Some(delivery) = next() {
        let outcome =
            deliver(&delivery, &handler).await.with_context(|| format!("delivery `{}` failed", delivery.id))?;
        let id = delivery.id;
        if let Some(balance) = outcome.value() {
            tally.processed += 1;
            println!("worker {worker}  processed  {id}  balance {}", in_units(balance));
        } else {
            tally.duplicates += 1;
            println!("worker {worker}  duplicate  {id}");
        }
    }
    Ok(tally)
}

/// What a queue does: deliver again what may succeed, and park what cannot.
async fn deliver<H, F>(delivery: &Delivery, handler: &H) -> Result<Outcome<i64>, Error>
where
    H: Fn(Delivery) -> F,
    F: Future<Output = Result<Outcome<i64>, Error>>,
{
    let mut redeliveries = 0;
    loop {
        match handler(delivery.clone()).await {
            Err(error) if error.disposition() == Disposition::Retry && redeliveries < REDELIVERIES => {
                redeliveries += 1;
                tokio::time::sleep(Duration::from_millis(50) * redeliveries).await;
            }
            settled => return settled,
        }
    }
}

/// Prints the summary.
///
/// # Errors
///
/// If the balance is not what it has to be.
pub fn conclude(tally: Tally, deliveries: &[Delivery], balance: i64) -> Result<()> {
    if balance % CENTS != 0 {
        bail!("the balance, {}, is no multiple of {}", in_units(balance), in_units(CENTS));
    }
    let counted_by = format!("the balance: {} at {} for each", in_units(balance), in_units(CENTS));
    tally.conclude(deliveries, usize::try_from(balance / CENTS)?, &counted_by)
}

fn in_units(cents: i64) -> String {
    format!("{}.{:02}", cents / 100, cents % 100)
}
