//! Bytes are no part of a key.

use idempotent_runtime::idempotent;
use sqlx::SqliteTransaction;

struct Event {
    id: Vec<u8>,
}

#[idempotent(key = "{event.id}")]
async fn handler(_tx: &mut SqliteTransaction<'_>, event: &Event) -> sqlx::Result<()> {
    Ok(())
}

fn main() {}
