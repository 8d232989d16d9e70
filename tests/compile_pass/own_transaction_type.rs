//! A message type of the application's own may be called `Transaction`: the real one is marked.

use idempotent_runtime::{Error, idempotent};
use sqlx::SqliteTransaction;

/// What a bank calls a transaction.
pub struct Transaction {
    id: u64,
}

#[idempotent(key = "{transaction.id}")]
async fn book(#[tx] tx: &mut SqliteTransaction<'_>, transaction: &Transaction) -> Result<u64, Error> {
    let _ = tx;
    Ok(transaction.id)
}

fn main() {
    let _ = |pool: &sqlx::SqlitePool, transaction: &Transaction| drop(book(pool, transaction));
}
