//! What is read again borrows from nothing.

use idempotent_runtime::idempotent;
use sqlx::SqliteTransaction;

struct Event {
    id: String,
    order: u64,
    version: i64,
}

#[idempotent(key = "{event.id}", replay)]
async fn handler(_tx: &mut SqliteTransaction<'_>, event: &Event) -> sqlx::Result<&str> {
    Ok(&event.id)
}

fn main() {}
