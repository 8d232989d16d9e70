//! A pool in the place of a transaction.

use idempotent_runtime::idempotent;
use sqlx::SqlitePool;

struct Event {
    id: String,
}

#[idempotent(key = "{event.id}")]
async fn handler(pool: &SqlitePool, event: &Event) -> sqlx::Result<()> {
    Ok(())
}

fn main() {}
