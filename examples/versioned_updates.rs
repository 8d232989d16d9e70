//! Updates that arrive in any order, some of them twice, and orders that end in their newest state all the same.
//!
//! `cargo run -p examples --example versioned_updates`
//!
//! Observe: an update that is older than what was applied is `stale`, and changes nothing; one that was applied before is
//! a `duplicate`, since `key` is decided before `sequence`. On every run the deliveries are shuffled anew; the end is
//! the same.

use std::process::ExitCode;

use anyhow::{Result, ensure};
use idempotent_runtime::{idempotent, migrate};
use sqlx::{SqlitePool, SqliteTransaction};

#[derive(Clone)]
struct Update {
    id: String,
    order: &'static str,
    version: i64,
    state: &'static str,
}

/// Sets an order to the state that the update brings.
#[idempotent(
    key = "{update.id}",
    sequence(entity = "{update.order}", number = "update.version"),
    consumer = "examples.orders"
)]
async fn update_order(tx: &mut SqliteTransaction<'_>, update: &Update) -> sqlx::Result<()> {
    let set = "INSERT OR REPLACE INTO orders (id, state) VALUES (?, ?)";
    sqlx::query(set).bind(update.order).bind(update.state).execute(&mut **tx).await?;
    Ok(())
}

const ORDERS: [&str; 3] = ["order-a", "order-b", "order-c"];
const STATES: [&str; 5] = ["created", "paid", "packed", "shipped", "delivered"];

#[tokio::main]
async fn main() -> ExitCode {
    examples::exit_code(run().await)
}

async fn run() -> Result<()> {
    let pool = SqlitePool::connect("sqlite::memory:").await?;
    migrate(&pool).await?;
    sqlx::query("CREATE TABLE orders (id TEXT PRIMARY KEY, state TEXT NOT NULL)").execute(&pool).await?;

    let mut updates = Vec::new();
    for order in ORDERS {
        for (version, state) in (1..).zip(STATES) {
            updates.push(Update { id: format!("{order}-{state}"), order, version, state });
        }
    }
    updates.extend_from_within(..); // everything comes twice
    fastrand::shuffle(&mut updates);

    for update in &updates {
        let outcome = update_order(&pool, update).await?;
        println!("{:<9}  {}  version {}  {}", outcome.as_str(), update.order, update.version, update.state);
    }

    println!();
    let orders: Vec<(String, String)> =
        sqlx::query_as("SELECT id, state FROM orders ORDER BY id").fetch_all(&pool).await?;
    for (id, state) in &orders {
        println!("{id} is {state}");
    }
    ensure!(orders.len() == 3 && orders.iter().all(|(_, state)| state == "delivered"), "not every order is delivered");
    Ok(())
}
