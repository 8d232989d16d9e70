//! The caller does not even look at the future.

#![deny(unused_must_use)]

use idempotent_runtime::idempotent;
use sqlx::SqliteTransaction;

struct Event {
    id: String,
}

#[idempotent(key = "{event.id}")]
async fn handler(_tx: &mut SqliteTransaction<'_>, event: &Event) -> sqlx::Result<()> {
    Ok(())
}

async fn caller(pool: &sqlx::SqlitePool, event: &Event) -> sqlx::Result<()> {
    handler(pool, event);
    Ok(())
}

fn main() {}
