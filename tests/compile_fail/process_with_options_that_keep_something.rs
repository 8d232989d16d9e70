//! A message without a key has nowhere to keep anything.

use idempotent_runtime::idempotent;
use sqlx::SqliteTransaction;

struct Event {
    id: String,
    order: u64,
    version: i64,
}

#[idempotent(key = "{event.id}", missing = "process", replay, fingerprint = "{event.version}")]
async fn handler(_tx: &mut SqliteTransaction<'_>, event: &Event) -> sqlx::Result<()> {
    Ok(())
}

fn main() {}
