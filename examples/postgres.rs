//! Credits an account on PostgreSQL: deliveries with duplicates, out of order, from several workers at once.
//!
//! `cargo run -p examples --example postgres -- postgres://user:password@localhost/database [deliveries.jsonl]`

use std::process::ExitCode;

use anyhow::{Context as _, Result};
use examples::Delivery;
use examples::money::{self, ACCOUNT, Arguments, BALANCE, CENTS, CLAIMS, SET_UP, WORKERS};
use idempotent_runtime::{ClaimStore, Error, idempotent};
use sqlx::postgres::PgPoolOptions;
use sqlx::{Connection as _, PgConnection, PgTransaction};

/// Credits the account and returns its new balance in cents.
#[idempotent(
    key = "{delivery.id}",
    consumer = "examples.credit",
    sender = "payments",
    retention = "30d",
    horizon = "3d"
)]
async fn credit(tx: &mut PgTransaction<'_>, account: &str, delivery: &Delivery) -> Result<i64, Error> {
    let credit = "UPDATE idempotent_example_account SET cents = cents + $1 WHERE name = $2 RETURNING cents";
    Ok(sqlx::query_scalar(credit).bind(CENTS).bind(account).fetch_one(&mut **tx).await?)
}

#[tokio::main]
async fn main() -> ExitCode {
    examples::exit_code(run().await)
}

async fn run() -> Result<()> {
    let Arguments { url, deliveries } = Arguments::read("postgres", &["postgres://", "postgresql://"])?;
    let mut connection = PgConnection::connect(&url).await.context("cannot connect")?;
    sqlx::raw_sql(SET_UP).execute(&mut connection).await.context("cannot create the tables")?;

    let pool = PgPoolOptions::new().max_connections(WORKERS).connect(&url).await?;
    let store = ClaimStore::builder(pool).table(CLAIMS).build()?;
    store.migrate().await?;
    let tally = money::replay(&deliveries, move |delivery| {
        let store = store.clone();
        async move { credit(&store, ACCOUNT, &delivery).await }
    })
    .await?;

    let balance = sqlx::query_scalar(BALANCE).fetch_one(&mut connection).await?;
    money::conclude(tally, &deliveries, balance)
}
