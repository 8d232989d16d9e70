//! What is replayed has to be stored.

use idempotent_runtime::idempotent;
use sqlx::SqliteTransaction;

struct Event {
    id: String,
    order: u64,
    version: i64,
}

#[idempotent(key = "{event.id}", replay)]
async fn handler(_tx: &mut SqliteTransaction<'_>, event: &Event) -> sqlx::Result<std::time::Instant> {
    Ok(std::time::Instant::now())
}

fn main() {}
