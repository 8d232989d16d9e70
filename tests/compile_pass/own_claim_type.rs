//! Parts of the message whose types are called `Claim` and `Transaction` too, beside the library's own.

#![deny(warnings)]

use idempotent_runtime::idempotent;
use sqlx::{SqlitePool, SqliteTransaction};

pub struct Claim {
    id: u64,
}

pub struct Transaction {
    cents: i64,
}

#[idempotent(key = "{claim.id}")]
async fn pay(
    tx: &mut SqliteTransaction<'_>,
    #[message] claim: &Claim,
    #[message] transaction: &mut Transaction,
    given: &idempotent_runtime::Claim,
) -> sqlx::Result<String> {
    sqlx::query("SELECT ?").bind(transaction.cents).execute(&mut **tx).await?;
    Ok(given.key().to_owned())
}

async fn caller(pool: &SqlitePool) -> sqlx::Result<()> {
    pay(pool, &Claim { id: 1 }, &mut Transaction { cents: 1 }).await?;
    Ok(())
}

fn main() {
    let _ = caller;
}
